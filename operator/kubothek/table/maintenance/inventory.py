"""The inventory of a table: how large each file is that a kept version names, carried along from version to version.

Worked out from commit records, each of which tells the sizes of the files that it added; nothing is listed. What was
worked out is kept beside the dataset, so that the next look reads the records since, and not all of them again. It is
derived: it may be behind, or gone, or of a history that is no longer the dataset's, and that costs time only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kubothek.errors import ObjectNotFound, VersionIncomplete
from kubothek.storage import Store
from kubothek.table.log import DatasetLog, Head, PartitionFile, Record, Snapshot, Totals
from kubothek.table.log.file_sizes import measure
from kubothek.table.log.model import keys
from kubothek.table.log.records import chain
from kubothek.table.maintenance.runs import runs

_TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.string(),
    **dict.fromkeys(("rows", "bytes", "born", "gone"), pa.int64()),
}
FILES: Final = pa.schema(_TYPES)
"""A file a row: its size, the version that brought it (0: not known), and the one that took it away (0: none has)."""

NOTHING: Final = Totals()
_FORMAT: Final = b"1"
_FILES_A_RECORD: Final = 1000
_MOST_RECORDS: Final = 8
_MOST_VERSIONS: Final = 1 << 24
"""More than any history has: an object that claims more is damaged."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The files of one version, and those that only older versions which are kept need.

    ``commit``    key of the record that made the version; None if none is known
    ``files``     as :data:`FILES`; those of the version first, in its order
    ``versions``  that can be asked for, ascending
    ``garbage``   as it was estimated last (:mod:`~kubothek.table.maintenance.garbage`)
    ``news``      how many records were read that the inventory which was kept does not know; None: it was of no use
    """

    commit: str | None
    files: pa.Table
    versions: tuple[int, ...]
    garbage: Totals = NOTHING
    news: int | None = 0


def take(store: Store, log: DatasetLog, snapshot: Snapshot) -> Inventory:
    """The inventory at this snapshot, the present version; writes nothing.

    Reads what was kept, the records since, and footers of files that neither knows, such as those of a foreign writer.
    """
    head = snapshot.head
    before = kept(store, log.uuid) or Inventory(None, FILES.empty_table(), ())
    news = _News.since(log, head, before.commit)
    known = before.files if news.complete else _set(_set(before.files, "born", 0), "gone", 0)
    known = pa.concat_tables([known, _without(news.table(), known.column("key"))])
    live = head.files()
    present = pa.array(live.values(), pa.string())
    unknown = present.filter(pc.invert(pc.is_in(present, value_set=known.column("key"))))
    measured = measure(store, (("", str(key)) for key in unknown))
    known = pa.concat_tables([known, _table((file.key, file.rows, file.bytes, 0, 0) for file in measured)])
    here = _set(known.take(pc.index_in(present, value_set=known.column("key"))), "gone", 0)
    held = _needed(_gone(_without(known, present), news.gone), head)
    earlier = before.versions if news.complete else ()
    oldest = _oldest(head)
    return Inventory(
        head.commit,
        pa.concat_tables([here, held]),
        tuple(version for version in (*earlier, *reversed(news.versions)) if version >= oldest),
        before.garbage,
        len(news.versions) if news.complete else None,
    )


def kept(store: Store, uuid: str) -> Inventory | None:
    """The inventory that was kept last; None if there is none, or none that can be read."""
    with suppress(ObjectNotFound, pa.ArrowException, OSError, KeyError, TypeError, ValueError):
        table = pq.read_table(pa.BufferReader(store.get(keys.inventory(uuid))))
        about = table.schema.metadata
        if about[b"format"] == _FORMAT:
            spans = orjson.loads(about[b"versions"])
            if sum(last - first for first, last in spans) > _MOST_VERSIONS:
                return None
            versions = tuple(version for first, last in spans for version in range(first, last + 1))
            files = table.replace_schema_metadata().cast(FILES)
            return Inventory(about[b"commit"].decode(), files, versions, Totals(**orjson.loads(about[b"garbage"])))
    return None


def keep(store: Store, uuid: str, inventory: Inventory, *, anyhow: bool = False) -> None:
    """Keep it for the next look; unless ``anyhow``, not if it is large, and reading a few more records is less work.

    Whoever does so last is right: an older one is carried on like any other. A file that was not there may be put back,
    so its size is not kept.
    """
    due = 0 if anyhow else min(_MOST_RECORDS, 1 + inventory.files.num_rows // _FILES_A_RECORD)
    if inventory.commit is not None and (inventory.news is None or inventory.news >= due):
        store.put(keys.inventory(uuid), memoryview(_render(inventory)))


@dataclass(frozen=True, slots=True)
class _News:
    """What the records since an inventory tell; all of them down to the oldest, if they do not lead back to it.

    ``complete``  whether they do
    ``versions``  of the records, descending
    ``added``     the files that they brought, by key, each with the oldest of these versions that did
    ``gone``      the newest of these versions that removed a file
    """

    complete: bool
    versions: list[int] = field(default_factory=list)
    added: dict[str, tuple[PartitionFile, int]] = field(default_factory=dict)
    gone: dict[str, int] = field(default_factory=dict)

    @classmethod
    def since(cls, log: DatasetLog, head: Head, known: str | None) -> _News:
        if known is not None and head.commit == known:
            return cls(complete=True)
        news, last = cls(complete=False), None
        for last in _records(log, head, known):
            news.versions.append(last.version)
            for file in last.delta.added:
                news.added[file.key] = file, last.version
            for _, key in last.delta.removed:
                news.gone.setdefault(key, last.version)
        complete = last is not None and known is not None and last.parent == known
        return cls(complete, news.versions, news.added, news.gone)

    def table(self) -> pa.Table:
        return _table((key, file.rows, file.bytes, born, 0) for key, (file, born) in self.added.items())


def _records(log: DatasetLog, head: Head, stop: str | None) -> Iterator[Record]:
    """The commits, newest first, down to the one after ``stop``; without it to the horizon, or to one that is gone."""
    known = keys.parse_record(log.uuid, stop)
    oldest = min(_oldest(head), known.version) if known is not None else _oldest(head)

    def link(record: Record) -> str | None:
        parent = keys.parse_record(log.uuid, record.parent)
        return parent.key if parent is not None and parent.version >= oldest and parent.key != stop else None

    with suppress(VersionIncomplete):
        key = head.commit
        for _ in range(_MOST_RECORDS):  # one by one: reading ahead, as a chain does, would read too many
            if key is None:
                return
            record = log.journal.record(key)
            yield record
            key = link(record)
        if key is not None:
            yield from chain(log.journal, log.journal.record(key), link)


def _oldest(head: Head) -> int:
    """The oldest version that can be asked for, but for tagged ones."""
    return max(head.horizon, head.epoch + 1)


# --- tables of files -------------------------------------------------------------------------------------------------


def _table(rows: Iterable[Sequence[Any]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(FILES)
    return pa.table(dict(zip(FILES.names, columns, strict=True)), FILES)


def _set(files: pa.Table, column: str, values: pa.Array[Any] | pa.ChunkedArray[Any] | int) -> pa.Table:
    if isinstance(values, int):
        values = pa.repeat(pa.scalar(values, pa.int64()), files.num_rows)
    return files.set_column(files.schema.get_field_index(column), FILES.field(column), values)


def _without(files: pa.Table, known: pa.Array[Any] | pa.ChunkedArray[Any]) -> pa.Table:
    return files.filter(pc.invert(pc.is_in(files.column("key"), value_set=known)))


def _gone(files: pa.Table, gone: Mapping[str, int]) -> pa.Table:
    """With the versions that took the files away: the newest one is right."""
    found = pc.index_in(files.column("key"), value_set=pa.array(gone, pa.string()))
    newest = pa.array(gone.values(), pa.int64()).take(found)
    return _set(files, "gone", pc.if_else(pc.is_valid(newest), newest, files.column("gone")))


def _needed(files: pa.Table, head: Head) -> pa.Table:
    """Those that a version needs which can be asked for, or has a tag."""
    born, gone = files.column("born"), files.column("gone")
    needed = pc.greater(gone, pa.scalar(_oldest(head)))
    for tag in head.tags.values():
        version = pa.scalar(tag.version)
        needed = pc.or_(needed, pc.and_(pc.less_equal(born, version), pc.greater(gone, version)))
    return files.filter(needed)


def _render(inventory: Inventory) -> pa.Buffer:
    about = {
        b"format": _FORMAT,
        b"commit": (inventory.commit or "").encode(),
        b"versions": orjson.dumps(runs(inventory.versions)),
        b"garbage": orjson.dumps(inventory.garbage.to_json()),
    }
    files = inventory.files.filter(pc.greater(inventory.files.column("bytes"), pa.scalar(0)))
    sink = pa.BufferOutputStream()
    pq.write_table(files.replace_schema_metadata(about), sink, compression="zstd")
    return sink.getvalue()
