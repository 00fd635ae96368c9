"""Every error that Kubothek raises on purpose: ``except kubothek.errors.Conflict``.

All are a ``LakeError``. An ``InputError`` does not go away by itself: the data or the call has to change. A
``StoreError`` is about the object store. Each message says what failed, where, and what to do. ``reason`` is stable
API: it is the reason of a condition in the cluster, and scripts and alerts match it.
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
    """A conditional put lost: the object changed, or exists already. The caller reads again and decides."""


class BucketNotFound(StoreError):
    """The bucket (or the root directory of a file store) does not exist."""


class InvalidCredentials(StoreError):
    """The store does not know the access key, or the signature is wrong; or there are no credentials at all."""


class AccessDenied(StoreError):
    """The credentials are valid but may not do this."""


class StoreUnavailable(StoreError):
    """The endpoint does not answer, or answers 429/5xx, after all retries."""

    transient = True


class DiskUnavailable(StoreUnavailable):
    """The disk of a file store is full, or fails for now."""

    reason = "StoreUnavailable"


class WorkerUnavailable(LakeError):
    """No worker process could be started: the machine has no memory, or no process number, left."""

    transient = True


# --- what a user hands in --------------------------------------------------------------------------------------------


class InputError(LakeError):
    """The request or its data is wrong; nothing was changed. Retrying without a change is pointless."""

    reason = "InvalidInput"


class SourceNotFound(InputError):
    """A source names a file that does not exist."""


class SourceEmpty(InputError):
    """A source holds no rows, or no bytes at all."""


class SourceCorrupt(InputError):
    """A source file is damaged, cut off, or not of the format or compression that it is said to have."""


class SourceChanged(InputError):
    """A source file was replaced while it was being read; the next try reads the new one."""

    transient = True


class SourceUnavailable(InputError):
    """The server behind a source URL does not answer, not to the end, or answers 429 or 5xx.

    ``after``  seconds for which the server wants to be left alone, if it said so
    """

    transient = True
    after: float | None = None


class SourceRefused(InputError):
    """A source URL that policy forbids (scheme, host, address)."""


class SourceFailed(InputError):
    """A command or container of a source ended with an error; the message has the end of what it said."""


class DataTypeMismatch(InputError):
    """A value does not have the type of its column; names file, column and row."""


class SchemaMismatch(InputError):
    """The columns of the new data are not those of the table."""


class IndexInvalid(InputError):
    """A column that cannot have the index that is asked for; the message names it."""


class SkippingInvalid(InputError):
    """A skipping index that the columns which it names cannot have; the message says which and why."""


class PartitionInvalid(InputError):
    """A partition column is missing, null, or of a type that Kartothek cannot partition on."""


class LayoutInvalid(InputError):
    """The layout of a table names columns that it does not have, or values that make no sense."""


class RowsLost(LakeError):
    """Not all rows that were read were written. Never expected; the commit is given up."""

    transient = True


class RowsChanged(LakeError):
    """Files that were to hold the same rows as others do not. Never expected; nothing was committed."""


class FilterInvalid(InputError):
    """A filter that does not parse, is too large, or names a column or compares with a value that does not fit."""


class FilterMatchesAll(InputError):
    """A filter that selects the whole table without saying so; ``TRUE`` says so."""


class FilterNotMet(InputError):
    """Rows that are to replace others do not satisfy the filter that names what they replace."""


class RowLevelNeeded(InputError):
    """A filter that selects rows inside of files, in a change that adds and removes whole files only."""


class CubeInvalid(InputError):
    """A cube, or data for it, that breaks one of Kartothek Cube's rules; names dataset, column and rule."""


class QueryInvalid(InputError):
    """SQL that does not parse, or does more than one SELECT over registered datasets; what no cube query can ask."""


# --- ledgers ---------------------------------------------------------------------------------------------------------


class FormatInvalid(InputError):
    """Text or bytes that are not of the form that Open Data Fabric gives them: a hash, an id, a block, a manifest."""


class UnsupportedVersion(InputError):
    """A chain or a manifest of a newer version of Open Data Fabric. It may be sound; this version cannot read it."""


class EventInvalid(InputError):
    """A metadata event that may not follow the chain that it is to be appended to; names the rule."""


class MergeInvalid(InputError):
    """Records that a merge strategy cannot take: without its key columns, or one snapshot with a key twice."""


class TransformInvalid(InputError):
    """A transformation that cannot be kept up to date, or is none of its inputs alone; names the query and the part."""


class TransformChanged(InputError):
    """Another query, or other inputs, for a derivative dataset with data: somebody has to say what becomes of it."""


class RecordMissing(InputError):
    """A transformation takes back a record that its dataset does not have; nothing was committed."""


class InputMissing(InputError):
    """An input of a transformation, or something that its chain names, is not there or damaged; names it."""


class InputDiverged(InputError):
    """An input has another chain than the one that was consumed: it was compacted, moved back or replaced."""


class EngineFailed(LakeError):
    """A foreign engine did not listen, did not answer, or failed; another attempt may find it well."""

    transient = True


class EngineMisbehaved(LakeError):
    """What a foreign engine answered or left breaks the contract: nothing of it is committed."""


class TransformTooLarge(LakeError):
    """A transformation found no room: neither in the memory that it may use, nor on the disk."""


class MergeTooLarge(LakeError):
    """A merge found no room: neither in the memory that it may use, nor on the disk."""


class IngestStopped(LakeError):
    """A body takes more time or memory than one ingestion may. Unless the message says otherwise it was not committed:
    the same ``Idempotency-Key`` makes a retry safe.
    """


class ChainCorrupt(LakeError):
    """A chain, or an object that it names, is not what its hashes say, or breaks a rule; names the first such thing."""

    reason = "Corrupt"


class NotALedger(InputError):
    """What only a ledger has was asked of a dataset that is none."""


# --- the commit protocol ---------------------------------------------------------------------------------------------


class CommitError(LakeError):
    """A commit that the protocol refuses; the head is as it was."""


class Conflict(CommitError):
    """A concurrent commit changed what this one read or removes; names the partitions."""


class IdReused(CommitError):
    """The commit id was used before, for another change."""


class TooSlow(CommitError):
    """The oldest uncommitted object is older than half the grace period: a collector may already own it."""

    transient = True  # an executor was lost, a machine slept: the next attempt writes its files anew


class OwnedByAnother(CommitError):
    """Another resource (namespace, cluster) owns the uuid; this one may only read."""


class DatasetDeleted(CommitError):
    """The head is the tombstone of this incarnation of the dataset."""


class RestoreExpired(CommitError):
    """The dataset was deleted longer ago than the grace period: its data may be swept already."""


class IndexStale(CommitError):
    """The table has a secondary index that the change would leave out of date."""


class SkippingUnreadable(LakeError):
    """Skipping metadata that is damaged, gone, of a version that nobody reads, or encrypted with a key not at hand."""


class TooManyDeletes(CommitError):
    """A garbage collection would delete more objects than it was allowed to; it deleted none."""


class Contended(CommitError):
    """Other writers won every race for the head for so long that this one gave up; nothing was committed."""

    transient = True


class DatasetNotFound(LakeError):
    """There is no dataset of this name in the store."""


class DatasetExists(CommitError):
    """A dataset of this name is there already."""


class HeadMissing(CommitError):
    """The dataset has commit records but no head: never created anew, a person must decide."""


class HeadUnreadable(CommitError):
    """The head does not parse as Kartothek v4 metadata, also when read again."""


class NeedsConversion(CommitError):
    """Another library's dataset in a form that Kubothek reads but does not write; a person converts it, or not."""


class NotAdopted(CommitError):
    """Another library's dataset, which the asking Dataset resource was not told to adopt."""


class ForeignOverwrite(CommitError):
    """A foreign writer overwrote commits of ours that cannot be merged again; names the versions."""


class CubeBroken(CommitError):
    """Another program changed a dataset of a cube against the cube's rules; a person repairs or discards the change."""


class LedgerOnly(CommitError):
    """Rows of a ledger were to change in another way than by its sources."""


class Drift(CommitError):
    """Another program changed the table of a ledger: it is not the view of the chain any more."""


class Diverged(CommitError):
    """``refs/head`` of a ledger names a block that does not go on from the chain: somebody else wrote another one."""


class VersionNotFound(LakeError):
    """The version was never committed, or its history has expired."""


class VersionTagged(CommitError):
    """A version that has a tag was to expire; names the tags."""


class VersionIncomplete(LakeError):
    """Files that the version needs are gone (a foreign collector took them)."""


__all__ = sorted(name for name, each in vars().copy().items() if isinstance(each, type) and issubclass(each, LakeError))
