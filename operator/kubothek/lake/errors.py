"""What can go wrong in the data plane, each with the reason that a person meets in a condition or an exit message.

Every error says what is wrong, where, and what to do. ``reason`` is stable API: scripts and alerts match it.
"""

from __future__ import annotations

from typing import ClassVar


class LakeError(Exception):
    """Base of every error that the data plane raises on purpose.

    ``reason`` is the CamelCase reason of the resulting condition; ``transient`` tells whether the same call can
    succeed later with nothing changed by a person.
    """

    reason: ClassVar[str] = "LakeError"
    transient: ClassVar[bool] = False


# --- the object store ------------------------------------------------------------------------------------------------


class StoreError(LakeError):
    """The object store refused or failed a request."""

    reason = "StoreError"


class ObjectNotFound(StoreError):
    """A key that must exist does not."""

    reason = "ObjectNotFound"

    def __init__(self, key: str, where: str = "") -> None:
        super().__init__(f"no object {key!r}{f' in {where}' if where else ''}")
        self.key = key


class InvalidKey(StoreError):
    """The text cannot be an object key in this store."""

    reason = "InvalidKey"


class PreconditionFailed(StoreError):
    """A conditional put lost: the object changed, or exists already. The caller reads again and decides."""

    reason = "PreconditionFailed"


class BucketNotFound(StoreError):
    """The bucket (or the root directory of a file store) does not exist."""

    reason = "BucketNotFound"


class InvalidCredentials(StoreError):
    """The store does not know the access key, or the signature is wrong; or there are no credentials at all."""

    reason = "InvalidCredentials"


class AccessDenied(StoreError):
    """The credentials are valid but may not do this."""

    reason = "AccessDenied"


class StoreUnavailable(StoreError):
    """The endpoint does not answer, or answers 429/5xx, after all retries."""

    reason = "StoreUnavailable"
    transient = True


class DiskUnavailable(StoreUnavailable):
    """The disk of a file store is full, or fails for now."""


class WorkerUnavailable(LakeError):
    """No worker process could be started: the machine has no memory, or no process number, left."""

    reason = "WorkerUnavailable"
    transient = True


# --- what a user hands in --------------------------------------------------------------------------------------------


class InputError(LakeError):
    """The request or its data is wrong; nothing was changed. Retrying without a change is pointless."""

    reason = "InvalidInput"


class SourceNotFound(InputError):
    """A source names a file that does not exist."""

    reason = "SourceNotFound"


class SourceEmpty(InputError):
    """A source holds no rows, or no bytes at all."""

    reason = "SourceEmpty"


class SourceCorrupt(InputError):
    """A source file is damaged, cut off, or not of the format or compression that it is said to have."""

    reason = "SourceCorrupt"


class SourceChanged(InputError):
    """A source file was replaced while it was being read; the next try reads the new one."""

    reason = "SourceChanged"
    transient = True


class SourceUnavailable(InputError):
    """The server behind a source URL does not answer, not to the end, or answers 429 or 5xx.

    ``after``  seconds for which the server wants to be left alone, if it said so
    """

    reason = "SourceUnavailable"
    transient = True
    after: float | None = None


class SourceRefused(InputError):
    """A source URL that policy forbids (scheme, host, address)."""

    reason = "SourceRefused"


class SourceFailed(InputError):
    """A command or container of a source ended with an error; the message has the end of what it said."""

    reason = "SourceFailed"


class DataTypeMismatch(InputError):
    """A value does not have the type of its column; names file, column and row."""

    reason = "DataTypeMismatch"


class SchemaMismatch(InputError):
    """The columns of the new data are not those of the table."""

    reason = "SchemaMismatch"


class IndexInvalid(InputError):
    """A column that cannot have the index that is asked for; the message names it."""

    reason = "IndexInvalid"


class SkippingInvalid(InputError):
    """A skipping index that the columns which it names cannot have; the message says which and why."""

    reason = "SkippingInvalid"


class PartitionInvalid(InputError):
    """A partition column is missing, null, or of a type that Kartothek cannot partition on."""

    reason = "PartitionInvalid"


class LayoutInvalid(InputError):
    """The layout of a table names columns that it does not have, or values that make no sense."""

    reason = "LayoutInvalid"


class RowsLost(LakeError):
    """Not all rows that were read were written. Never expected; the commit is given up."""

    reason = "RowsLost"
    transient = True


class RowsChanged(LakeError):
    """Files that were to hold the same rows as others do not. Never expected; nothing was committed."""

    reason = "RowsChanged"


class FilterInvalid(InputError):
    """A filter that does not parse, is too large, or names a column or compares with a value that does not fit."""

    reason = "FilterInvalid"


class FilterMatchesAll(InputError):
    """A filter that selects the whole table without saying so; ``TRUE`` says so."""

    reason = "FilterMatchesAll"


class FilterNotMet(InputError):
    """Rows that are to replace others do not satisfy the filter that names what they replace."""

    reason = "FilterNotMet"


class RowLevelNeeded(InputError):
    """A filter that selects rows inside of files, in a change that adds and removes whole files only."""

    reason = "RowLevelNeeded"


class CubeInvalid(InputError):
    """A cube, or data for it, that breaks one of Kartothek Cube's rules; names dataset, column and rule."""

    reason = "CubeInvalid"


class QueryInvalid(InputError):
    """SQL that does not parse, or does more than one SELECT over registered datasets; what no cube query can ask."""

    reason = "QueryInvalid"


# --- ledgers ---------------------------------------------------------------------------------------------------------


class FormatInvalid(InputError):
    """Text or bytes that are not of the form that Open Data Fabric gives them: a hash, an id, a block, a manifest."""

    reason = "FormatInvalid"


class UnsupportedVersion(InputError):
    """A chain or a manifest of a newer version of Open Data Fabric. It may be sound; this version cannot read it."""

    reason = "UnsupportedVersion"


class EventInvalid(InputError):
    """A metadata event that may not follow the chain that it is to be appended to; names the rule."""

    reason = "EventInvalid"


class MergeInvalid(InputError):
    """Records that a merge strategy cannot take: without its key columns, or one snapshot with a key twice."""

    reason = "MergeInvalid"


class TransformInvalid(InputError):
    """A transformation that cannot be kept up to date, or is none of its inputs alone; names the query and the part."""

    reason = "TransformInvalid"


class TransformChanged(InputError):
    """Another query, or other inputs, for a derivative dataset with data: somebody has to say what becomes of it."""

    reason = "TransformChanged"


class RecordMissing(InputError):
    """A transformation takes back a record that its dataset does not have; nothing was committed."""

    reason = "RecordMissing"


class InputMissing(InputError):
    """An input of a transformation, or something that its chain names, is not there or damaged; names it."""

    reason = "InputMissing"


class InputDiverged(InputError):
    """An input has another chain than the one that was consumed: it was compacted, moved back or replaced."""

    reason = "InputDiverged"


class EngineFailed(LakeError):
    """A foreign engine did not listen, did not answer, or failed; another attempt may find it well."""

    reason = "EngineFailed"
    transient = True


class EngineMisbehaved(LakeError):
    """What a foreign engine answered or left breaks the contract: nothing of it is committed."""

    reason = "EngineMisbehaved"


class TransformTooLarge(LakeError):
    """A transformation found no room: neither in the memory that it may use, nor on the disk."""

    reason = "TransformTooLarge"


class MergeTooLarge(LakeError):
    """A merge found no room: neither in the memory that it may use, nor on the disk."""

    reason = "MergeTooLarge"


class IngestStopped(LakeError):
    """A body takes more time or memory than one ingestion may. Unless the message says otherwise it was not committed:
    the same ``Idempotency-Key`` makes a retry safe.
    """

    reason = "IngestStopped"


class ChainCorrupt(LakeError):
    """A chain, or an object that it names, is not what its hashes say, or breaks a rule; names the first such thing."""

    reason = "Corrupt"


class NotALedger(InputError):
    """What only a ledger has was asked of a dataset that is none."""

    reason = "NotALedger"


# --- the commit protocol ---------------------------------------------------------------------------------------------


class CommitError(LakeError):
    """A commit that the protocol refuses; the head is as it was."""

    reason = "CommitError"


class Conflict(CommitError):
    """A concurrent commit changed what this one read or removes; names the partitions."""

    reason = "Conflict"


class IdReused(CommitError):
    """The commit id was used before, for another change."""

    reason = "IdReused"


class TooSlow(CommitError):
    """The oldest uncommitted object is older than half the grace period: a collector may already own it."""

    reason = "TooSlow"
    transient = True  # an executor was lost, a machine slept: the next attempt writes its files anew


class OwnedByAnother(CommitError):
    """Another resource (namespace, cluster) owns the uuid; this one may only read."""

    reason = "OwnedByAnother"


class DatasetDeleted(CommitError):
    """The head is the tombstone of this incarnation of the dataset."""

    reason = "DatasetDeleted"


class RestoreExpired(CommitError):
    """The dataset was deleted longer ago than the grace period: its data may be swept already."""

    reason = "RestoreExpired"


class IndexStale(CommitError):
    """The table has a secondary index that the change would leave out of date."""

    reason = "IndexStale"


class SkippingUnreadable(LakeError):
    """Skipping metadata that is damaged, gone, of a version that nobody reads, or encrypted with a key not at hand."""

    reason = "SkippingUnreadable"


class TooManyDeletes(CommitError):
    """A garbage collection would delete more objects than it was allowed to; it deleted none."""

    reason = "TooManyDeletes"


class Contended(CommitError):
    """Other writers won every race for the head for so long that this one gave up; nothing was committed."""

    reason = "Contended"
    transient = True


class DatasetNotFound(LakeError):
    """There is no dataset of this name in the store."""

    reason = "DatasetNotFound"


class DatasetExists(CommitError):
    """A dataset of this name is there already."""

    reason = "DatasetExists"


class HeadMissing(CommitError):
    """The dataset has commit records but no head: never created anew, a person must decide."""

    reason = "HeadMissing"


class HeadUnreadable(CommitError):
    """The head does not parse as Kartothek v4 metadata, also when read again."""

    reason = "HeadUnreadable"


class NeedsConversion(CommitError):
    """Another library's dataset in a form that Kubothek reads but does not write; a person converts it, or not."""

    reason = "NeedsConversion"


class NotAdopted(CommitError):
    """Another library's dataset, which the asking Dataset resource was not told to adopt."""

    reason = "NotAdopted"


class ForeignOverwrite(CommitError):
    """A foreign writer overwrote commits of ours that cannot be merged again; names the versions."""

    reason = "ForeignOverwrite"


class CubeBroken(CommitError):
    """Another program changed a dataset of a cube against the cube's rules; a person repairs or discards the change."""

    reason = "CubeBroken"


class LedgerOnly(CommitError):
    """Rows of a ledger were to change in another way than by its sources."""

    reason = "LedgerOnly"


class Drift(CommitError):
    """Another program changed the table of a ledger: it is not the view of the chain any more."""

    reason = "Drift"


class Diverged(CommitError):
    """``refs/head`` of a ledger names a block that does not go on from the chain: somebody else wrote another one."""

    reason = "Diverged"


class VersionNotFound(LakeError):
    """The version was never committed, or its history has expired."""

    reason = "VersionNotFound"


class VersionTagged(CommitError):
    """A version that has a tag was to expire; names the tags."""

    reason = "VersionTagged"


class VersionIncomplete(LakeError):
    """Files that the version needs are gone (a foreign collector took them)."""

    reason = "VersionIncomplete"
