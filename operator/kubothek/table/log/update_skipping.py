"""Set the skipping indices of a table and describe files without an entry, in one commit that changes no row.

The files are described before the commit; concurrent commits describe their own files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from kubothek.errors import DatasetNotFound
from kubothek.storage import Store
from kubothek.table.log.dataset_log import DatasetLog
from kubothek.table.log.history.snapshot import Snapshot
from kubothek.table.log.history.versions import absent
from kubothek.table.log.model.changes import Change, Operation
from kubothek.table.log.model.head import Head
from kubothek.table.log.model.paths import parse_path, partition_path
from kubothek.table.log.settings import read_settings
from kubothek.table.log.transaction import Transaction
from kubothek.table.skipping.collect.collect_files import Described, ReportProgress, describe_files
from kubothek.table.skipping.collect.collectors import Describing, entry_schema, usable
from kubothek.table.skipping.entries import EntrySchema, definitions_tag
from kubothek.table.skipping.indexes import check
from kubothek.table.skipping.model import NONE, Part, SkippingChange, SkippingState, require_footer_key
from kubothek.table.skipping.names import definitions_tag_of
from kubothek.table.skipping.prune.entry_cache import opened
from kubothek.table.skipping.refresh import merged
from kubothek.table.skipping.sentinel import resume

MANY_PARTS: Final = 4
"""Parts beyond this number are merged; a few commits leave as many."""

Files = Sequence[tuple[str, Mapping[str, Any]]]
"""Keys of data files, each with the values of its partition columns."""
Builder = Callable[[Described, Store, Files, ReportProgress], tuple[Part, ...]]
"""Describes files, in this process or with Spark."""


@dataclass(frozen=True, slots=True)
class Reskipped:
    """The result.

    ``version``    of the commit; None if there was nothing to do
    ``described``  files that got an entry
    ``missing``    files without an entry afterwards: they cannot be described, or were committed meanwhile
    ``merged``     parts that were merged
    """

    version: int | None
    described: int = 0
    missing: int = 0
    merged: int = 0


def reskip(
    store: Store,
    log: DatasetLog,
    wanted: SkippingState | None = None,
    *,
    rebuild: bool = False,
    build: Builder = describe_files,
    by: str = "",
    report: ReportProgress = lambda done, total: None,
) -> Reskipped:
    """Give the table exactly the ``wanted`` skipping indices (None: its present ones), and each file its entry.

    ``wanted``   the definition; its parts are ignored. Without indices the metadata is removed
    ``rebuild``  describe all files again
    ``build``    describes files

    Raises SkippingInvalid for an index that the table's columns cannot have, DatasetNotFound, and what
    :meth:`DatasetLog.begin` and commits raise. Idempotent.
    """
    started = log.begin_new("skipping")
    snapshot = started.snapshot
    if not snapshot.exists:
        raise DatasetNotFound(f"there is no dataset {log.uuid!r} in {store.url}: nothing to describe")
    return _Reskipping(store, log, started, snapshot, by).run(wanted, build, report, rebuild=rebuild)


class _Reskipping:
    """One call of :func:`reskip`."""

    def __init__(self, store: Store, log: DatasetLog, started: Transaction, snapshot: Snapshot, by: str) -> None:
        self._store = store
        self._log = log
        self._started = started
        self._head = snapshot.head
        self._schema = pa.schema([]) if snapshot.schema is None else snapshot.schema
        self._by = by

    def run(self, wanted: SkippingState | None, build: Builder, report: ReportProgress, *, rebuild: bool) -> Reskipped:
        before = self._head.skipping
        definitions = replace(before if wanted is None else wanted, parts=(), without=0)
        require_footer_key(definitions)
        if wanted is not None and len(self._schema):
            check(definitions.indices, self._schema, self._head.partition_keys)
        entries = entry_schema(definitions, self._schema, self._head.partition_keys)
        present, described = ([], set[str]()) if rebuild else self._present(before, definitions, entries)
        missing = [key for key in self._head.files().values() if key not in described] if entries.definitions else []
        made: tuple[Part, ...] = ()
        if missing:
            made = build(self._described(definitions), self._store, self._with_partitions(missing), report)
        without = len(missing) - sum(part.rows for part in made)
        changed = definitions != replace(before, parts=(), without=0)
        obsolete = frozenset(key for part in before.parts if part not in present for key in part.keys)
        change = with_merged_parts(self._store, self._head, entries, definitions, present, made)
        if not (made or change.instead_of or changed or obsolete or without != before.without):
            return Reskipped(None, missing=without)
        change = replace(
            change, wanted=definitions if changed else None, instead_of=change.instead_of | obsolete, without=without
        )
        committed = self._started.commit(Change(operation=Operation.INDEX, skipping=change, by=self._by))
        resume_xskipper(self._store, self._log)
        merged_parts = sum(not change.instead_of.isdisjoint(part.keys) for part in present)
        return Reskipped(committed.version, len(missing) - without, without, merged_parts)

    def _present(
        self, before: SkippingState, definitions: SkippingState, entries: EntrySchema
    ) -> tuple[list[Part], set[str]]:
        """Return the readable parts of this definition, and the keys of the files that they describe."""
        tag = definitions_tag(entries, definitions.encryption)
        present, described = [], set[str]()
        for part in before.parts:
            if definitions_tag_of(part.keys[0]) != tag or not entries.definitions:
                continue
            if (keys := opened(self._store).keys(part)) is not None:
                present.append(part)
                described.update(keys.to_pylist())  # type: ignore[arg-type]  # keys are never null
        return present, described

    def _described(self, definitions: SkippingState) -> Described:
        head = self._head
        describing = replace(Describing.of(head.skipping, len(head.partitions)), definitions=definitions)
        return Described(head.uuid, head.table, self._schema, head.partition_keys, describing)

    def _with_partitions(self, keys: Sequence[str]) -> Files:
        return [(key, parse_path(partition_path(key), self._schema)) for key in keys]


def with_merged_parts(
    store: Store,
    head: Head,
    entries: EntrySchema,
    definitions: SkippingState,
    present: Sequence[Part],
    written: Sequence[Part],
) -> SkippingChange:
    """Return the change that adds parts to those of a head. Merge all if they are many or describe files that are gone.

    ``entries``  the schema of the present parts

    Memory: the entries of one part, and the keys of all.
    """
    parts = [*present, *written]
    rows = sum(part.rows for part in parts)
    if len(parts) <= MANY_PARTS and rows <= 2 * len(head.partitions) + MANY_PARTS:
        return SkippingChange(written=tuple(written))
    own = {key for part in written for key in _keys(store, part)}
    own.update(head.files().values())
    found = merged(
        store, head.uuid, head.table, entries, parts, holds=own.__contains__, encryption=definitions.encryption
    )
    return SkippingChange(written=found, instead_of=frozenset(key for part in present for key in part.keys))


def tidied_with(store: Store, snapshot: Snapshot, written: Sequence[Part]) -> SkippingChange:
    """Return the change as :func:`with_merged_parts` does, for a change of the rows that wrote these parts."""
    head = snapshot.head
    state = head.skipping
    if snapshot.schema is None or not state.indices:
        return SkippingChange(written=tuple(written))
    entries = entry_schema(state, snapshot.schema, head.partition_keys)
    tag = definitions_tag(entries, state.encryption)
    present = [part for part in state.parts if definitions_tag_of(part.keys[0]) == tag]
    return with_merged_parts(store, head, entries, state, present, written)


def _keys(store: Store, part: Part) -> list[str]:
    keys = opened(store).keys(part)
    return [] if keys is None else keys.to_pylist()  # type: ignore[return-value]  # keys are never null


def undescribed(store: Store, snapshot: Snapshot) -> int:
    """Return a lower bound of the files that lack an entry and may get one. One small request for each part.

    Entries of files that are gone may hide some.
    """
    head, schema = snapshot.head, snapshot.schema
    state = head.skipping
    if schema is None or not usable(state, schema, head.partition_keys):
        return 0
    missing = set(absent(store, "", [key for part in state.parts for key in part.keys]))
    described = sum(part.rows for part in state.parts if missing.isdisjoint(part.keys))
    return max(0, len(head.partitions) - state.without - described)


def resume_xskipper(store: Store, log: DatasetLog) -> None:
    """Delete files of other definitions so that Xskipper can continue; after a change, and in maintenance."""
    seen = log.settled()
    if seen is None or seen.head.tombstone:
        return
    head, schema = seen.head, log.journal.schemas.get(seen.head.schema_hash)
    state = head.skipping
    tag = None
    if state != NONE and schema is not None:
        tag = definitions_tag(entry_schema(state, schema, head.partition_keys), state.encryption)
    kept = {key for part in state.parts for key in part.keys}
    grace = read_settings(store).grace
    resume(store, head.uuid, tag, kept, now=log.journal.clock(), grace=grace)
