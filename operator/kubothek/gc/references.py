"""The keys that heads, records, index manifests and pages of standing sources name. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kubothek.ingest.watch.ledger import Page
from kubothek.odf.spec.blocks import Block
from kubothek.odf.spec.events import AddData, ExecuteTransform
from kubothek.odf.spec.layout import Layout
from kubothek.table.indexes.native import Manifest
from kubothek.table.log import Head, Record
from kubothek.table.log.model import keys
from kubothek.table.log.model.head import INDEX, INTAKE, SKIPPING


def of_head(head: Head) -> Iterator[str]:
    """Yield data files, index files, manifests, skipping metadata and pages of a version, and its chain's definition.

    A head names only the last block of the chain itself, see :func:`of_chain`.
    """
    for partition in head.partitions.values():
        yield from partition["files"].values()
    yield from _of(head.uuid, head.indices, head.metadata)


def of_record(record: Record) -> Iterator[str]:
    """Yield the keys that a commit added to its version."""
    yield from (file.key for file in record.delta.added)
    uuid = record.key.split("/")[1]
    yield from _of(uuid, record.delta.indices, record.delta.metadata)
    if record.ledger is not None:
        yield from record.ledger.keys(uuid)


def of_chain(uuid: str, block: Block) -> Iterator[str]:
    """Yield a block of a ledger, and the slice and the checkpoint that it names."""
    layout, event = Layout(keys.chain(uuid)), block.content.event
    yield layout.block(block.hash)
    if isinstance(event, AddData | ExecuteTransform):
        if event.new_data:
            yield layout.data(event.new_data.physical_hash)
        if event.new_checkpoint:
            yield layout.checkpoint(event.new_checkpoint.physical_hash)


def of_manifest(manifest: Manifest) -> Iterator[str]:
    """Return the sorted files of a native index."""
    return (file.key for file in manifest.files)


def of_page(page: Page) -> Iterator[str]:
    """Return the sorted runs that list what a standing source has ingested."""
    return (run.key for run in page.runs)


def _of(uuid: str, indices: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield what indices and metadata name. A legacy index is in the head itself, and names nothing."""
    yield from (index for index in indices.values() if isinstance(index, str))
    native = metadata.get(INDEX)
    if isinstance(native, Mapping):
        yield from map(str, native.values())
    if SKIPPING in metadata:
        yield from (key for part in Head(uuid, metadata=metadata).skipping.parts for key in part.keys)
    if (note := Head(uuid, metadata=metadata).chain) is not None:
        yield keys.definition(uuid, note.definition)
    yield from (page for name, page in metadata.items() if name.startswith(INTAKE) and isinstance(page, str))
