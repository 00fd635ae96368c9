"""The inventory of a table: the size of each file that a kept version names, updated from version to version.

Computed from commit records, each of which has the sizes of the files that it added; nothing is listed. The inventory
is stored beside the dataset, so that the next computation reads only later records. It is derived: if it lags behind,
is missing, or describes a history that is no longer the dataset's, that only costs time.
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

_TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.string(),
    **dict.fromkeys(("rows", "bytes", "born", "gone"), pa.int64()),
}
FILES: Final = pa.schema(_TYPES)
"""One row a file: its size, the version that added it (0: unknown), and the one that removed it (0: none)."""

NOTHING: Final = Totals()
_FORMAT: Final = b"1"
_FILES_A_RECORD: Final = 1000
_MOST_RECORDS: Final = 8
_MOST_VERSIONS: Final = 1 << 24
"""More than any history has: an inventory that claims more is damaged."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The files of one version, and those that only older kept versions need.

    ``commit``    key of the record that made the version; None if unknown
    ``files``     as :data:`FILES`; those of the version first, in its order
    ``versions``  that readers can request, ascending
    ``garbage``   the last estimate (:mod:`~kubothek.table.maintenance.health`)
    ``news``      number of records read that the stored inventory lacks; None: it was of no use
    """

    commit: str | None
    files: pa.Table
    versions: tuple[int, ...]
    garbage: Totals = NOTHING
    news: int | None = 0


def take(store: Store, log: DatasetLog, snapshot: Snapshot) -> Inventory:
    """Return the inventory at this snapshot, the current version. Writes nothing.

    Reads the stored inventory, later records, and footers of files in neither, such as those of a foreign writer.
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
    held = _needed(_with_removals(_without(known, present), news.removed), head)
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
    """Return the stored inventory; None if there is none, or it cannot be read."""
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
    """Store the inventory; unless ``anyhow``, not if that is more work than reading a few more records next time.

    The last writer wins: an older inventory is updated like any other. Sizes of missing files are left out, as such a
    file may be put back.
    """
    due = 0 if anyhow else min(_MOST_RECORDS, 1 + inventory.files.num_rows // _FILES_A_RECORD)
    if inventory.commit is not None and (inventory.news is None or inventory.news >= due):
        store.put(keys.inventory(uuid), memoryview(_render(inventory)))


@dataclass(frozen=True, slots=True)
class _News:
    """The records since an inventory; all of them down to the oldest, if they do not lead back to it.

    ``complete``  whether they lead back to it
    ``versions``  of the records, descending
    ``added``     the files that they added, by key, each with the oldest of these versions that added it
    ``removed``   by key, the newest of these versions that removed a file
    """

    complete: bool
    versions: list[int] = field(default_factory=list)
    added: dict[str, tuple[PartitionFile, int]] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)

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
                news.removed.setdefault(key, last.version)
        complete = last is not None and known is not None and last.parent == known
        return cls(complete, news.versions, news.added, news.removed)

    def table(self) -> pa.Table:
        return _table((key, file.rows, file.bytes, born, 0) for key, (file, born) in self.added.items())


def _records(log: DatasetLog, head: Head, stop: str | None) -> Iterator[Record]:
    """Yield the commits, newest first, to the one after ``stop``; without it, to the horizon or a missing record."""
    known = keys.parse_record(log.uuid, stop)
    oldest = min(_oldest(head), known.version) if known is not None else _oldest(head)

    def link(record: Record) -> str | None:
        parent = keys.parse_record(log.uuid, record.parent)
        return parent.key if parent is not None and parent.version >= oldest and parent.key != stop else None

    with suppress(VersionIncomplete):
        key = head.commit
        for _ in range(_MOST_RECORDS):  # one by one, as chain() reads ahead too many
            if key is None:
                return
            record = log.journal.record(key)
            yield record
            key = link(record)
        if key is not None:
            yield from chain(log.journal, log.journal.record(key), link)


def _oldest(head: Head) -> int:
    """Return the oldest version that readers can request, except tagged ones."""
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


def _with_removals(files: pa.Table, removed: Mapping[str, int]) -> pa.Table:
    """Return the files with the versions that removed them; the newest removal counts."""
    found = pc.index_in(files.column("key"), value_set=pa.array(removed, pa.string()))
    newest = pa.array(removed.values(), pa.int64()).take(found)
    return _set(files, "gone", pc.if_else(pc.is_valid(newest), newest, files.column("gone")))


def _needed(files: pa.Table, head: Head) -> pa.Table:
    """Return those that a version needs which readers can request, or which has a tag."""
    born, removed = files.column("born"), files.column("gone")
    needed = pc.greater(removed, pa.scalar(_oldest(head)))
    for tag in head.tags.values():
        version = pa.scalar(tag.version)
        needed = pc.or_(needed, pc.and_(pc.less_equal(born, version), pc.greater(removed, version)))
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


# Ascending numbers as runs without gaps.


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and the last number of each run: 3, 5, 6, 7 are (3, 3) and (5, 7)."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found
