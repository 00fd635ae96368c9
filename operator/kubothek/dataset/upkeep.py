"""Maintenance operations of a dataset; only ``collect`` deletes data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from hashlib import sha256
from typing import TypeVar, get_args
from uuid import uuid4

from kubothek.dataset.handle import Handle, Where
from kubothek.errors import InputError
from kubothek.gc import MAX_DELETES, Collection, Mode, Retention, collect
from kubothek.odf import Level
from kubothek.table.clustering import Clustering
from kubothek.table.expressions import as_predicate
from kubothek.table.iceberg.state import IcebergExport
from kubothek.table.indexes import Dialect, IndexKind
from kubothek.table.log import Version
from kubothek.table.log.model.head import IcebergExports, IcebergSetting
from kubothek.table.log.update_indexes import Reindexed, reindex
from kubothek.table.log.update_skipping import Reskipped, reskip
from kubothek.table.maintenance import (
    Compaction,
    CompactionPlan,
    CompactionRequest,
    Healed,
    Health,
    compact,
    heal,
    health,
    plan_compaction,
)
from kubothek.table.name_lists import names_in
from kubothek.table.schema import require_distinct
from kubothek.table.skipping.model import IndexDefinition, SkippingState
from kubothek.verify import DatasetVerdict, verify_dataset

_Choice = TypeVar("_Choice", bound=StrEnum)


class Upkeep(Handle):
    """Methods for indices, skipping metadata, tags, health, verification, export, garbage collection and compaction."""

    @property
    def skipping(self) -> tuple[IndexDefinition, ...]:
        """The indices of the skipping metadata, by which queries open only files that may have a match."""
        return self.snapshot().head.skipping.indices

    def set_skipping(
        self, indices: Sequence[IndexDefinition] | IndexDefinition | SkippingState, *, rebuild: bool = False
    ) -> Reskipped:
        """Set exactly these skipping indices, ``[IndexDefinition("MinMax", ("delay",))]``, in one commit.

        MinMax, ValueList and BloomFilter are indices of Xskipper, which can read them. Entries of existing files come
        from their footers, and from their columns where footers do not suffice. ``rebuild`` also replaces existing
        entries. Raises SkippingInvalid for an index that a column cannot have, OwnedByAnother.
        """
        one = (indices,) if isinstance(indices, IndexDefinition) else indices
        wanted = one if isinstance(one, SkippingState) else SkippingState(tuple(one))
        return reskip(self._store, self._log("skipping"), wanted, rebuild=rebuild, by=self._author)

    @property
    def indices(self) -> dict[str, IndexKind]:
        """The secondary indices by column; one on a column without a type yet is made with its first values."""
        return self.snapshot().head.index_state.wanted()

    def set_indices(
        self,
        indices: Sequence[str] | str | Mapping[str, IndexKind | str],
        *,
        dialect: Dialect | str | None = None,
        rebuild: bool = False,
    ) -> Reindexed:
        """Set exactly these secondary indices, in one commit, and repair them: ``{**dataset.indices, "id": "Native"}``.

        ``indices``  columns, or kinds by column, Native (the default) or Kartothek
        ``dialect``  as for :meth:`Lake.create_dataset`; None = unchanged
        ``rebuild``  build all of them again from the data files

        The files are read before the commit, and only the indexed columns. Raises IndexInvalid for a column that cannot
        be indexed, InputError, OwnedByAnother.
        """
        wanted = index_kinds(indices)
        chosen = None if dialect is None else one_of(Dialect, "dialect", dialect)
        return reindex(self._store, self._log("indices"), wanted, dialect=chosen, rebuild=rebuild, by=self._author)

    def tags(self) -> dict[str, int]:
        """Return the tagged versions, by tag."""
        return self._log().tags()

    def tag(self, name: str, version: int | None = None) -> int:
        """Tag a version, by which it can be read; return its number. A tagged version never expires.

        ``name``     a letter, then letters, digits, ``-``, ``_`` or ``.``; it moves from another version that has it
        ``version``  None = the current one

        Raises VersionNotFound, VersionIncomplete, InputError for an invalid name, OwnedByAnother.
        """
        return self._log("tag").tag(name, version)

    def untag(self, name: str) -> None:
        """Remove a tag if it exists. Raises OwnedByAnother."""
        self._log("untag").untag(name)

    def health(self) -> Health:
        """Return statistics of the files and of what only the history needs, computed from commit records."""
        return health(self._store, self._log(), self.snapshot())

    def heal(self) -> Healed:
        """Rebuild missing or outdated objects that derive from the data; report lost data files.

        Lists the data files; runs concurrently with all readers and writers. Raises VersionIncomplete if the schema is
        lost, OwnedByAnother.
        """
        return heal(self._store, self._log(writing=True), by=self._author)

    def verify(self, version: Version | None = None, *, level: Level = Level.FULL) -> DatasetVerdict:
        """Verify that chain, files and indices are what was committed; report the first deviation.

        Reads all of the version; changes nothing. Raises VersionNotFound.
        """
        return verify_dataset(self._store, self._log(), version=version, level=level)

    def collect(
        self,
        *,
        keep_versions: int | None = None,
        keep_for: timedelta | None = None,
        enforce: bool = False,
        max_deletes: int = MAX_DELETES,
        grace: timedelta | None = None,
    ) -> Collection:
        """Delete objects that no version needs; without ``enforce``, only report them.

        ``keep_versions``  number of newest versions to keep, which can be read and rolled back to
        ``keep_for``       keep versions that were current within this time. With both arguments, a version stays if
                           either keeps it; with neither, all versions stay and only leftovers of crashes are deleted
        ``max_deletes``    if more objects were to be deleted, none is (TooManyDeletes)
        ``grace``          least age of deleted objects, if longer than the store's grace period

        Runs concurrently with all readers and writers, and can be repeated after any failure.
        """
        return collect(
            self._store,
            self._log(writing=True),
            [Retention(keep_versions, keep_for)],
            mode=Mode.ENFORCE if enforce else Mode.DRY_RUN,
            max_deletes=max_deletes,
            grace=grace,
        )

    def export_iceberg(self, *, omit_unsupported: bool = False, rebuild: bool = False) -> IcebergExport:
        """Write Iceberg metadata beside the data files, by which other engines read every version and tag.

        ``omit_unsupported``  leave out columns whose type Iceberg lacks; else they are an error
        ``rebuild``           write all of it again, not only what changed since the last export

        Commits nothing and changes no data file; it can be repeated after any failure. The change of another program is
        exported once it is adopted. Raises InputError without pyiceberg (``pip install 'kubothek[iceberg]'``),
        SchemaMismatch that names the columns, VersionIncomplete, DatasetNotFound.
        """
        try:
            from kubothek.table.iceberg.export import export
        except ModuleNotFoundError as error:
            raise InputError(
                f"cannot write Iceberg metadata: {error.name} is not installed; pip install 'kubothek[iceberg]'"
            ) from error
        return export(self._store, self._log(writing=True), omit_unsupported=omit_unsupported, rebuild=rebuild)

    def set_iceberg(self, exports: IcebergExports, *, version_hint: bool = True) -> int:
        """Set whether each commit also writes Iceberg metadata, whichever program commits; return the version after it.

        ``exports``       Off; Omit: leave out columns whose type Iceberg lacks; Refuse: do not export a table with such
                          a column
        ``version_hint``  also write ``version-hint.text``, by which engines find the table from files alone; one
                          request more for each commit, which engines that use a catalogue do not need

        An export that fails does not fail its commit: it lags until the next commit, or until :meth:`heal`. A program
        without pyiceberg leaves it to the next one that has it. Raises InputError, DatasetNotFound; OwnedByAnother for
        the dataset of a manifest, whose ``spec.export.iceberg`` decides.
        """
        if exports not in get_args(IcebergExports):
            raise InputError(f"exports is {exports!r}; use one of {', '.join(get_args(IcebergExports))}")
        setting = IcebergSetting() if exports == "Off" else IcebergSetting(exports, version_hint)
        return self._log(writing=True).set_iceberg(setting)

    def plan_compaction(
        self,
        *,
        where: Where | None = None,
        target_file_size: int | None = None,
        min_files: int = 2,
        min_small_share: float = 0.0,
        sort_by: Sequence[str] | str = (),
        z_order_by: Sequence[str] | str = (),
    ) -> CompactionPlan:
        """Return what :meth:`compact` would rewrite; reads metadata only."""
        request = _request(where, target_file_size, min_files, min_small_share, sort_by, z_order_by)
        return plan_compaction(self._store, self._log(), self.snapshot(), request)

    def compact(
        self,
        *,
        where: Where | None = None,
        target_file_size: int | None = None,
        min_files: int = 2,
        min_small_share: float = 0.0,
        sort_by: Sequence[str] | str = (),
        z_order_by: Sequence[str] | str = (),
        id: str | None = None,  # noqa: A002
    ) -> Compaction:
        """Rewrite small files of each partition as fewer, larger files, in one commit that changes no row.

        ``where``             condition on partition columns; None = all partitions
        ``target_file_size``  bytes of the new files; None = that of the table's layout. Files below half of it are
                              small; others are not touched
        ``min_files``         least number of small files that a partition, or each of its buckets, must have
        ``min_small_share``   least share of its files that must be small, 0 to 1
        ``sort_by``           sort the rows of each partition by these columns, across its files, so that a filter on
                              the first column opens few files. Then files that are not yet in this order are rewritten,
                              in place of small ones; most sorted files stay as they are
        ``z_order_by``        the same along a curve, for filters on any of up to 8 columns; not with ``sort_by``
        ``id``                as for :meth:`append`

        Partitions that other commits change meanwhile are skipped. Raises FilterInvalid, LayoutInvalid,
        VersionIncomplete if a file is gone, RowsChanged if the new files have other rows, OwnedByAnother.
        """
        request = _request(where, target_file_size, min_files, min_small_share, sort_by, z_order_by)
        definition = str(request).replace(
            "CompactionRequest", "Wish", 1
        )  # as in stored commits: a retry has its digest
        digest = sha256("\0".join(["kubothek python compact", definition]).encode()).hexdigest()
        return compact(
            self._store,
            self._log("compact"),
            request,
            commit_id=id or f"python:compact:{uuid4()}",
            digest=digest,
            by=self._author,
        )


def _request(
    where: Where | None,
    target: int | None,
    min_files: int,
    min_small_share: float,
    sort_by: Sequence[str] | str,
    z_order_by: Sequence[str] | str,
) -> CompactionRequest:
    if sort_by and z_order_by:
        raise InputError("a compaction has one order: leave out sort_by or z_order_by")
    columns = names_in("sort_by", sort_by) or names_in("z_order_by", z_order_by)
    return CompactionRequest(
        where=None if where is None else as_predicate(where),
        target_bytes=target,
        min_files=min_files,
        min_small_share=min_small_share,
        clustering=Clustering(columns, curve=bool(z_order_by)) if columns else None,
    )


def index_kinds(indices: Sequence[str] | str | Mapping[str, IndexKind | str]) -> dict[str, IndexKind]:
    """Return the kind of index by column. Raises InputError for another kind."""
    if isinstance(indices, Mapping):
        return {column: one_of(IndexKind, f"index on {column!r}", kind) for column, kind in indices.items()}
    indices = names_in("indices", indices)
    require_distinct(indices)
    return dict.fromkeys(indices, IndexKind.NATIVE)


def one_of(choices: type[_Choice], what: str, value: str) -> _Choice:
    """Return the member of this value. Raises InputError, which names ``what`` and the members."""
    try:
        return choices(value)
    except ValueError:
        raise InputError(f"{what}: {value!r} is none of {', '.join(choices)}") from None
