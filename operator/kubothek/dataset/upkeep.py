"""What keeps a dataset in shape and changes no row of it, but for what nobody wants to keep."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256
from uuid import uuid4

from kubothek.dataset.handle import BY, Handle, Where
from kubothek.errors import InputError
from kubothek.gc import MAX_DELETES, Collection, Mode, Retention, collect
from kubothek.odf import Level
from kubothek.table.clustering import Clustering
from kubothek.table.expressions import as_predicate
from kubothek.table.log import Version
from kubothek.table.log.update_skipping import Reskipped, reskip
from kubothek.table.maintenance import (
    Compaction,
    CompactionPlan,
    Healed,
    Health,
    Wish,
    compact,
    heal,
    health,
    plan_compaction,
)
from kubothek.table.name_lists import names_in
from kubothek.table.skipping.model import IndexDefinition, SkippingState
from kubothek.verify import DatasetVerdict, verify_dataset


class Upkeep(Handle):
    """Skipping metadata, tags, health, verification, collection and compaction."""

    @property
    def skipping(self) -> tuple[IndexDefinition, ...]:
        """What the files are described by, so that queries open only those that may hold a match."""
        return self.snapshot().head.skipping.indices

    def set_skipping(
        self, indices: Sequence[IndexDefinition] | IndexDefinition | SkippingState, *, rebuild: bool = False
    ) -> Reskipped:
        """Describe the files by these indices, ``[IndexDefinition("MinMax", ("delay",))]``, and no others.

        One commit. MinMax, ValueList and BloomFilter are Xskipper's, which reads them too. Files that are there are
        looked at: their footers, and columns of which these do not tell. ``rebuild``: also those that have been
        described.
        Raises SkippingInvalid for an index that a column cannot have, OwnedByAnother.
        """
        one = (indices,) if isinstance(indices, IndexDefinition) else indices
        wanted = one if isinstance(one, SkippingState) else SkippingState(tuple(one))
        return reskip(self._store, self._log(writing=True), wanted, rebuild=rebuild, by=BY)

    def tags(self) -> dict[str, int]:
        """The versions that have a name, by name."""
        return self._log().tags()

    def tag(self, name: str, version: int | None = None) -> int:
        """Give a version a name, by which it can be read: it stays whole and readable, whatever else expires.

        ``name``     a letter, then letters, digits, ``-``, ``_`` or ``.``; another version that has it loses it
        ``version``  None = the present one

        Returns the version's number. Raises VersionNotFound, VersionIncomplete, InputError for a name, OwnedByAnother.
        """
        return self._log(writing=True).tag(name, version)

    def untag(self, name: str) -> None:
        """Take a tag away, if it is there. Raises OwnedByAnother."""
        self._log(writing=True).untag(name)

    def health(self) -> Health:
        """How the files are, and what only history holds; worked out from commit records."""
        return health(self._store, self._log(), self.snapshot())

    def heal(self) -> Healed:
        """Make anew what is derived from the data and is missing or lags; say which data files are lost.

        Lists the data files; works beside all readers and writers. Raises VersionIncomplete if the schema is lost,
        OwnedByAnother.
        """
        return heal(self._store, self._log(writing=True), by=BY)

    def verify(self, version: Version | None = None, *, level: Level = Level.FULL) -> DatasetVerdict:
        """Whether chain, files and indices are what was committed, and the first thing that is not.

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
        """Delete what no version needs any more; without ``enforce``, say what that would be.

        ``keep_versions``  so many of the newest versions stay, and can be read and rolled back to
        ``keep_for``       versions that were current within this time stay. With both, what either keeps; with neither,
                           every version: only what crashes left behind goes
        ``max_deletes``    with more objects than these to delete, none is (TooManyDeletes)
        ``grace``          how old everything must be that goes, if longer than the store's own period

        Works beside all readers and writers, and may be run again after any failure.
        """
        return collect(
            self._store,
            self._log(writing=True),
            [Retention(keep_versions, keep_for)],
            mode=Mode.ENFORCE if enforce else Mode.DRY_RUN,
            max_deletes=max_deletes,
            grace=grace,
        )

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
        """What :meth:`compact` would rewrite; reads metadata only."""
        wish = _wish(where, target_file_size, min_files, min_small_share, sort_by, z_order_by)
        return plan_compaction(self._store, self._log(), self.snapshot(), wish)

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
        """Write small files of each partition once more, as fewer larger ones, in one commit that changes no row.

        ``where``             on partition columns: which partitions; None = all
        ``target_file_size``  bytes of the new files; None = that of the table's layout. Files below half of it are
                              small; others are not touched
        ``min_files``         small files that a partition, or each bucket of it, must have
        ``min_small_share``   of its files, the share that must be small, 0 to 1
        ``sort_by``           put the rows of each partition in order by these columns, across its files, so that a
                              filter on the first one opens few of them. All files count that are not in this order
                              yet, in place of small ones; those that are stay as they are, mostly
        ``z_order_by``        the same along a curve, for filters on any of up to 8 columns; not with ``sort_by``
        ``id``                as for :meth:`append`

        Partitions that other commits change meanwhile are left as they are then. Raises FilterInvalid, LayoutInvalid,
        VersionIncomplete if a file is gone, RowsChanged if the new files were not the same rows, OwnedByAnother.
        """
        wish = _wish(where, target_file_size, min_files, min_small_share, sort_by, z_order_by)
        digest = sha256("\0".join(["kubothek python compact", str(wish)]).encode()).hexdigest()
        return compact(
            self._store,
            self._log(writing=True),
            wish,
            commit_id=id or f"python:compact:{uuid4()}",
            digest=digest,
            by=BY,
        )


def _wish(
    where: Where | None,
    target: int | None,
    min_files: int,
    min_small_share: float,
    sort_by: Sequence[str] | str,
    z_order_by: Sequence[str] | str,
) -> Wish:
    if sort_by and z_order_by:
        raise InputError("a compaction has one order: leave out sort_by or z_order_by")
    columns = names_in("sort_by", sort_by) or names_in("z_order_by", z_order_by)
    return Wish(
        where=None if where is None else as_predicate(where),
        target_bytes=target,
        min_files=min_files,
        min_small_share=min_small_share,
        clustering=Clustering(columns, curve=bool(z_order_by)) if columns else None,
    )
