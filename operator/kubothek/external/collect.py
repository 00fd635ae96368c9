"""Describe plain files: each is read once, and must have the same version before and after."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from kubothek.errors import LakeError, StoreError
from kubothek.external.files import PlainTable
from kubothek.external.metadata import VERSIONS, identifier_of, write
from kubothek.external.state import PlainPart
from kubothek.storage import Store
from kubothek.table.skipping.collect.collectors import Describing
from kubothek.table.skipping.entries import Describer, EntrySchema, fields
from kubothek.table.skipping.model import SkippingState

_AT_ONCE: Final = 4
_HELD_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class Work:
    """The input of a worker that describes files; plain data.

    ``url``    of the store of the files; ``name`` is that of the metadata
    ``total``  number of all files
    """

    url: str
    name: str
    table: PlainTable
    definitions: SkippingState
    total: int

    @property
    def entries(self) -> EntrySchema:
        """The schema of an entry. Raises SkippingInvalid."""
        return fields(self.definitions.indices, self.table.schema, self.table.partitions)


@dataclass(frozen=True, slots=True)
class Described:
    """The result for some files: entries of those that could be described, and messages about the others."""

    parts: tuple[PlainPart, ...] = ()
    left_out: tuple[str, ...] = ()


def describe(files: Store, metadata: Store, work: Work, versions: pa.Table) -> Described:
    """Describe these versions of files, and store the entries. Raises StoreError, SkippingUnreadable."""
    schema = work.entries
    fpp = Describing(work.definitions, work.total).fpp()
    parts: list[PlainPart] = []
    left_out: list[str] = []
    held: list[tuple[pa.Table, dict[str, Any]]] = []

    def settle() -> None:
        if held:
            entries = pa.concat_tables([entry for entry, _ in held])
            seen = pa.Table.from_pylist([version for _, version in held], schema=VERSIONS)
            identifier, prefix = identifier_of(work.url, work.table.files.prefix), work.table.files.prefix
            parts.append(
                write(metadata, work.name, identifier, prefix, schema, entries, seen, work.definitions.encryption)
            )
            held.clear()

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="describe") as pool:
        wanted = versions.to_pylist()
        for start in range(0, len(wanted), 8 * _AT_ONCE):
            chunk = wanted[start : start + 8 * _AT_ONCE]
            for version, found in zip(chunk, pool.map(lambda v: _one(files, work, schema, fpp, v), chunk), strict=True):
                if isinstance(found, str):
                    left_out.append(f"{version['key']}: {found}")
                else:
                    held.append((found, version))
            if sum(entry.nbytes for entry, _ in held) > _HELD_BYTES:
                settle()
    settle()
    return Described(tuple(parts), tuple(left_out))


def _one(store: Store, work: Work, schema: EntrySchema, fpp: float, version: dict[str, Any]) -> pa.Table | str:
    """Return the entry of a file, or the reason why it has none."""
    key = version["key"]
    columns = dict.fromkeys(path[0] for paths in schema.paths for path in paths)
    describer = Describer(schema, fpp=fpp)
    try:
        partition = work.table.partition_of(key)
        for batch in work.table.batches(store, key, list(columns)):
            describer.update(batch)
        if store.stat(key).etag != version["etag"]:
            return "it changed while it was read"
    except StoreError:
        raise
    except LakeError as error:
        return str(error)
    except (pa.ArrowException, OSError) as error:
        return f"it cannot be read as {work.table.files.format}: {error}"
    described = describer.finish()
    if described is None:
        return "one of its indices would be too large"
    return schema.row(key, version["modified"], partition, described)


def chunked(versions: pa.Table, sizes: Sequence[int], tasks: int) -> list[pa.Table]:
    """Return the files in at most this many pieces of about the same number of bytes."""
    total = sum(sizes)
    pieces: list[pa.Table] = []
    start, held = 0, 0
    for number, size in enumerate(sizes):
        held += size
        if held * tasks >= total or number == len(sizes) - 1:
            pieces.append(versions.slice(start, number + 1 - start))
            start, held = number + 1, 0
    return pieces
