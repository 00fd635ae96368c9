"""Update or delete the metadata of a plain location.

New objects are written first, then the index object that names them, by compare-and-swap; unnamed objects are deleted
last. After a crash the metadata is complete, and of two concurrent refreshes one wins. When the index definitions
change, Xskipper's files of the old ones are deleted before the first new file. Real Xskipper must not see both: it
reads a column that a file lacks as "no values" (verified with Xskipper 1.7).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import Contended, ObjectNotFound, PreconditionFailed, SkippingUnreadable, SourceCorrupt
from kubothek.external.collect import Described, Work, chunked, describe
from kubothek.external.files import PlainFiles, PlainTable, keys_of, table_of
from kubothek.external.matching import identity, versions_listed
from kubothek.external.metadata import VERSIONS, entries_of, identifier_of, location, versions_of, write
from kubothek.external.state import Kept, PlainIndex, PlainPart, read, root, swap
from kubothek.storage import Store
from kubothek.table.skipping.entries import fields
from kubothek.table.skipping.model import SkippingState, require_footer_key
from kubothek.table.skipping.prune.auto import SAMPLE_ROWS, Seen, choose, profile, sampled
from kubothek.table.skipping.refresh import aligned

MOST_PARTS: Final = 8
PART_ROWS: Final = 50_000
PART_BYTES: Final = 64 << 20
_LEFT_OUT: Final = 100

ReportProgress = Callable[[int, int], None]
"""Progress callback with the number of described files, and of all files to describe."""
Describe = Callable[[Work, list[pa.Table]], list[Described]]
"""Describes pieces of a list of versions."""


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The result of a refresh: ``added`` files were described, entries of ``removed`` versions dropped."""

    index: PlainIndex
    added: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """The store of the files, the store of the metadata, and its name."""

    files: Store
    metadata: Store
    name: str


def describe_here(place: Place, report: ReportProgress = lambda _done, _total: None) -> Describe:
    """Return a function that describes files in this process."""

    def run(work: Work, pieces: list[pa.Table]) -> list[Described]:
        total = sum(piece.num_rows for piece in pieces)
        done, found = 0, []
        for piece in pieces:
            found.append(describe(place.files, place.metadata, work, piece))
            done += piece.num_rows
            report(done, total)
        return found

    return run


def refresh(
    place: Place,
    files: PlainFiles,
    definitions: SkippingState,
    *,
    tasks: int = 16,
    rebuild: bool = False,
    build: Callable[[int], Describe],
) -> Refreshed:
    """Describe new and changed files, drop entries of missing ones; rebuild if definitions or columns changed.

    ``definitions``  of the indices, without parts
    ``build``        returns the describing function, given the number of bytes of the files

    Raises SkippingInvalid for indices that the files cannot have, Contended if another refresh came first, and the
    errors of listing and reading.
    """
    require_footer_key(definitions)
    before = read(place.metadata, place.name)
    listed = files.listed(place.files)
    versions = versions_listed(listed)
    table = table_of(place.files, files, keys_of(listed))
    work = Work(place.files.url, place.name, table, definitions, listed.num_rows)
    schema = fields(definitions.indices, table.schema, table.partitions)
    index, kept = before.index, _kept(place.metadata, before.index)
    if rebuild or index is None or not _continues(index, work) or kept is None:
        # The existing metadata is unusable, and real Xskipper must not see it together with the new.
        _delete_below(place.metadata, location(place.name))
        kept = []
    known = pa.concat_tables([seen for _, seen in kept]) if kept else VERSIONS.empty_table()
    fresh = versions.filter(pc.invert(_among(versions, known)))
    removed_count = known.num_rows - int(pc.sum(_among(known, versions)).as_py() or 0)
    sizes: Any = fresh.column("size").to_pylist()
    pieces = chunked(fresh, sizes, tasks) if fresh.num_rows else []
    found = build(sum(sizes))(work, pieces) if pieces and schema.definitions else []
    made = list(chain.from_iterable(each.parts for each in found))
    parts = _tidied(place, work, [*kept, *((part, None) for part in made)], versions)
    after = PlainIndex(
        work.url,
        table,
        replace(definitions, parts=()),
        tuple(parts),
        listed.num_rows,
        sum(part.rows for part in parts),
        tuple(chain.from_iterable(each.left_out for each in found))[:_LEFT_OUT],
    )
    if after != index:
        _swap(place, before, after)
        _sweep(place, after)
    return Refreshed(after, sum(part.rows for part in made), removed_count)


def drop(metadata: Store, name: str) -> int:
    """Delete all metadata of a name; return the number of objects. The files stay."""
    where = root(name)
    metadata.delete([f"{where}index.json"])
    return _delete_below(metadata, where)


def _continues(index: PlainIndex, work: Work) -> bool:
    """Return whether existing entries are compatible with new ones."""
    then, now = (each.table.files for each in (index, work))
    same_files = (then.prefix, then.format, then.csv, then.glob) == (now.prefix, now.format, now.csv, now.glob)
    same_rows = index.table.schema.equals(work.table.schema) and index.table.partitions == work.table.partitions
    return same_files and same_rows and index.definitions == work.definitions and index.url == work.url


def _kept(metadata: Store, index: PlainIndex | None) -> list[tuple[PlainPart, pa.Table]] | None:
    """Return the parts with the versions that they describe; None if one is missing or unreadable."""
    if index is None:
        return []
    found = []
    for part in index.parts:
        try:
            for key in part.keys:
                metadata.stat(key)
            found.append((part, versions_of(metadata, part)))
        except (ObjectNotFound, SkippingUnreadable):
            return None
    return found


def _tidied(
    place: Place, work: Work, parts: Sequence[tuple[PlainPart, pa.Table | None]], versions: pa.Table
) -> list[PlainPart]:
    """Return the parts without entries of missing versions, and with small parts merged if there are many.

    ``parts``  each with the versions that it describes, None for a new one
    """
    stale = [part for part, seen in parts if seen is not None and not pc.all(_among(seen, versions)).as_py()]
    small = [part for part, _ in parts if part.rows < PART_ROWS and part.bytes < PART_BYTES]
    chosen = stale + ([part for part in small if part not in stale] if len(parts) > MOST_PARTS else [])
    writer = _Writer(place, work)
    for part in chosen:
        seen = versions_of(place.metadata, part)
        current = _among(seen, versions)
        writer.add(aligned(entries_of(place.metadata, part), work.entries).filter(current), seen.filter(current))
    return [part for part, _ in parts if part not in chosen] + writer.finish()


class _Writer:
    """Writer of entries in parts of bounded size."""

    def __init__(self, place: Place, work: Work) -> None:
        self._place = place
        self._work = work
        self._held: list[tuple[pa.Table, pa.Table]] = []
        self._parts: list[PlainPart] = []

    def add(self, entries: pa.Table, versions: pa.Table) -> None:
        """Add entries, with the versions that they describe."""
        self._held.append((entries, versions))
        rows, size = (sum(getattr(held, what) for held, _ in self._held) for what in ("num_rows", "nbytes"))
        if rows >= PART_ROWS or size >= PART_BYTES:
            self._store()

    def finish(self) -> list[PlainPart]:
        """Store the rest and return all parts."""
        self._store()
        return self._parts

    def _store(self) -> None:
        entries = pa.concat_tables([held for held, _ in self._held]) if self._held else None
        if entries is not None and entries.num_rows:
            prefix, work, place = self._work.table.files.prefix, self._work, self._place
            seen = pa.concat_tables([versions for _, versions in self._held])
            identifier = identifier_of(work.url, prefix)
            self._parts.append(
                write(
                    place.metadata,
                    place.name,
                    identifier,
                    prefix,
                    work.entries,
                    entries.combine_chunks(),
                    seen,
                    work.definitions.encryption,
                )
            )
        self._held.clear()


def _among(versions: pa.Table, others: pa.Table) -> Any:
    """Return which of the versions are among the others, with the same key, time, size and ETag."""
    return pc.is_in(identity(versions), value_set=identity(others))


def _swap(place: Place, before: Kept, after: PlainIndex) -> None:
    try:
        swap(place.metadata, place.name, before, after)
    except PreconditionFailed as error:  # the new objects are unnamed; the next refresh deletes them
        raise Contended(f"another refresh of {place.name!r} came first: try again") from error


def _sweep(place: Place, after: PlainIndex) -> None:
    """Delete unnamed objects: earlier parts, and those left by crashes."""
    named = set(chain.from_iterable(part.keys for part in after.parts))
    where = root(place.name)
    others = [
        info.key for info in place.metadata.list(where) if info.key not in named and info.key != f"{where}index.json"
    ]
    place.metadata.delete(others)


def _delete_below(store: Store, prefix: str) -> int:
    keys = [info.key for info in store.list(prefix)]
    return store.delete(keys)


# Choice of indices for plain files, from a sample of them.


def chosen_for_files(place: Place, files: PlainFiles, definitions: SkippingState, seen: Seen = ()) -> SkippingState:
    """Return the definitions with those that the rule adds; an earlier choice for the same definitions is kept.

    Raises InputError if there are no files, SourceCorrupt for an unreadable file.
    """
    before = read(place.metadata, place.name).index
    if before is not None and not seen and before.definitions.encryption == definitions.encryption:
        chosen = before.definitions.indices[len(definitions.indices) :]
        if before.definitions.indices[: len(definitions.indices)] == definitions.indices and chosen:
            return before.definitions
    keys = keys_of(files.listed(place.files))
    table = table_of(place.files, files, keys)
    samples = [_first_rows(place.files, table, key) for key in sampled(keys)]
    inside = [name for name in table.schema.names if name not in table.partitions]
    schema = pa.schema([table.schema.field(name) for name in inside])
    return replace(definitions, indices=choose(profile(samples, schema), seen, definitions.indices, schema))


def _first_rows(store: Store, table: PlainTable, key: str) -> pa.Table:
    columns = [name for name in table.schema.names if name not in table.partitions]
    found, rows = [], 0
    try:
        for batch in table.batches(store, key, columns):
            found.append(batch)
            rows += batch.num_rows
            if rows >= SAMPLE_ROWS:
                break
    except (pa.ArrowException, OSError) as error:
        raise SourceCorrupt(f"{key} cannot be read as {table.files.format}: {error}") from error
    return pa.Table.from_batches(found, pa.schema([table.schema.field(name) for name in columns]))
