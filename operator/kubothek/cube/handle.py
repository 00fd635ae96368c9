"""A cube as an object: its verbs. Each is one commit of the cube, all of it or nothing
(``kartothek.io.eager_cube``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Self, Unpack

from kubothek.cube import copying, removing, validation, verbs
from kubothek.cube.inspection import CubeInfo, MemberStats, info, stats
from kubothek.cube.log import ClaimOf, CubeAlreadyApplied, CubeCommitted, CubeLog, CubeState, CubeTransaction
from kubothek.cube.query import Asked, Conditions, CubeQuery, query
from kubothek.cube.state import CubeSnapshot
from kubothek.cube.verbs import Columns, Metadata
from kubothek.cube.writing import Data
from kubothek.errors import CubeInvalid, DatasetNotFound, InputError
from kubothek.gc import MAX_DELETES, Mode, Retention, collect
from kubothek.gc import Collection as Cleaned
from kubothek.storage import Store
from kubothek.table.expressions import Filter, as_predicate
from kubothek.table.indexes import IndexChange, IndexKind, check_indexable
from kubothek.table.layout import Layout
from kubothek.table.log import Change, Operation
from kubothek.table.log.multi.head import CubeRecord
from kubothek.table.log.multi.members import Member
from kubothek.table.log.multi.spec import CubeSpec
from kubothek.table.name_lists import names_in
from kubothek.table.skipping.model import SkippingState

Done = CubeCommitted | CubeAlreadyApplied


class Cube:
    """One cube. Every call sees its present version, unless ``as_of`` asks for another.

    ``spec``  of a cube that is to be built; None = of the one that is there
    """

    def __init__(self, store: Store, log: CubeLog, spec: CubeSpec | None = None) -> None:
        self.prefix = log.prefix
        self.log = log
        self._store = store
        self._new = spec

    @classmethod
    def open(cls, store: Store, prefix: str, *, claim_of: ClaimOf = lambda _: None, by: str = "") -> Self:
        """A cube that is there."""
        return cls(store, CubeLog(store, prefix, claim_of=claim_of, by=by))

    @classmethod
    def create(cls, store: Store, spec: CubeSpec, *, claim_of: ClaimOf = lambda _: None, by: str = "") -> Self:
        """A cube that is to be built."""
        return cls(store, CubeLog(store, spec.uuid_prefix, claim_of=claim_of, by=by), spec)

    def __repr__(self) -> str:
        return f"Cube({self.prefix!r} in {self._store.url!r})"

    # --- reading ---

    def snapshot(self, as_of: int | datetime | None = None) -> CubeSnapshot:
        """One version's spec and members. Raises DatasetNotFound, VersionNotFound, VersionIncomplete, CubeInvalid."""
        return self.log.snapshot(as_of)

    @property
    def spec(self) -> CubeSpec:
        """What the cube is; of one that was not built yet, what it is to be."""
        try:
            return self.snapshot().spec
        except DatasetNotFound:
            if self._new is None:
                raise
            return self._new

    def history(self) -> Iterator[CubeRecord]:
        """The versions, newest first; none of a cube that Kubothek never wrote."""
        return self.log.history()

    def inspect(self) -> CubeState:
        """How the cube is; raises only for the store's own failures."""
        return self.log.inspect()

    def info(self, as_of: int | datetime | None = None) -> CubeInfo:
        """What the cube and its datasets are made of."""
        return info(self.snapshot(as_of))

    def stats(self, datasets: Collection[str] | str | None = None) -> dict[str, MemberStats]:
        """Rows, files, bytes and partitions by dataset; ``datasets``: names or globs, None = all."""
        snapshot = self.snapshot()
        return stats(self._store, snapshot, _matching(datasets, snapshot.members))

    def query(
        self,
        conditions: Conditions = None,
        *,
        as_of: int | datetime | None = None,
        **asked: Unpack[Asked],
    ) -> CubeQuery:
        """The seed's cells with what the other datasets say of them; see :func:`kubothek.cube.query.query`."""
        return query(self._store, self.snapshot(as_of), conditions, **asked)

    # --- writing ---

    def build(
        self,
        data: Mapping[str, Data] | Data,
        *,
        partition_on: Columns | None = None,
        metadata: Metadata | None = None,
        layouts: Mapping[str, Layout] | None = None,
        skipping: Mapping[str, SkippingState] | None = None,
        overwrite: bool = False,
        id: str | None = None,  # noqa: A002
        digest: str | None = None,
    ) -> Done:
        """Make the cube of these datasets in one commit; rows without a name are the seed's.

        ``data``          by dataset: rows, as :meth:`Dataset.append` takes them, or a function that writes files
        ``partition_on``  columns by dataset; by default those of the cube, which the seed always has
        ``metadata``      of the user, by dataset
        ``layouts``       how files are made, by dataset
        ``skipping``      what files are described by, by dataset; not where that is not possible, or there is a wish
        ``overwrite``     datasets that are there are written over, all of them; their old versions stay
        ``id``            names this commit for ever: running it again under its id does nothing

        Raises CubeInvalid, which names dataset, column and rule, DatasetExists, and what writing rows raises.
        """
        given = self._named(data)
        partition_on = _columns_by_dataset(partition_on)
        says = (sorted(given), overwrite, sorted((partition_on or {}).items()))
        started = self._begin("build", id, digest, says)
        if isinstance(started, CubeAlreadyApplied):
            return started
        spec = self._new or (started.spec if started.exists else None)
        if spec is None:
            raise DatasetNotFound(
                f"there is no cube {self.prefix!r} in {self._store.url}; create it: lake.create_cube()"
            )

        def require(_: CubeSpec | None, there: Collection[str]) -> None:
            validation.check_build(spec, given, there, overwrite=overwrite)

        begins = verbs.Begins(partition_on, metadata, layouts, skipping)
        return verbs.write_anew(started, "Build", spec, given, begins, require)

    def extend(
        self,
        data: Mapping[str, Data],
        *,
        partition_on: Columns | None = None,
        metadata: Metadata | None = None,
        layouts: Mapping[str, Layout] | None = None,
        skipping: Mapping[str, SkippingState] | None = None,
        overwrite: bool = False,
        id: str | None = None,  # noqa: A002
        digest: str | None = None,
    ) -> Done:
        """Add datasets to the cube in one commit; arguments and errors as of :meth:`build`."""
        given = self._named(data)
        partition_on = _columns_by_dataset(partition_on)
        says = (sorted(given), overwrite, sorted((partition_on or {}).items()))
        started = self._begin("extend", id, digest, says)
        if isinstance(started, CubeAlreadyApplied):
            return started
        spec = verbs.spec_of(started)

        def require(_: CubeSpec | None, there: Collection[str]) -> None:
            validation.check_extend(spec, given, there, overwrite=overwrite)

        begins = verbs.Begins(partition_on, metadata, layouts, skipping)
        return verbs.write_anew(started, "Extend", spec, given, begins, require)

    def append(
        self,
        data: Mapping[str, Data] | Data,
        *,
        metadata: Metadata | None = None,
        evolve: Collection[str] | str = (),
        id: str | None = None,  # noqa: A002
        digest: str | None = None,
    ) -> Done:
        """Add rows to datasets of the cube in one commit; a cell that is written again shows its newest row.

        ``evolve``  datasets that may get new columns and wider types, as :meth:`Dataset.append`

        Other arguments and errors as of :meth:`build`.
        """
        given = self._named(data)
        started = self._begin("append", id, digest, (sorted(given),))
        if isinstance(started, CubeAlreadyApplied):
            return started
        return verbs.write_more(
            started, "Append", given, metadata=metadata, evolve=names_in("evolve", evolve), removals={}
        )

    def update(
        self,
        data: Mapping[str, Data] | Data,
        *,
        remove: Filter,
        datasets: Collection[str] | str | None = None,
        metadata: Metadata | None = None,
        evolve: Collection[str] | str = (),
        id: str | None = None,  # noqa: A002
        digest: str | None = None,
    ) -> Done:
        """Put rows in the place of the partitions that match, in one commit.

        ``remove``    on partition columns of the cube: what goes; see :meth:`remove_partitions`
        ``datasets``  those that lose partitions; None = those that rows are given for

        ``evolve``    as of :meth:`append`

        Other arguments and errors as of :meth:`build`.
        """
        given, where = self._named(data), as_predicate(remove)
        losing = set(given) if datasets is None else set(names_in("datasets", datasets))
        started = self._begin("update", id, digest, (sorted(given), where, sorted(losing)))
        if isinstance(started, CubeAlreadyApplied):
            return started
        spec, members = verbs.spec_of(started), started.members()
        removing.check_condition(spec, where)
        validation.check_known(spec, losing, members)
        going = {name: members[name] for name in losing}
        removals = removing.by_member(self._store, going, where, by=self.log.by)
        return verbs.write_more(
            started, "Update", given, metadata=metadata, evolve=names_in("evolve", evolve), removals=removals
        )

    def remove_partitions(
        self,
        where: Filter,
        *,
        datasets: Collection[str] | str | None = None,
        id: str | None = None,  # noqa: A002
        digest: str | None = None,
    ) -> Done:
        """Take away the partitions that match, in one commit.

        ``where``     on partition columns of the cube. Each dataset goes by those that it is partitioned on; one that
                      is partitioned on none of them is emptied
        ``datasets``  None = all

        Raises CubeInvalid for other columns and unknown datasets, FilterInvalid, Conflict.
        """
        bound = as_predicate(where)
        datasets = None if datasets is None else names_in("datasets", datasets)
        started = self._begin("remove", id, digest, (bound, None if datasets is None else sorted(datasets)))
        if isinstance(started, CubeAlreadyApplied):
            return started
        spec, members = verbs.spec_of(started), started.members()
        names = set(members) if datasets is None else set(datasets)
        removing.check_condition(spec, bound)
        validation.check_known(spec, names, members)
        started.require_claims(names)
        chosen = {name: member for name, member in members.items() if name in names}
        changes = removing.by_member(self._store, chosen, bound, by=self.log.by)
        return started.commit("RemovePartitions", changes)

    def index(
        self,
        dataset: str,
        columns: Collection[str] | str,
        *,
        id: str | None = None,  # noqa: A002
        digest: str | None = None,
    ) -> Done:
        """Give columns of a dataset a kartothek index, in one commit; ``columns``: names or globs.

        Raises DatasetNotFound, CubeInvalid for columns that are not there, IndexInvalid.
        """
        columns = names_in("columns", columns)
        started = self._begin("index", id, digest, (dataset, sorted(columns)))
        if isinstance(started, CubeAlreadyApplied):
            return started
        member = self._member(started, dataset)
        names = [name for name in member.schema.names if name not in member.partition_on]
        wanted = dict.fromkeys(_matching(columns, names), IndexKind.KARTOTHEK)
        check_indexable(member.schema, member.partition_on, wanted.items())
        started.require_claims([dataset])
        return started.commit(
            "Index", {dataset: Change(operation=Operation.INDEX, index=IndexChange(wanted=wanted), by=self.log.by)}
        )

    def delete(
        self,
        datasets: Collection[str] | str | None = None,
        *,
        id: str | None = None,  # noqa: A002
        digest: str | None = None,
    ) -> Done:
        """Delete datasets of the cube, None = all, in one commit; each can be restored for the grace period.

        Raises CubeInvalid for unknown datasets, and for the seed of others that stay.
        """
        datasets = None if datasets is None else names_in("datasets", datasets)
        started = self._begin("delete", id, digest, (None if datasets is None else sorted(datasets),))
        if isinstance(started, CubeAlreadyApplied):
            return started
        spec, members = verbs.spec_of(started), started.members()
        names = list(members) if datasets is None else _matching(datasets, members)
        validation.check_delete(spec, names, members)
        started.require_claims(names)
        return started.commit("Delete", {}, dropped=names)

    def copy(
        self,
        target: Store,
        *,
        prefix: str | None = None,
        datasets: Collection[str] | str | None = None,
        overwrite: bool = False,
        as_of: int | datetime | None = None,
        claim_of: ClaimOf = lambda _: None,
        id: str | None = None,  # noqa: A002
    ) -> Done:
        """Copy a version of the cube to another store, or to another prefix, in one commit there.

        ``datasets``   names, or new names by name; None = all. Without the seed, they extend the cube that is there
        ``overwrite``  datasets that are there are written over
        ``claim_of``   who writes the copies

        Raises CubeInvalid, DatasetExists, DatasetNotFound, VersionNotFound; InputError for a copy onto itself.
        """
        snapshot = self.snapshot(as_of)
        names = copying.names_of(snapshot, datasets)
        spec = copying.spec_of(snapshot.spec, prefix, names)
        if target.url == self._store.url and spec.uuid_prefix == self.prefix:
            raise InputError(f"cube {self.prefix!r} cannot be copied onto itself: name another store or another prefix")
        log = CubeLog(target, spec.uuid_prefix, claim_of=claim_of, unowned_only=self.log.unowned_only, by=self.log.by)
        digest = sha256("\0".join(["kubothek cube copy", str(sorted(names.items())), str(overwrite)]).encode())
        started = log.begin(id, digest.hexdigest())
        if isinstance(started, CubeAlreadyApplied):
            return started
        return verbs.write_copies(self._store, snapshot, names, started, spec, overwrite=overwrite)

    def cleanup(self, *, dry_run: bool = True, max_deletes: int = MAX_DELETES) -> dict[str, Cleaned]:
        """Delete what no version of any dataset of the cube needs, what crashes left; with ``dry_run``, say what.

        Unlike kartothek's, it keeps what history needs and what may be on its way. Raises TooManyDeletes.
        """
        if not dry_run:
            self.log.settle()
        mode = Mode.DRY_RUN if dry_run else Mode.ENFORCE
        return {
            name: collect(
                self._store, self.log.member(name), [Retention()], mode=mode, max_deletes=max_deletes, by=self.log.by
            )
            for name in self.snapshot().members
        }

    def settle(self) -> None:
        """Finish or undo what a crash left, and adopt what other programs did, once it was checked."""
        self.log.settle()

    def discard_foreign(self) -> CubeSnapshot:
        """Take back what other programs did to the cube; see :meth:`CubeLog.discard_foreign`."""
        return self.log.discard_foreign()

    # --- helpers ---

    def _named(self, data: Mapping[str, Data] | Data) -> dict[str, Data]:
        return dict(data) if isinstance(data, Mapping) else {self.spec.seed_dataset: data}

    def _begin(
        self, verb: str, commit_id: str | None, digest: str | None, says: Sequence[object]
    ) -> CubeTransaction | CubeAlreadyApplied:
        told = digest or sha256("\0".join([f"kubothek cube {verb}", *map(str, says)]).encode()).hexdigest()
        return self.log.begin(commit_id, told)

    def _member(self, started: CubeTransaction, name: str) -> Member:
        validation.check_known(verbs.spec_of(started), [name], members := started.members())
        return members[name]


def _columns_by_dataset(given: Columns | None) -> Columns | None:
    return given and {name: names_in(f"partition_on of {name!r}", columns) for name, columns in given.items()}


def _matching(wanted: Collection[str] | str | None, names: Collection[str]) -> list[str]:
    """Those of the names that one of the globs means; all for None. Raises CubeInvalid for one that means none."""
    if wanted is None:
        return list(names)
    globs = names_in("names", wanted)
    if vain := [glob for glob in globs if not any(fnmatchcase(name, glob) for name in names)]:
        raise CubeInvalid(f"{vain[0]!r} is not there; there are {', '.join(map(repr, names)) or 'none'}")
    return [name for name in names if any(fnmatchcase(name, glob) for glob in globs)]
