"""Verification: one check that the data in the store is what was committed."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from kubothek.api.meta import Attempts, Lenient, Status, Strict, Time
from kubothek.api.observed import FirstFinding
from kubothek.api.rules import Immutable, Rule
from kubothek.api.runs import EDITABLE, RunResource
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
    """The sequence number of a block. Then only the chain is verified, which the Dataset must have."""


class VerificationSpec(Strict):
    """What to verify. Immutable, except `suspend`, `retryLimit` and `ttlSecondsAfterFinished`."""

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
    """Immutable. The depth of the verification. Chain: the blocks of a ledger, or whether commit records add up to the
    table. Physical: the bytes of all files and slices as well. Full: their records too, and indices."""
    since: Annotated[Point | None, _FIXED] = None
    """Immutable. A point that was verified before: files and slices up to it are not read again."""
    until: Annotated[Point | None, _FIXED] = None
    """Immutable. The version, or the last block, to verify; default: the current one."""
    recursive: Annotated[bool, _FIXED] = False
    """Immutable. Whether to verify the inputs of a derivative as well, up to the roots; `status.dataset` names the
    first corrupt one."""
    engine_ref: Annotated[Reference | None, _FIXED] = None
    """Immutable. The Engine for the job; default: that of the Dataset."""
    size: Annotated[Sizes | None, _FIXED] = None
    """Immutable. Sizes for this run, which override those of the Engine."""
    suspend: bool = False
    """May be edited. True: start no job; a running job continues."""
    retry_limit: Annotated[int | None, Field(ge=0, le=20)] = None
    """May be edited. Maximum number of retries after retryable failures; default: that of the Engine. Raising it
    revives a Verification that ended with RetryLimitReached."""
    ttl_seconds_after_finished: Annotated[int | None, Field(ge=0)] = None
    """May be edited. Seconds after its end until the Verification and its pods are deleted; default: never.
    Verifications that Argo CD, Flux or Helm applied stay, as these tools would re-apply them."""


class VerificationProgress(Lenient):
    """Progress of the job."""

    stage: str
    """Starting or Verifying."""
    tasks_done: int = 0
    """Number of finished tasks."""
    tasks_total: int = 0
    """Number of tasks."""


class VerificationStatus(Status, Attempts):
    """The progress of the verification, and its findings."""

    progress: VerificationProgress | None = None
    """Progress of the running job."""
    start_time: Time | None = None
    """When the first attempt was started."""
    logs: str | None = None
    """URL of the log of the last attempt, if the operator has a URL template for logs."""
    completion_time: Time | None = None
    """When it was complete."""
    verdict: Literal["Sound", "Corrupt"] | None = None
    """The verdict."""
    version: int | None = None
    """The verified version."""
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
    """Number of verified datasets, if inputs were verified as well."""
    dataset: str | None = None
    """The name in the store of the first corrupt dataset, roots first, if several were verified."""
    wrong: int | None = None
    """Number of findings."""
    first: FirstFinding | None = None
    """The first finding."""


class Verification(RunResource):
    """A Verification checks once that the chain of a Dataset, its files and its indices are what was committed, and
    reports the first difference. It changes no data.
    """

    kind: Literal["Verification"] = "Verification"
    spec: VerificationSpec
    status: VerificationStatus = VerificationStatus()
