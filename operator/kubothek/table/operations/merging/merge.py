"""Merge: the rows of a source are merged into a table by key, as one change.

The result of a merge depends on the rows of the table that have a key of the source, and on there being no others. So a
concurrent commit is a conflict if it changed a file that the merge replaces, or added or removed one with such a row.
Files without such rows, and compactions, are none: the change is made again for the newer table, mostly of the same
files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import pyarrow as pa

from kubothek.errors import Conflict, VersionIncomplete
from kubothek.storage import Store
from kubothek.table.indexes import IndexChange
from kubothek.table.layout import Layout
from kubothek.table.log import Change, Everything, Operation, Snapshot
from kubothek.table.log.model.record import Record
from kubothek.table.operations.copying import Copying
from kubothek.table.operations.filters import require_table
from kubothek.table.operations.merging.files import MergedFiles, merge_files
from kubothek.table.operations.merging.model import Merge
from kubothek.table.operations.merging.rows import Rules
from kubothek.table.operations.merging.search import KeyRange, find_matches
from kubothek.table.operations.merging.source import MergeSource, fit_source
from kubothek.table.operations.rows import Rows, pieces_of
from kubothek.table.operations.written import Gathering
from kubothek.table.scan.plan import PlannedFile
from kubothek.table.scan.statistics import footers, worth_a_dictionary
from kubothek.table.scratch import Scratch
from kubothek.table.skipping.model import SkippingChange


@dataclass(frozen=True, slots=True)
class _Made:
    """The change that was made last, and the snapshot that it was made for."""

    snapshot: Snapshot
    change: Change


class SourceRows(Protocol):
    """The rows of a source, which were read and have distinct keys, in this process or in tasks of a cluster."""

    @property
    def schema(self) -> pa.Schema:
        """Their schema."""

    @property
    def key_range(self) -> KeyRange:
        """What their keys have in common."""

    def merge(
        self, copying: Copying, rules: Rules, files: Sequence[PlannedFile], others: Sequence[PlannedFile]
    ) -> MergedFiles:
        """Merge them into the files, of which ``others`` have no row with one of the keys.

        Raises what :func:`merge_files` raises.
        """

    def matches_any(self, files: Sequence[PlannedFile], schema: pa.Schema) -> bool:
        """Return whether a row of these files has one of the keys; ``schema`` is the table's."""


@dataclass(frozen=True, slots=True)
class LocalSource:
    """A source that this process merges."""

    store: Store
    rows: MergeSource

    @property
    def schema(self) -> pa.Schema:
        """See :class:`SourceRows`."""
        return self.rows.schema

    @property
    def key_range(self) -> KeyRange:
        """See :class:`SourceRows`."""
        return KeyRange.of(self.rows)

    def merge(
        self, copying: Copying, rules: Rules, files: Sequence[PlannedFile], others: Sequence[PlannedFile]
    ) -> MergedFiles:
        """See :class:`SourceRows`."""
        matches = find_matches(self.store, files, copying.schema, self.rows, others)
        return merge_files(copying, self.store, rules, self.rows, matches, all_files=rules.changes_others)

    def matches_any(self, files: Sequence[PlannedFile], schema: pa.Schema) -> bool:
        """See :class:`SourceRows`."""
        return find_matches(self.store, files, schema, self.rows).any


class Merger:
    """One merge, from the source's rows to a change for a snapshot, and for later ones. Use it from one thread.

    ``since``        the records of the commits since a snapshot of this transaction, newest first
    ``on_conflict``  whether a real conflict is an error, or the merge is made again for the newer table
    """

    def __init__(
        self,
        store: Store,
        merge: Merge,
        *,
        evolve: bool = False,
        since: Callable[[Snapshot, Snapshot], Iterable[Record]],
        on_conflict: Literal["Fail", "Retry"] = "Fail",
        by: str = "",
    ) -> None:
        self._store = store
        self._merge = merge
        self._evolve = evolve
        self._since = since
        self._fails = on_conflict == "Fail"
        self._by = by
        self._made: _Made | None = None

    def read(self, snapshot: Snapshot, data: Rows, scratch: Scratch) -> None:
        """Read the source into the working space, before the first change; nothing is written to the table.

        Raises InputError, FilterInvalid, SchemaMismatch, DataTypeMismatch, PartitionInvalid, DuplicateKeys,
        SourceEmpty, MergeTooLarge.
        """
        given, pieces = pieces_of(data)

        def held(schema: pa.Schema) -> LocalSource:
            return LocalSource(self._store, MergeSource.read(pieces, given, schema, self._merge.key, scratch))

        self.read_with(snapshot, given, held)

    def read_with(self, snapshot: Snapshot, given: pa.Schema, read: Callable[[pa.Schema], SourceRows]) -> None:
        """Check clauses and columns for a source of the schema ``given``, then read it.

        ``read``  gets the schema in which the rows are merged

        Raises what :meth:`read` raises, and what ``read`` does.
        """
        require_table(snapshot)
        self._fitted = fit_source(self._merge, snapshot, given, evolve=self._evolve)
        self._rules = Rules.of(self._merge, self._fitted.schema, self._fitted.source, snapshot.head.partition_keys)
        self._source = read(self._fitted.source)
        self._range = self._source.key_range

    def change(self, snapshot: Snapshot) -> Change:
        """Return the change for this snapshot; files that an earlier one wrote are used again if they still fit.

        Raises Conflict, and what :func:`~kubothek.table.operations.merging.files.merge_files` raises.
        """
        last = self._made
        if last is not None:
            conflict, is_same = self._compare(last, snapshot)
            if conflict and self._fails:
                raise Conflict(
                    f"dataset {snapshot.head.uuid!r} changed while this Merge ran: {conflict}. Nothing was committed; "
                    "run it again on the present table"
                )
            if is_same and not conflict:
                self._made = _Made(snapshot, last.change)
                return last.change
        change = self._change(snapshot)
        self._made = _Made(snapshot, change)
        return change

    def _change(self, snapshot: Snapshot) -> Change:
        if snapshot.schema != self._fitted.table:
            self._fit_again(snapshot)
        schema = self._fitted.schema
        copying = Copying.of(self._store, replace(snapshot, schema=schema))
        files = self._range.files(self._store, snapshot)
        layout = self._layout(copying.layout, files)
        copying = replace(copying, layout=layout, gathering=Gathering.of(snapshot, schema))
        others: list[PlannedFile] = []
        if self._merge.depends_on_other_rows:
            known = {file.label for file in files}
            some = ((label, key) for label, key in snapshot.head.files().items() if label not in known)
            others = [PlannedFile(label, key, all_rows=False) for label, key in some]
        return self._described(snapshot, self._source.merge(copying, self._rules, files, others))

    def _layout(self, layout: Layout, files: Sequence[PlannedFile]) -> Layout:
        """Return the layout of new files: dictionaries for the columns that the table's files have them for.

        Columns without a dictionary there, which would be tried in vain, take half as long to encode.
        """
        stored = [field for field in self._fitted.schema if field.name not in layout.partition_on]
        if layout.dictionary_columns is not None or any(pa.types.is_nested(field.type) for field in stored):
            return layout
        (footer,) = footers(self._store, [files[0].key]) if files else (None,)
        worth = None if footer is None else worth_a_dictionary(footer)
        if footer is None or worth is None:
            return layout
        known = {footer.schema.column(number).path for number in range(footer.num_columns)}
        chosen = (field.name for field in stored if field.name in worth or field.name not in known)
        return replace(layout, dictionary_columns=tuple(chosen))

    def _fit_again(self, snapshot: Snapshot) -> None:
        """Fit the source to columns that another commit changed; new ones stay as they are, as in an append."""
        fitted = fit_source(self._merge, snapshot, self._source.schema, evolve=True)
        if fitted.source != self._source.schema:
            raise Conflict(
                f"the columns of dataset {snapshot.head.uuid!r} changed while this Merge ran. Nothing was committed; "
                "run it again on the present table"
            )
        self._rules = Rules.of(self._merge, fitted.schema, fitted.source, snapshot.head.partition_keys)
        self._fitted = replace(fitted, zones=self._fitted.zones)

    def _described(self, snapshot: Snapshot, done: MergedFiles) -> Change:
        return Change(
            operation=Operation.MERGE,
            added=tuple(done.added),
            removed=tuple(done.removed),
            reads=Everything() if self._merge.depends_on_other_rows else self._range.reads(snapshot),
            schema=self._fitted.schema if done.added or self._evolve else None,
            evolves=self._evolve,
            partition_keys=snapshot.head.partition_keys if done.added else None,
            zones=self._fitted.zones if done.added else {},
            index=IndexChange(collected=done.gathered.index),
            skipping=SkippingChange(written=done.gathered.skipping),
            by=self._by,
        )

    def _compare(self, last: _Made, snapshot: Snapshot) -> tuple[str, bool]:
        """Return what conflicts with the last change, and whether its files still fit."""
        before = last.snapshot
        try:
            records = [*self._since(before, snapshot)][::-1]
            conflict = self._conflict(last, records, snapshot)
        except VersionIncomplete as error:
            conflict = str(error)
        removed = {label: before.head.file(label) for label in last.change.removed}
        is_same = before.schema == snapshot.schema and all(snapshot.head.holds(*each) for each in removed.items())
        return conflict, is_same

    def _conflict(self, last: _Made, records: Iterable[Record], snapshot: Snapshot) -> str:
        """Return which commit changed rows that the merge depends on, if any did; ``records`` in their order.

        A compaction moves rows to other files, which then count as those that the merge replaces.
        """
        replaced = {last.snapshot.head.file(label) for label in last.change.removed}
        changed: dict[str, PlannedFile] = {}
        for record in records:
            delta = record.delta
            gone = {key for _, key in delta.removed}
            if record.operation is Operation.COMPACT:
                if gone & replaced:
                    replaced |= {file.key for file in delta.added}
                continue
            if (delta.added or gone) and self._merge.depends_on_other_rows:
                return f"version {record.version} ({record.operation}) changed rows"
            if gone & replaced:
                return f"version {record.version} ({record.operation}) changed rows that the source has as well"
            labels = {key: label for label, key in delta.removed} | {file.key: file.label for file in delta.added}
            changed |= {key: PlannedFile(label, key, all_rows=False) for key, label in labels.items()}
        if changed and self._source.matches_any([*changed.values()], self._fitted.schema):
            return "rows were added or removed that have keys of the source"
        return ""
