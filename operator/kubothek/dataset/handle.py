"""Base of a dataset's methods: its log, its snapshots, and idempotent commits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import sha256
from typing import Literal, Protocol, TypeAlias, get_args

import pyarrow as pa

from kubothek.errors import DatasetNotFound, InputError
from kubothek.storage import Store
from kubothek.table import operations
from kubothek.table.expressions import Filter
from kubothek.table.log import AlreadyApplied, Change, Committed, DatasetLog, Snapshot, Transaction, Version
from kubothek.table.log.granted import Author
from kubothek.table.log.model import keys
from kubothek.table.log.model.writers import OPERATION_OF_VERB
from kubothek.table.log.multi.members import is_member
from kubothek.table.log.prepare.draft import require_rows_open
from kubothek.table.operations import Rows

Where: TypeAlias = Filter
"""A filter: SQL text (``month = 3 AND carrier IN ('AA', 'UA')``), kartothek's lists of tuples, or a predicate."""
CommitResult: TypeAlias = Committed | AlreadyApplied
OnConflict: TypeAlias = Literal["Fail", "Retry"]
Maker: TypeAlias = Callable[[Snapshot], Change]


def require_on_conflict(value: str) -> None:
    """Raise InputError unless it is a value of :data:`OnConflict`."""
    if value not in get_args(OnConflict):
        raise InputError(f"on_conflict is {value!r}; use one of {', '.join(get_args(OnConflict))}")


class Home(Protocol):
    """The lake of a dataset."""

    @property
    def store(self) -> Store:
        """The store of the lake."""

    @property
    def writer(self) -> str | None:
        """The name under which its datasets are written; None if it has none."""

    @property
    def author(self) -> str:
        """The author of its commits, in commit records."""

    @property
    def _conditional_writes(self) -> bool: ...


class Handle:
    """One dataset, by its name."""

    def __init__(self, lake: Home, name: str, table: str | None = None, *, raw: bool = False) -> None:
        self.name = keys.check_uuid(name)
        self._table = table
        self._raw = raw
        self._lake = lake
        self._store = lake.store

    def __repr__(self) -> str:
        name = self.name if self._table is None else f"{self.name}/{self._table}"
        return f"Dataset({name!r} in {self._store.url!r})"

    @property
    def _author(self) -> str:
        return self._lake.author

    def snapshot(self, as_of: Version | None = None) -> Snapshot:
        """Return one version's head, schema and totals. Raises DatasetNotFound, VersionNotFound, VersionIncomplete."""
        return self._log().snapshot(as_of, table=self._table, raw=self._raw)

    def _commit(
        self,
        verb: str,
        commit_id: str | None,
        says: Sequence[object],
        start: Callable[[Transaction], Maker],
        on_conflict: OnConflict = "Fail",
    ) -> CommitResult:
        """Commit one change, once per id; ``says`` distinguishes it from other changes with the same id.

        ``verb``  decides which operation a writer needs for the dataset of a manifest (``OPERATION_OF_VERB``)
        """
        require_on_conflict(on_conflict)
        digest = sha256("\0".join([f"kubothek python {verb}", *map(str, says)]).encode()).hexdigest()
        log = self._log(verb)
        if commit_id is None:
            started: Transaction | AlreadyApplied = log.begin_new(f"python:{verb}", digest, adopts=False)
        else:
            started = log.begin(commit_id, digest, adopts=False)
        if isinstance(started, AlreadyApplied):
            return started
        if not started.snapshot.exists:
            raise DatasetNotFound(f"there is no dataset {self.name!r} in {self._store.url}; create it first")
        with started as now:
            decide = start(now)

            def make(snapshot: Snapshot) -> Change:
                return now.note_added(decide(snapshot))

            again = make if on_conflict == "Retry" else None
            return now.commit(make(now.snapshot), on_conflict=again, on_compaction=make)

    def _written(
        self,
        now: Transaction,
        data: Rows,
        table: pa.Schema | None,
        check: operations.Check = lambda schema: None,
        *,
        evolve: bool = False,
    ) -> operations.Written:
        require_rows_open(now.snapshot.head)
        written = operations.write_rows(self._store, now.snapshot, data, table=table, evolve=evolve, check=check)
        now.note_written(*written.keys)
        return written

    def _require_no_member(self, what: str, instead: str) -> None:
        """Raise InputError for a dataset of a cube, whose rules bind its datasets together. Raises DatasetNotFound."""
        if self._log().record_in_cube() is not None or is_member(self.snapshot().head):
            raise InputError(f"dataset {self.name!r} belongs to a cube and cannot be {what} alone; {instead}")

    def _log(self, verb: str | None = None, *, writing: bool = False) -> DatasetLog:
        """Return the log for reads, or for the writes of one method.

        ``verb``     the method, if an owner can permit it to writers (``OPERATION_OF_VERB``)
        ``writing``  for a method of owners only
        """
        if verb is None and not writing:
            return self._kept_log
        if self._lake._conditional_writes:
            log = self._kept_log
        else:
            log = DatasetLog(self._store, self.name, unowned_only=True, conditional_writes=False)
        operation = None if verb is None else OPERATION_OF_VERB.get(verb)
        return log.writing_as(Author(None if operation is None else self._lake.writer, operation))

    @cached_property
    def _kept_log(self) -> DatasetLog:
        """The log of all calls, which caches the head and only revalidates it."""
        return DatasetLog(self._store, self.name, unowned_only=True)
