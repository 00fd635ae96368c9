"""Verification: one look at whether what lies in the store is what was committed."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from kubothek.api.meta import Attempts, Lenient, Resource, Status, Strict, Time
from kubothek.api.rules import Immutable, Rule
from kubothek.api.runs import EDITABLE
from kubothek.api.sizes import Sizes
from kubothek.api.values import Reference

_FIXED = Immutable(f"a Verification is one run and cannot be edited, but for {EDITABLE}: create another Verification")


class Point(Strict):
    """A point in the history of a Dataset: a version, or a block of its chain."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.version) != has(self.block)",
            message="set either version or block: they name a point each",
            holds=lambda self: (self.version is None) != (self.block is None),
        ),
    )

    version: Annotated[int | None, Field(ge=0)] = None
    """A version of the Dataset."""
    block: Annotated[int | None, Field(ge=0)] = None
    """The sequence number of a block. Then only the chain is looked at, which the Dataset must have."""


class VerificationSpec(Strict):
    """What to verify. Immutable, but for `suspend`, `retryLimit` and `ttlSecondsAfterFinished`."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!self.recursive || (!has(self.since) && !has(self.until))",
            message="recursive goes without since and until, which name points of one Dataset: remove them",
            holds=lambda self: not self.recursive or (self.since is None and self.until is None),
        ),
    )

    dataset_ref: Annotated[Reference, _FIXED]
    """Immutable. The Dataset."""
    level: Annotated[Literal["Chain", "Physical", "Full"], _FIXED] = "Full"
    """Immutable. How closely to look. Chain: the blocks of a ledger, or whether commit records add up to the table.
    Physical: the bytes of all files and slices as well. Full: their records too, and indices."""
    since: Annotated[Point | None, _FIXED] = None
    """Immutable. What came up to this point was verified before: its files and slices are not read again."""
    until: Annotated[Point | None, _FIXED] = None
    """Immutable. The version, or the last block, to verify; default: the present one."""
    recursive: Annotated[bool, _FIXED] = False
    """Immutable. Whether that which a derivative is made of is verified as well, up to the roots; the first of these
    that is not sound is named in `status.dataset`."""
    engine_ref: Annotated[Reference | None, _FIXED] = None
    """Immutable. The Engine that does it; default: the one of the Dataset."""
    size: Annotated[Sizes | None, _FIXED] = None
    """Immutable. Sizes for this run, in place of those of the Engine."""
    suspend: bool = False
    """May be edited. Start no job. A job that runs goes on."""
    retry_limit: Annotated[int | None, Field(ge=0, le=20)] = None
    """May be edited. How many times the job is tried again when it fails in a way that may pass; default: that of the
    Engine. Raising it revives a Verification that ended with RetryLimitReached."""
    ttl_seconds_after_finished: Annotated[int | None, Field(ge=0)] = None
    """May be edited. How long after its end the Verification is deleted, with its pods; default: never. What Argo CD,
    Flux or Helm applied stays, as they would only apply it again."""


class VerificationProgress(Lenient):
    """How far the job is."""

    stage: str
    """Starting or Verifying."""
    tasks_done: int = 0
    """Number of pieces of work that are finished."""
    tasks_total: int = 0
    """Number of pieces of work."""


class FirstFinding(Lenient):
    """The first thing that is wrong, and where."""

    code: str
    """What is wrong, in one word: see docs/verification.md."""
    message: str
    """What is wrong, and what to do."""
    block: str | None = None
    """The hash of the block that is wrong, or names what is wrong."""
    block_number: int | None = None
    """Its sequence number."""
    object: str | None = None
    """The key of the data file or index, or the name of the slice."""
    column: str | None = None
    """The column."""
    row: int | None = None
    """The offset of the record."""


class VerificationStatus(Status, Attempts):
    """How far the verification is, and what it found."""

    progress: VerificationProgress | None = None
    """How far the running job is."""
    start_time: Time | None = None
    """When the first attempt was started."""
    logs: str | None = None
    """Where the log of its last attempt is, if the operator was told where logs are kept."""
    completion_time: Time | None = None
    """When it was complete."""
    verdict: Literal["Sound", "Corrupt"] | None = None
    """What was found."""
    version: int | None = None
    """The version that was looked at."""
    blocks: int | None = None
    """Number of blocks of the chain."""
    slices: int | None = None
    """Number of slices of the chain that were read."""
    files: int | None = None
    """Number of data files of the table that were read."""
    unproven: int | None = None
    """Number of data files of the table for which no commit record has a hash: other programs wrote them."""
    rows: int | None = None
    """Number of records of the slices and files that were read."""
    bytes: int | None = None
    """Size of the slices and files that were read."""
    datasets: int | None = None
    """Number of datasets that were looked at, if those that it is made of were."""
    dataset: str | None = None
    """The name in the store of the first dataset that is not sound, roots first, if several were looked at."""
    wrong: int | None = None
    """Number of things that are wrong."""
    first: FirstFinding | None = None
    """The first of them."""


class Verification(Resource):
    """A Verification looks once whether the chain of a Dataset, its files and its indices are what was committed, and
    names the first thing that is not. It changes no data.
    """

    kind: Literal["Verification"] = "Verification"
    spec: VerificationSpec
    status: VerificationStatus = VerificationStatus()

    @property
    def finished(self) -> bool:
        """Whether nothing will start for this Verification any more."""
        return self.status.holds("Complete") or self.status.holds("Failed")
