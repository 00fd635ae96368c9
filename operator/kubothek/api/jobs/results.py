"""Job results: what a job observed and did, and how it ended.

A part with the fields of a status extends its model: unknown fields are errors in a result, but not in a status.
"""

from __future__ import annotations

import base64
import json
import zlib
from hashlib import sha256
from typing import Any, Literal

from pydantic import Field, model_validator

from kubothek.api import observed
from kubothek.api.jobs.parts import Plain, SkippingIndexSpec
from kubothek.api.jobs.specs import StalledFile

RESULT_LIMIT_BYTES = 4096
"""Kubernetes' limit of a container's termination message."""
_UNPACKED_LIMIT = 1 << 20


class Totals(Plain):
    """The size of a dataset at one version; ``bytes`` of its data files."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    partitions: int = 0


class IndexState(observed.IndexStatus, Plain):
    """A secondary index of a table. Partial: an IndexJob must repair it; Stale: one must rebuild it."""

    kind: Literal["Kartothek", "Native"]


class SkippingState(Plain):
    """The skipping metadata of a table, which describes ``files`` of its data files."""

    indices: tuple[SkippingIndexSpec, ...] = ()
    footer_key: str | None = None
    plaintext_footer: bool = False
    files: int = 0
    bytes: int = 0


class Bin(observed.Bin, Plain):
    """A step of a histogram of file sizes."""


class HealthState(observed.Health, Plain):
    """The health of a table at ``version``, from commit records."""

    version: int
    sizes: tuple[Bin, ...] = ()


class IcebergState(observed.IcebergStatus, Plain):
    """The export of Iceberg metadata."""


class LedgerSource(observed.LedgerSource, Plain):
    """The read position of a source of a chain."""


class LedgerInput(Plain):
    """The read position of a derivative in an input: see :class:`kubothek.api.transforms.LedgerInput`."""

    id: str
    alias: str
    block: str | None = None
    offset: int | None = None


class LedgerState(Plain):
    """The chain of a dataset; times in ISO 8601. See :class:`kubothek.api.ledger.LedgerState`."""

    id: str | None = None
    head: str
    blocks: int
    records: int = 0
    watermark: str | None = None
    system_time: str | None = None
    last_slice: str | None = None
    sources: tuple[LedgerSource, ...] = ()
    inputs: tuple[LedgerInput, ...] = ()


class DatasetState(Plain):
    """A dataset's head, as a job observed it. ``version`` None = no head yet."""

    uuid: str
    version: int | None = None
    etag: str | None = None
    totals: Totals = Totals()
    last_commit_time: str | None = None
    owner: str | None = None
    problem: str | None = None
    """``Reason: text`` if the claim may not write the dataset, or the dataset is incomplete."""
    deleted: bool = False
    indices: tuple[IndexState, ...] = ()
    skipping: SkippingState | None = None
    dialect: Literal["Kartothek", "Plateau"] = "Kartothek"
    tags: dict[str, int] = Field(default_factory=dict)
    partition_on: tuple[str, ...] | None = None
    health: HealthState | None = None
    ailments: tuple[str, ...] = ()
    """Derived objects that a HealJob would rebuild, each in a few words."""
    corrupt: str | None = None
    """Which data files are lost, of which versions, and which version is complete."""
    ledger: LedgerState | None = None
    iceberg: IcebergState | None = None
    """None: its commits do not export."""
    writers: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """A digest of all fields: an inspection reports only states that differ from what the operator knows."""
        return sha256(self.model_dump_json(exclude_defaults=True).encode()).hexdigest()[:16]


class CubeState(Plain):
    """A cube's head, as a job observed it. ``version`` None = it does not exist; ``members`` are names."""

    prefix: str
    version: int | None = None
    last_commit_time: str | None = None
    seed: str = ""
    dimension_columns: tuple[str, ...] = ()
    partition_columns: tuple[str, ...] = ()
    index_columns: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    problem: str | None = None
    """``Reason: text`` if the cube cannot be written, or differs from the spec."""

    @property
    def digest(self) -> str:
        """A digest of all fields, as for a dataset."""
        return sha256(self.model_dump_json(exclude_defaults=True).encode()).hexdigest()[:16]


class StoreState(Plain):
    """The result of the probe of a store."""

    conditional_writes: bool
    clock_skew_seconds: float = 0.0


class MemberOutcome(observed.MemberEffect, Plain):
    """What a change of a cube did to one of its datasets."""


class CommitOutcome(Plain):
    """What a commit did; ``already_applied``: it had happened before. ``version`` None: it creates none."""

    version: int | None
    already_applied: bool = False
    rows: int = 0
    files: int = 0
    bytes: int = 0
    members: tuple[MemberOutcome, ...] = ()
    """For a change of a cube."""


class QueryRead(observed.QueryRead, Plain):
    """What a query read of one dataset."""


class QueryOutcome(Plain):
    """The result of a query: a file with the key ``location`` in its store, or the ``version`` of a dataset."""

    location: str | None = None
    version: int | None = None
    rows: int = 0
    files: int = 0
    bytes: int = 0
    reads: tuple[QueryRead, ...] = ()
    """The first few datasets."""


class IntakeOutcome(Plain):
    """The result of an ingestion job of a source; times in ISO 8601.

    ``version`` is that of the last commit, None if there was none; ``commits``, ``files`` and ``rows`` are of this job,
    ``taken`` is the number of files ingested ever.
    """

    version: int | None = None
    commits: int = 0
    files: int = 0
    rows: int = 0
    taken: int = 0
    last_file: str | None = None
    last_commit_time: str | None = None
    waiting_files: int = 0
    waiting_bytes: int = 0
    oldest_waiting: str | None = None
    current_until: str
    quarantined: int = 0
    refused: int = 0
    """Number of files that this job quarantined; ``refusal`` is the cause of the first: ``Reason: text``."""
    refusal: str | None = None
    stalled: StalledFile | None = None


class CompactOutcome(Plain):
    """What a compaction did, or would do; ``version`` None if there was nothing to do."""

    version: int | None = None
    already_applied: bool = False
    partitions: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    given_way: int = 0
    """Partitions with files that were skipped, as concurrent commits changed them."""


class KindCount(observed.KindCount, Plain):
    """Objects of one kind."""


LEFTOVERS = "~"
"""Name of the pseudo-target for all deleted datasets; it sorts after all names."""


class CollectOutcome(Plain):
    """What was deleted, or would be, of the targets up to ``after``."""

    after: str
    """The last processed target."""
    datasets: int = 0
    failed: int = 0
    problems: tuple[str, ...] = ()
    """The first few failures: ``name: Reason: text``."""
    collected: tuple[KindCount, ...] = ()


class SkipFilesOutcome(Plain):
    """The result of a SkipFilesJob: ``described`` of ``files``. ``location`` is Xskipper's directory in the store."""

    location: str
    files: int = 0
    described: int = 0
    added: int = 0
    removed: int = 0
    bytes: int = 0
    indices: tuple[SkippingIndexSpec, ...] = ()
    left_out: tuple[str, ...] = ()
    """The first few files that could not be described, and why."""


class PollOutcome(Plain):
    """The result of a poll: its ``commits`` and ``records``, and the ``version`` of its last commit, if any."""

    version: int | None = None
    commits: int = 0
    records: int = 0
    has_more: bool = False
    """Whether the source reported more data, which needs another job."""


class SyncOutcome(Plain):
    """What a sync did.

    ``relation`` is that of the source to the target before the sync; objects and bytes are those transferred. ``head``
    is the last block that both have now; ``version`` is that of the dataset, after a pull. ``missing``: linked objects
    that the source lacks, the first 100.
    """

    relation: Literal["Equal", "Ahead", "Behind", "Diverged"]
    head: str
    version: int | None = None
    blocks: int = 0
    objects: int = 0
    bytes: int = 0
    missing: tuple[str, ...] = ()


class TransformOutcome(Plain):
    """What a run of a derivative did: ``version`` None if there was nothing new."""

    version: int | None = None
    records: int = 0


class HealOutcome(Plain):
    """What was rebuilt, each in a few words."""

    repaired: tuple[str, ...] = ()


class FindingState(observed.FirstFinding, Plain):
    """The first finding of a verification."""


class VerifyOutcome(Plain):
    """The result of a verification; ``blocks`` None: there is no chain, ``files`` None: the table was not verified."""

    version: int | None = None
    blocks: int | None = None
    slices: int | None = None
    files: int | None = None
    unproven: int | None = None
    rows: int = 0
    bytes: int = 0
    wrong: int = 0
    first: FindingState | None = None
    dataset: str | None = None
    """The first corrupt dataset, roots first, if inputs were verified as well."""
    datasets: int | None = None
    """Number of verified datasets, if inputs were verified as well."""


class JobResult(Plain):
    """The outcome of a job: success, or a failure with reason, message and whether to retry."""

    outcome: Literal["Succeeded", "Failed"]
    reason: str
    message: str = Field(max_length=2048)
    retryable: bool = False
    commit: CommitOutcome | None = None
    query: QueryOutcome | None = None
    intake: IntakeOutcome | None = None
    compact: CompactOutcome | None = None
    collect: CollectOutcome | None = None
    heal: HealOutcome | None = None
    verify: VerifyOutcome | None = None
    poll: PollOutcome | None = None
    sync: SyncOutcome | None = None
    transform: TransformOutcome | None = None
    skip_files: SkipFilesOutcome | None = None
    dataset: DatasetState | None = None
    datasets: tuple[DatasetState, ...] = ()
    cube: CubeState | None = None
    cubes: tuple[CubeState, ...] = ()
    store: StoreState | None = None
    truncated: bool = False
    """Whether ``datasets``, ``cubes``, or details of a single one, did not fit: the full result is in the store."""

    @model_validator(mode="before")
    @classmethod
    def _unpacked(cls, data: Any) -> Any:
        """Return the data with its Datasets unpacked. It comes from a job's pod and is not trusted."""
        if not isinstance(data, dict) or not isinstance(packed := data.get("packed"), str):
            return data
        try:
            text = zlib.decompressobj().decompress(base64.b85decode(packed), _UNPACKED_LIMIT)
            datasets = json.loads(text)
        except (ValueError, zlib.error) as error:
            raise ValueError(f"what is packed cannot be read: {error}") from error
        return {name: value for name, value in data.items() if name != "packed"} | {"datasets": datasets}

    def packed(self) -> bytes:
        """Return the result as JSON with ``datasets`` compressed: they are similar, and a result has little room."""
        datasets = [state.model_dump(mode="json", exclude_defaults=True) for state in self.datasets]
        text = json.dumps(datasets, separators=(",", ":")).encode()
        rest = self.model_dump(mode="json", exclude_defaults=True, exclude={"datasets"})
        rest["packed"] = base64.b85encode(zlib.compress(text, 9)).decode()
        return json.dumps(rest, separators=(",", ":")).encode()


class Ended(Plain):
    """A job's report of its success before its process ends. ``finished`` is an RFC 3339 time in UTC."""

    finished: str
    result: JobResult


class Progress(Plain):
    """Progress of a job. ``stage`` is a word for users, such as Reading. Blocks and bytes are those of a transfer."""

    stage: str
    tasks_done: int = 0
    tasks_total: int = 0
    rows: int = 0
    blocks: int = 0
    bytes: int = 0
    bytes_total: int = 0


class ExitCode:
    """Exit codes of a job's process; they show what to retry and what to report, even if the result is lost."""

    DONE = 0
    INTERNAL = 1
    INVALID = 10
    CONFLICT = 20
    FENCED = 21
    TRANSIENT = 30
