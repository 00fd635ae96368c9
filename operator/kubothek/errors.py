"""Every exception that Kubothek raises on purpose, as in ``except kubothek.errors.Conflict``.

All derive from ``LakeError``. An ``InputError`` persists until the data or the call changes. A ``StoreError`` concerns
the object store. Each message says what failed, where, and what to do. ``reason`` is stable API: it is the reason of a
condition in the cluster, and scripts and alerts match it.
"""

from __future__ import annotations

from typing import ClassVar


class LakeError(Exception):
    """Base of every error that the data plane raises on purpose.

    ``reason`` is the reason of the resulting condition: the name of the class, unless a class sets its own.
    ``transient`` is whether the same call can succeed later without a change by a user.
    """

    reason: ClassVar[str] = "LakeError"
    transient: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        if "reason" not in vars(cls):
            cls.reason = cls.__name__


# --- the object store ------------------------------------------------------------------------------------------------


class StoreError(LakeError):
    """The object store refused or failed a request."""


class ObjectNotFound(StoreError):
    """A key that must exist does not."""

    def __init__(self, key: str, where: str = "") -> None:
        super().__init__(f"no object {key!r}{f' in {where}' if where else ''}")
        self.key = key


class InvalidKey(StoreError):
    """The text cannot be an object key in this store."""


class PreconditionFailed(StoreError):
    """A conditional put failed: the object changed or exists already. The caller reads it again and decides."""


class BucketNotFound(StoreError):
    """The bucket (or the root directory of a file store) does not exist."""


class InvalidCredentials(StoreError):
    """The store rejects the access key or the signature, or there are no credentials."""


class AccessDenied(StoreError):
    """The credentials are valid but do not allow this request."""


class StoreUnavailable(StoreError):
    """The endpoint does not answer, or answers 429/5xx, after all retries."""

    transient = True


class DiskUnavailable(StoreUnavailable):
    """The disk of a file store is full, or fails temporarily."""

    reason = "StoreUnavailable"


class WorkerUnavailable(LakeError):
    """No worker process could be started: the machine has run out of memory or of process ids."""

    transient = True


# --- input of users --------------------------------------------------------------------------------------------------


class InputError(LakeError):
    """The request or its data is invalid; nothing was changed. A retry without a change fails again."""

    reason = "InvalidInput"


class SourceNotFound(InputError):
    """A source names a file that does not exist."""


class SourceEmpty(InputError):
    """A source has no rows, or no bytes at all."""


class DuplicateKeys(InputError):
    """Several rows of a merge's source have the same key, so it is undefined which of them the table would get."""


class SourceCorrupt(InputError):
    """A source file is damaged, truncated, or not of its stated format or compression."""


class SourceChanged(InputError):
    """A source file was replaced while it was read; the next attempt reads the new file."""

    transient = True


class SourceUnavailable(InputError):
    """The server behind a source URL does not answer, breaks off, or answers 429 or 5xx.

    ``after``  seconds to wait before the next request, if the server sent ``Retry-After``
    """

    transient = True
    after: float | None = None


class SourceRefused(InputError):
    """Policy forbids the source URL (scheme, host or address)."""


class SourceFailed(InputError):
    """The command or container of a source failed; the message has the end of its output."""


class DataTypeMismatch(InputError):
    """A value does not have the type of its column; the message names file, column and row."""


class SchemaMismatch(InputError):
    """The columns of the new data do not match those of the table."""


class IndexInvalid(InputError):
    """A column cannot have the requested index; the message names the column."""


class SkippingInvalid(InputError):
    """The named columns cannot have this skipping index; the message names the column and the cause."""


class PartitionInvalid(InputError):
    """A partition column is missing, null, or of a type that Kartothek cannot partition on."""


class LayoutInvalid(InputError):
    """The layout of a table names columns that the table lacks, or values out of range."""


class RowsLost(LakeError):
    """The numbers of rows that were read and written differ. A defect; the commit is abandoned."""

    transient = True


class RowsChanged(LakeError):
    """Rewritten files do not hold the same rows as the files that they replace. A defect; nothing was committed."""


class FilterInvalid(InputError):
    """A filter does not parse, is too large, names an unknown column, or has a literal that does not fit its column."""


class FilterMatchesAll(InputError):
    """A filter selects the whole table without being ``TRUE``; use ``TRUE`` to select all rows."""


class FilterNotMet(InputError):
    """Replacement rows do not satisfy the filter that selects the rows they replace."""


class RowLevelNeeded(InputError):
    """A filter selects single rows of a file, but the operation adds and removes only whole files."""


class CubeInvalid(InputError):
    """A cube, or data for it, breaks a rule of Kartothek Cube; the message names dataset, column and rule."""


class QueryInvalid(InputError):
    """SQL does not parse, or is not one SELECT over registered datasets; or a cube query cannot express it."""


# --- ledgers ---------------------------------------------------------------------------------------------------------


class FormatInvalid(InputError):
    """Text or bytes do not have the form that Open Data Fabric specifies: of a hash, an id, a block or a manifest."""


class UnsupportedVersion(InputError):
    """A chain or manifest has a newer version of Open Data Fabric than this release can read; it may be valid."""


class EventInvalid(InputError):
    """A metadata event may not be appended to this chain; the message names the rule."""


class MergeInvalid(InputError):
    """A merge strategy cannot use the records: key columns are missing, or one snapshot has a key twice."""


class TransformInvalid(InputError):
    """A transformation cannot be updated incrementally, or depends on more than its inputs; names the query."""


class TransformChanged(InputError):
    """A derivative dataset with data got another query or other inputs; a user must decide what happens to its data."""


class RecordMissing(InputError):
    """A transformation retracts a record that its dataset does not have; nothing was committed."""


class InputMissing(InputError):
    """An input of a transformation, or an object that its chain names, is missing or damaged; the message names it."""


class InputDiverged(InputError):
    """The chain of an input is no longer the consumed one: the input was compacted, reset or replaced."""


class EngineFailed(LakeError):
    """A foreign engine did not accept the connection, did not answer, or failed; another attempt may succeed."""

    transient = True


class EngineMisbehaved(LakeError):
    """The answer or the output of a foreign engine breaks the contract; nothing of it is committed."""


class TransformTooLarge(LakeError):
    """A transformation needs more memory and disk space than it may use."""


class MergeTooLarge(LakeError):
    """A merge needs more memory and disk space than it may use."""


class IngestStopped(LakeError):
    """An ingestion exceeds its limit of time or memory.

    It was not committed unless the message says otherwise: a retry with the same ``Idempotency-Key`` is safe.
    """


class ChainCorrupt(LakeError):
    """A chain, or an object that it names, breaks a rule or does not match its hash; names the first fault."""

    reason = "Corrupt"


class NotALedger(InputError):
    """The operation needs a ledger, and the dataset is not one."""


# --- the commit protocol ---------------------------------------------------------------------------------------------


class CommitError(LakeError):
    """The protocol refuses a commit; the head is unchanged."""


class Conflict(CommitError):
    """A concurrent commit changed what this one read or removes; the message names the partitions."""


class IdReused(CommitError):
    """The commit id was used before for another change."""


class TooSlow(CommitError):
    """The oldest uncommitted object is older than half the grace period: garbage collection may already delete it."""

    transient = True  # an executor was lost, a machine slept: the next attempt writes its files again


class OwnedByAnother(CommitError):
    """Another resource (namespace, cluster) owns the uuid; this resource may only read it."""


class DatasetDeleted(CommitError):
    """The head is the tombstone of this incarnation of the dataset."""


class RestoreExpired(CommitError):
    """The dataset was deleted longer ago than the grace period: garbage collection may have deleted its data."""


class IndexStale(CommitError):
    """The table has a secondary index that the change would make stale."""


class SkippingUnreadable(LakeError):
    """Skipping metadata is damaged, missing, of an unsupported version, or encrypted with an unavailable key."""


class TooManyDeletes(CommitError):
    """A garbage collection would delete more objects than its limit allows; it deleted none."""


class Contended(CommitError):
    """Other writers won every compare-and-swap of the head until this one gave up; nothing was committed."""

    transient = True


class DatasetNotFound(LakeError):
    """The store has no dataset of this name."""


class DatasetExists(CommitError):
    """A dataset of this name exists already."""


class HeadMissing(CommitError):
    """The dataset has commit records but no head. Kubothek never creates a new one; a user must decide."""


class HeadUnreadable(CommitError):
    """The head does not parse as Kartothek v4 metadata, even when read a second time."""


class NeedsConversion(CommitError):
    """Kubothek reads but does not write this form of another library's dataset; a user decides on its conversion."""


class NotAdopted(CommitError):
    """Another library's dataset, which the Dataset resource does not declare for adoption."""


class ForeignOverwrite(CommitError):
    """A foreign writer overwrote Kubothek commits that cannot be merged again; the message names the versions."""


class CubeBroken(CommitError):
    """Another program changed a dataset of a cube against the cube's rules; a user repairs or discards the change."""


class LedgerOnly(CommitError):
    """Rows of a ledger can be changed only through its sources."""


class Drift(CommitError):
    """Another program changed the table of a ledger: the table no longer matches the chain."""


class Diverged(CommitError):
    """``refs/head`` of a ledger names a block that does not continue the chain: another program wrote it."""


class VersionNotFound(LakeError):
    """The version was never committed, or its history has expired."""


class VersionTagged(CommitError):
    """A version with a tag cannot expire; the message names the tags."""


class VersionIncomplete(LakeError):
    """Files that the version needs are missing (a foreign garbage collector deleted them)."""


__all__ = sorted(name for name, each in vars().copy().items() if isinstance(each, type) and issubclass(each, LakeError))
