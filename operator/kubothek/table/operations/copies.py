"""Copies of a table: the data files of one version under new names, decoded only where indices need it."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import sha3_256
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa

from kubothek.errors import StoreError
from kubothek.storage import Store
from kubothek.table.indexes import IndexKind
from kubothek.table.layout import Layout
from kubothek.table.log import Change, Everything, Operation, PartitionFile, Snapshot, partition_path
from kubothek.table.log.file_sizes import measure
from kubothek.table.log.model import keys
from kubothek.table.log.model.head import LAYOUT, OWN_PREFIX
from kubothek.table.log.multi.members import LEGACY, OWN
from kubothek.table.log.records import parallel
from kubothek.table.operations.written import Gathered, Written
from kubothek.table.skipping.collect.collectors import entry_schema
from kubothek.table.skipping.model import Part, SkippingState
from kubothek.table.skipping.refresh import beginning, carried
from kubothek.table.time_zones import zones_of

_NAME: Final = re.compile(r"[0-9a-f]{32}")


def copied(
    source: Store,
    snapshot: Snapshot,
    schema: pa.Schema,
    target: Store,
    base: Snapshot,
    wanted: Mapping[str, IndexKind],
) -> Written:
    """Copy all data files of a snapshot; return them as files for the table ``base`` of the target store.

    ``schema``  the stored schema of the snapshot
    ``wanted``  the indices of the copy, by column

    Indices are built by the commit; skipping metadata is copied, unless ``base`` has its own. After an error the copies
    are deleted.
    """
    head = snapshot.head
    files = measure(source, head.files().items())
    copies = [_copy_of(base.head.uuid, file) for file in files]
    try:
        hashes = parallel(partial(_copy, source, target), list(zip(files, copies, strict=True)))
        begins, described = _described(source, snapshot, schema, target, base, files, copies)
    except BaseException:
        with suppress(StoreError):
            target.delete([copy.key for copy in copies])
        raise
    return Written(
        tuple(replace(copy, sha3=sha3) for copy, sha3 in zip(copies, hashes, strict=True)),
        schema,
        head.partition_keys,
        gathered=Gathered(skipping=described),
        wanted=wanted,
        dialect=head.index_state.dialect,
        begins=begins,
        zones=zones_of(head.metadata),
    )


def created(source: Store, snapshot: Snapshot, target: Store, base: Snapshot, *, by: str = "") -> Change:
    """Copy all data files; return the change that creates a dataset with the content of the snapshot.

    Columns, partitioning, layout, indices, skipping metadata, zones and user metadata are the same; history and tags
    are not copied.
    """
    head, schema = snapshot.head, snapshot.schema
    change = Change(
        operation=Operation.CREATE,
        reads=Everything(),
        partition_keys=head.partition_keys,
        layout=Layout.of(head).to_json() if LAYOUT in head.metadata else None,
        metadata=user_metadata(snapshot),
        by=by,
    )
    wanted = head.index_state.wanted()
    if schema is None:
        return replace(
            change, index=Written((), pa.schema([]), (), wanted=wanted, dialect=head.index_state.dialect).index
        )
    written = copied(source, snapshot, schema, target, base, wanted)
    return replace(
        change,
        added=written.files,
        schema=schema,
        zones=written.zones,
        index=written.index,
        skipping=written.skipping,
    )


def user_metadata(snapshot: Snapshot) -> dict[str, Any]:
    """Return the user metadata of a snapshot, without what describes a cube."""
    own = (OWN, LEGACY, OWN_PREFIX, "creation_time")
    return {key: value for key, value in snapshot.head.metadata.items() if not key.startswith(own)}


def _described(
    source: Store,
    snapshot: Snapshot,
    schema: pa.Schema,
    target: Store,
    base: Snapshot,
    files: Sequence[PartitionFile],
    copies: Sequence[PartitionFile],
) -> tuple[SkippingState | None, tuple[Part, ...]]:
    """Copy the skipping metadata of the files; none if the overwritten table has its own."""
    before, head = snapshot.head.skipping, base.head
    if not before.indices or head.skipping.indices:
        return None, ()
    definitions = replace(before, parts=(), without=0)
    begins = beginning(target, definitions, schema, snapshot.head.partition_keys)
    if begins is None:
        return None, ()
    entries = entry_schema(begins, schema, snapshot.head.partition_keys)
    by_key = {file.key: copy.key for file, copy in zip(files, copies, strict=True)}
    encryption = begins.encryption
    return begins, carried(source, before.parts, target, head.uuid, head.table, entries, by_key, encryption=encryption)


def _copy_of(uuid: str, file: PartitionFile) -> PartitionFile:
    """Return the file of a copy: a new name, which keeps the suffix for bucket and order."""
    old = file.key.rpartition("/")[2].removesuffix(keys.DATA_SUFFIX)
    name = uuid4().hex + (old[32:] if _NAME.match(old) else "")
    path = partition_path(file.key)
    label = f"{path}/{name}" if path else name
    key = f"{keys.data_prefix(uuid, keys.DEFAULT_TABLE)}{label}{keys.DATA_SUFFIX}"
    return replace(file, label=label, key=key)


def _copy(source: Store, target: Store, pair: tuple[PartitionFile, PartitionFile]) -> str:
    """Copy one file; return the SHA3-256 of its bytes in hex."""
    with source.open(pair[0].key) as content:
        hashing = _Hashing(content)
        target.upload(pair[1].key, hashing)
        return hashing.hasher.hexdigest()


class _Hashing(io.BufferedIOBase):
    """A seekable stream that hashes what is read after its last seek to the start."""

    def __init__(self, source: io.BufferedIOBase) -> None:
        self._source = source
        self.hasher = sha3_256()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        if (position := self._source.seek(offset, whence)) == 0:
            self.hasher = sha3_256()
        return position

    def read(self, size: int | None = -1, /) -> bytes:
        return self._hashed(self._source.read(size))

    def read1(self, size: int = -1, /) -> bytes:
        return self._hashed(self._source.read1(size))

    def _hashed(self, data: bytes) -> bytes:
        self.hasher.update(data)
        return data
