"""Job results: what a job found and did, and how it ended."""

from __future__ import annotations

import base64
import json
import zlib
from hashlib import sha256
from typing import Any, Literal

from pydantic import Field, model_validator

from kubothek.api.jobs.parts import Plain, SkippingIndexSpec
from kubothek.api.jobs.specs import StalledFile

RESULT_LIMIT_BYTES = 4096
"""Kubernetes keeps this much of a container's termination message."""
_UNPACKED_LIMIT = 1 << 20


class Totals(Plain):
    """The size of a dataset at one version; ``bytes`` of its data files."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    partitions: int = 0


class IndexState(Plain):
    """A secondary index that a table has. Partial: it needs the work of an IndexJob; Stale: it has to be rebuilt."""

    column: str
    kind: Literal["Kartothek", "Native"]
    state: Literal["Ready", "Waiting", "Partial", "Stale"] = "Ready"
    rows: int = 0


class SkippingState(Plain):
    """The skipping metadata of a table, which describes ``files`` of its data files."""

    indices: tuple[SkippingIndexSpec, ...] = ()
    footer_key: str | None = None
    plaintext_footer: bool = False
    files: int = 0
    bytes: int = 0


class Bin(Plain):
    """Files below ``below`` bytes (None: any), and not in the step before."""

    below: int | None = None
    files: int = 0


class HealthState(Plain):
    """How a table is at ``version``, worked out from commit records; see ``resources.maintenance.Health``."""

    version: int
    small_files: int = 0
    small_percent: int = 0
    worst_partition_small_files: int = 0
    sizes: tuple[Bin, ...] = ()
    versions: int = 0
    history_files: int = 0
    history_bytes: int = 0
    garbage_files: int = 0
    garbage_bytes: int = 0


class LedgerSource(Plain):
    """How far a source of a chain was read."""

    name: str
    kind: str = ""
    value: str = ""


class LedgerInput(Plain):
    """How far a derivative has read an input: see ``resources.transforms.LedgerInput``."""

    id: str
    alias: str
    block: str | None = None
    offset: int | None = None


class LedgerState(Plain):
    """The chain of a dataset; times in ISO 8601. See ``resources.ledger.LedgerState``."""

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
    """A dataset's head, as a job saw it. ``version`` None = no head yet."""

    uuid: str
    version: int | None = None
    etag: str | None = None
    totals: Totals = Totals()
    last_commit_time: str | None = None
    owner: str | None = None
    problem: str | None = None
    """Reason and message ``Reason: text`` if the dataset cannot be written by the asking claim or is not whole."""
    deleted: bool = False
    indices: tuple[IndexState, ...] = ()
    skipping: SkippingState | None = None
    dialect: Literal["Kartothek", "Plateau"] = "Kartothek"
    tags: dict[str, int] = Field(default_factory=dict)
    partition_on: tuple[str, ...] | None = None
    health: HealthState | None = None
    ailments: tuple[str, ...] = ()
    """What a HealJob would make anew, each as a few words."""
    corrupt: str | None = None
    """Which data files are lost, of which versions, and which version is whole."""
    ledger: LedgerState | None = None

    @property
    def digest(self) -> str:
        """A digest of all of it: an inspection that finds what the operator knows does not tell it again."""
        return sha256(self.model_dump_json(exclude_defaults=True).encode()).hexdigest()[:16]


class CubeState(Plain):
    """A cube's head, as a job saw it. ``version`` None = nothing of it is there yet; ``members`` are names."""

    prefix: str
    version: int | None = None
    last_commit_time: str | None = None
    seed: str = ""
    dimension_columns: tuple[str, ...] = ()
    partition_columns: tuple[str, ...] = ()
    index_columns: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    problem: str | None = None
    """Reason and message ``Reason: text`` if the cube cannot be written or is not what the asker says."""

    @property
    def digest(self) -> str:
        """As that of a dataset."""
        return sha256(self.model_dump_json(exclude_defaults=True).encode()).hexdigest()[:16]


class StoreState(Plain):
    """What the probe of a store found."""

    conditional_writes: bool
    clock_skew_seconds: float = 0.0


class MemberOutcome(Plain):
    """What a change of a cube did to one of its datasets."""

    name: str
    version: int | None = None
    rows: int = 0
    files: int = 0
    bytes: int = 0


class CommitOutcome(Plain):
    """What a commit did; ``already_applied`` when it had happened before. ``version`` None: it makes none."""

    version: int | None
    already_applied: bool = False
    rows: int = 0
    files: int = 0
    bytes: int = 0
    members: tuple[MemberOutcome, ...] = ()
    """Of a change of a cube."""


class QueryRead(Plain):
    """What was read of one dataset."""

    dataset: str
    version: int
    files: int = 0
    considered: int = 0
    """Files that skipping had to decide about, and ``skipped``, how many of them were not opened."""
    skipped: int = 0
    filters: tuple[str, ...] = ()
    """The first few of what it filtered by: ``column:Equal`` …"""


class QueryOutcome(Plain):
    """What a query's rows became: the key ``location`` in its store, or the ``version`` of a dataset."""

    location: str | None = None
    version: int | None = None
    rows: int = 0
    files: int = 0
    bytes: int = 0
    reads: tuple[QueryRead, ...] = ()
    """The first few."""


class IntakeOutcome(Plain):
    """What a look at a source found and did; times in ISO 8601.

    ``version`` is that of the last commit, None if there was none; ``commits``, ``files`` and ``rows`` are of this job,
    ``taken`` is how many files were ever taken.
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
    """How many files went into quarantine now, and ``refusal``, why the first of them: ``Reason: text``."""
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
    """Partitions of which files were left out, as another commit took some of them meanwhile."""


class KindCount(Plain):
    """Objects of one kind."""

    kind: str
    objects: int = 0
    bytes: int = 0


LEFTOVERS = "~"
"""What stands in place of a target's name for all deleted datasets together: it comes after all names."""


class CollectOutcome(Plain):
    """What was deleted, or would be, of the targets up to ``after``."""

    after: str
    """The last target that is through."""
    datasets: int = 0
    failed: int = 0
    problems: tuple[str, ...] = ()
    """The first few: ``name: Reason: text``."""
    collected: tuple[KindCount, ...] = ()


class SkipFilesOutcome(Plain):
    """What was found, and done: ``described`` of ``files``. ``location`` is Xskipper's directory in the store."""

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
    """What a poll found: ``commits`` and ``records`` are of this job, ``version`` that of its last commit, if any."""

    version: int | None = None
    commits: int = 0
    records: int = 0
    has_more: bool = False
    """Whether the source said that there is more, which takes another job."""


class SyncOutcome(Plain):
    """What a sync did. ``relation`` is how the side that was read was to the other before; objects and bytes are those
    that moved. ``head`` is the last block that both have now, ``version`` that of the dataset, of a pull.
    """

    relation: Literal["Equal", "Ahead", "Behind", "Diverged"]
    head: str
    version: int | None = None
    blocks: int = 0
    objects: int = 0
    bytes: int = 0


class TransformOutcome(Plain):
    """What a run of a derivative did: ``version`` None if there was nothing new."""

    version: int | None = None
    records: int = 0


class HealOutcome(Plain):
    """What was made anew, each as a few words."""

    repaired: tuple[str, ...] = ()


class FindingState(Plain):
    """One thing that is wrong; see ``resources.verification.FirstFinding``."""

    code: str
    message: str
    block: str | None = None
    block_number: int | None = None
    object: str | None = None
    column: str | None = None
    row: int | None = None


class VerifyOutcome(Plain):
    """What a verification found; ``blocks`` None: there is no chain, ``files`` None: the table was not looked at."""

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
    """The first that is not sound, roots first, if inputs were looked at as well."""
    datasets: int | None = None
    """How many datasets were looked at, if inputs were."""


class JobResult(Plain):
    """The end of a job: one of success, or a failure with reason, message and whether to try again."""

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
    """True when ``datasets``, ``cubes``, or details of the only one, did not fit: the full result is in the store."""

    @model_validator(mode="before")
    @classmethod
    def _unpacked(cls, data: Any) -> Any:
        """The same with its Datasets, if they were packed. A job's pod says it, so it may be anything."""
        if not isinstance(data, dict) or not isinstance(packed := data.get("packed"), str):
            return data
        try:
            text = zlib.decompressobj().decompress(base64.b85decode(packed), _UNPACKED_LIMIT)
            datasets = json.loads(text)
        except (ValueError, zlib.error) as error:
            raise ValueError(f"what is packed cannot be read: {error}") from error
        return {name: value for name, value in data.items() if name != "packed"} | {"datasets": datasets}

    def packed(self) -> bytes:
        """As JSON, with ``datasets`` compressed: they are much alike, and a result has little room."""
        datasets = [state.model_dump(mode="json", exclude_defaults=True) for state in self.datasets]
        text = json.dumps(datasets, separators=(",", ":")).encode()
        rest = self.model_dump(mode="json", exclude_defaults=True, exclude={"datasets"})
        rest["packed"] = base64.b85encode(zlib.compress(text, 9)).decode()
        return json.dumps(rest, separators=(",", ":")).encode()


class Ended(Plain):
    """What a job tells of its success before its process ends. ``finished`` is an RFC 3339 time in UTC."""

    finished: str
    result: JobResult


class Progress(Plain):
    """How far a job is. ``stage`` is a word for people, such as Reading. Blocks and bytes are those of a transfer."""

    stage: str
    tasks_done: int = 0
    tasks_total: int = 0
    rows: int = 0
    blocks: int = 0
    bytes: int = 0
    bytes_total: int = 0


class ExitCode:
    """Exit codes of a job's process; they tell what to retry from what to report, also when the result is lost."""

    DONE = 0
    INTERNAL = 1
    INVALID = 10
    CONFLICT = 20
    FENCED = 21
    TRANSIENT = 30
