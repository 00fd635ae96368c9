"""Sync: pull or push between a Dataset and its counterpart in a Repository."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import StringConstraints

from kubothek.api.dataset import TableState
from kubothek.api.meta import Attempts, Lenient, Resource, Status, Strict, Time
from kubothek.api.rules import Rule
from kubothek.api.schedules import Schedule
from kubothek.api.values import Reference

Direction = Literal["Pull", "Push"]

_REMOTE = r"^[a-zA-Z0-9]([a-zA-Z0-9_.\-]*[a-zA-Z0-9])?(/[a-zA-Z0-9]([a-zA-Z0-9_.\-]*[a-zA-Z0-9])?){0,3}$"


class SyncSpec(Strict):
    """The two sides, the direction and the schedule."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.level) || self.direction == 'Pull'",
            message="level is for direction: Pull: who takes a push verifies it; remove it",
            holds=lambda self: self.level is None or self.direction == "Pull",
        ),
    )

    repository_ref: Reference
    """A job on edit. The Repository."""
    dataset_ref: Reference
    """A job on edit. The Dataset: a ledger; for Pull one with `ledger.kind: Copy`."""
    remote: Annotated[str, StringConstraints(max_length=256, pattern=_REMOTE)] | None = None
    """A job on edit. The name of the dataset in the Repository, such as `flights` or `account/flights`; default: the
    uuid of the Dataset."""
    direction: Direction
    """A job on edit. Pull: from the Repository to the Dataset. Push: from the Dataset to the Repository, which needs
    `push: true`."""
    schedule: Schedule | None = None
    """Takes effect at once. When to sync; default: once for each edit, and on request by the annotation
    `kubothek.io/requestedAt`."""
    force: Literal["Never", "IfDiverged"] = "Never"
    """A job on edit. What to do with blocks that only the target has. Never: keep them; the Sync is then `Diverged`.
    IfDiverged: drop them, so that the target equals the source."""
    level: Literal["Physical", "Full"] | None = None
    """Takes effect at the next sync. The verification of pulled data before it becomes visible. Physical: all blocks,
    their rules, and the bytes of all objects. Full: the records as well. Default: Full if the Dataset has a table,
    which is built from the records."""
    engine_ref: Reference | None = None
    """Takes effect at the next job. The Engine that runs the jobs; default: that of the Dataset."""
    suspend: bool = False
    """Takes effect at once. True: start no jobs; running jobs continue."""


class SyncRun(Attempts):
    """One sync."""

    cause: str = ""
    """Its cause: a digest of the two sides and the direction."""
    slot: Time | None = None
    """The time of the slot; without one, the time at which it began."""
    done: bool = False
    """Whether it is complete."""
    problem: str | None = None
    """Why it failed permanently: `Reason: text`."""


class SyncProgress(Lenient):
    """Progress of the running job."""

    stage: str
    """Comparing, Transferring or Committing."""
    blocks: int = 0
    """Number of blocks that are new to the target."""
    objects: int = 0
    """Number of objects that are transferred and verified."""
    objects_to_go: int = 0
    """Number of remaining objects."""
    bytes: int = 0
    """Bytes of the objects that are transferred and verified."""
    bytes_to_go: int = 0
    """Remaining bytes."""


class SyncStatus(Status):
    """The relation of the two sides, and the last sync."""

    url: str | None = None
    """The url of the dataset in the Repository."""
    head: str | None = None
    """The hash of the last block that both have since the last sync."""
    relation: Literal["Equal", "Ahead", "Behind", "Diverged"] | None = None
    """The relation of the source to the target at the last sync. Equal: nothing to do. Ahead: it had more blocks.
    Behind: it had fewer. Diverged: each had blocks of its own. In the last two cases `force` drops those of the
    target."""
    blocks: int = 0
    """Number of blocks that the last sync transferred."""
    objects: int = 0
    """Number of files of records and checkpoints that it transferred, without those of interrupted syncs."""
    bytes: int = 0
    """Their size."""
    size: str | None = None
    """The same, human-readable."""
    progress: SyncProgress | None = None
    """Progress of the running job."""
    last_sync_time: Time | None = None
    """When both sides were last equal after a sync."""
    next_time: Time | None = None
    """The time of the next slot."""
    handled_request: str | None = None
    """The last request that was handled."""
    table: TableState | None = None
    """The Dataset after the last pull."""
    run: SyncRun | None = None
    """The last or running sync."""


class Sync(Resource):
    """A Sync keeps a Dataset and its counterpart in a Repository equal, by pulls or pushes."""

    kind: Literal["Sync"] = "Sync"
    spec: SyncSpec
    status: SyncStatus = SyncStatus()

    @property
    def pulls(self) -> bool:
        """Whether it writes to the Dataset."""
        return self.spec.direction == "Pull"
