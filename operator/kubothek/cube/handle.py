"""A cube as an object. Each of its changes is one atomic commit of the cube (``kartothek.io.eager_cube``)."""

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

CubeCommitResult = CubeCommitted | CubeAlreadyApplied


class Cube:
    """One cube. Every call reads the current version, unless ``as_of`` names another.

    ``spec``  specification of a cube to build; None = that of the existing cube
    """

    def __init__(self, store: Store, log: CubeLog, spec: CubeSpec | None = None) -> None:
        self.prefix = log.prefix
        self.log = log
        self._store = store
        self._new = spec

    @classmethod
    def open(cls, store: Store, prefix: str, *, claim_of: ClaimOf = lambda _: None, by: str = "") -> Self:
        """Return an existing cube."""
        return cls(store, CubeLog(store, prefix, claim_of=claim_of, by=by))

    @classmethod
    def create(cls, store: Store, spec: CubeSpec, *, claim_of: ClaimOf = lambda _: None, by: str = "") -> Self:
        """Return a cube that :meth:`build` will create."""
        return cls(store, CubeLog(store, spec.uuid_prefix, claim_of=claim_of, by=by), spec)

    def __repr__(self) -> str:
        return f"Cube({self.prefix!r} in {self._store.url!r})"

    # --- reading ---

    def snapshot(self, as_of: int | datetime | None = None) -> CubeSnapshot:
        """Return one version. Raises DatasetNotFound, VersionNotFound, VersionIncomplete, CubeInvalid."""
        return self.log.snapshot(as_of)

    @property
    def spec(self) -> CubeSpec:
        """The specification of the cube, also before it is built."""
        try:
            return self.snapshot().spec
        except DatasetNotFound:
            if self._new is None:
                raise
            return self._new

    def history(self) -> Iterator[CubeRecord]:
        """Return the versions, newest first; none if Kubothek never wrote the cube."""
        return self.log.history()

    def inspect(self) -> CubeState:
        """Return the observed state of the cube; an error is its ``problem``."""
        return self.log.inspect()

    def info(self, as_of: int | datetime | None = None) -> CubeInfo:
        """Return specification, columns, indices and metadata of the cube and its datasets."""
        return info(self.snapshot(as_of))

    def stats(self, datasets: Collection[str] | str | None = None) -> dict[str, MemberStats]:
        """Return rows, files, bytes and partitions by dataset; ``datasets``: names or globs, None = all."""
        snapshot = self.snapshot()
        return stats(self._store, snapshot, _matching(datasets, snapshot.members))

    def query(
        self,
        conditions: Conditions = None,
        *,
        as_of: int | datetime | None = None,
        **asked: Unpack[Asked],
    ) -> CubeQuery:
        """Return the seed's cells joined with the other datasets; see :func:`kubothek.cube.query.query`."""
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
    ) -> CubeCommitResult:
        """Build the cube from these datasets in one commit; rows without a dataset name are the seed's.

        ``data``          by dataset: rows, as :meth:`Dataset.append` takes them, or a function that writes files
        ``partition_on``  columns by dataset; default: those of the cube, which the seed always has
        ``metadata``      user metadata, by dataset
        ``layouts``       layout of files, by dataset
        ``skipping``      skipping metadata, by dataset; ignored where it is impossible or the dataset has its own
        ``overwrite``     replace existing datasets, which must be all of them; their old versions stay
        ``id``            permanent id of this commit: a repetition with the same id does nothing

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
    ) -> CubeCommitResult:
        """Add datasets to the cube in one commit. Arguments and errors are those of :meth:`build`."""
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
    ) -> CubeCommitResult:
        """Add rows to datasets of the cube in one commit; the newest row of a cell counts.

        ``evolve``  datasets that may get new columns and wider types, as with :meth:`Dataset.append`

        Other arguments and errors are those of :meth:`build`.
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
    ) -> CubeCommitResult:
        """Replace the partitions that match by new rows, in one commit.

        ``remove``    condition on partition columns of the cube for what is removed; see :meth:`remove_partitions`
        ``datasets``  datasets that lose partitions; None = those in ``data``
        ``evolve``    as for :meth:`append`

        Other arguments and errors are those of :meth:`build`.
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
    ) -> CubeCommitResult:
        """Remove the partitions that match, in one commit.

        ``where``     condition on partition columns of the cube. For each dataset, only terms on its own partition
                      columns apply; a dataset with none of them is emptied
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
    ) -> CubeCommitResult:
        """Build kartothek indices on columns of a dataset, in one commit; ``columns``: names or globs.

        Raises DatasetNotFound, CubeInvalid for missing columns, IndexInvalid.
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
    ) -> CubeCommitResult:
        """Delete datasets of the cube, None = all, in one commit; each can be restored during the grace period.

        Raises CubeInvalid for unknown datasets, and for the seed if other datasets stay.
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
    ) -> CubeCommitResult:
        """Copy a version of the cube to another store, or to another prefix, in one commit there.

        ``datasets``   names, or new names by name; None = all. Without the seed, they extend the existing cube
        ``overwrite``  replace existing datasets
        ``claim_of``   the claims under which copies are written

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
        """Delete objects that no version of the cube's datasets needs, such as leftovers of crashes.

        With ``dry_run``, only report them. Unlike kartothek's cleanup, it keeps what the history and running commits
        need. Raises TooManyDeletes.
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
        """Finish or undo an interrupted commit, and adopt changes of other programs after checks."""
        self.log.settle()

    def discard_foreign(self) -> CubeSnapshot:
        """Revert changes of other programs; see :meth:`CubeLog.discard_foreign`."""
        return self.log.discard_foreign()

    # --- helpers ---

    def _named(self, data: Mapping[str, Data] | Data) -> dict[str, Data]:
        return dict(data) if isinstance(data, Mapping) else {self.spec.seed_dataset: data}

    def _begin(
        self, verb: str, commit_id: str | None, digest: str | None, says: Sequence[object]
    ) -> CubeTransaction | CubeAlreadyApplied:
        content_digest = digest or sha256("\0".join([f"kubothek cube {verb}", *map(str, says)]).encode()).hexdigest()
        return self.log.begin(commit_id, content_digest)

    def _member(self, started: CubeTransaction, name: str) -> Member:
        validation.check_known(verbs.spec_of(started), [name], members := started.members())
        return members[name]


def _columns_by_dataset(given: Columns | None) -> Columns | None:
    return given and {name: names_in(f"partition_on of {name!r}", columns) for name, columns in given.items()}


def _matching(wanted: Collection[str] | str | None, names: Collection[str]) -> list[str]:
    """Return the names that match a glob; all for None. Raises CubeInvalid for a glob without a match."""
    if wanted is None:
        return list(names)
    globs = names_in("names", wanted)
    if vain := [glob for glob in globs if not any(fnmatchcase(name, glob) for name in names)]:
        raise CubeInvalid(f"{vain[0]!r} is not there; there are {', '.join(map(repr, names)) or 'none'}")
    return [name for name in names if any(fnmatchcase(name, glob) for glob in globs)]
