"""Sync: a Dataset and its counterpart in a Repository, kept the same."""

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
    """What is made the same as what."""

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
    """A job on edit. The Dataset: a ledger; to pull, one with `ledger.kind: Copy`."""
    remote: Annotated[str, StringConstraints(max_length=256, pattern=_REMOTE)] | None = None
    """A job on edit. The name of the dataset in the Repository, such as `flights` or `account/flights`; default: the
    uuid of the Dataset."""
    direction: Direction
    """A job on edit. Pull: the Dataset becomes what is in the Repository. Push: the other way round, if the Repository
    has `push: true`."""
    schedule: Schedule | None = None
    """Takes effect at once. When to sync; default: once for each edit, and on request by the annotation
    `kubothek.io/requestedAt`."""
    force: Literal["Never", "IfDiverged"] = "Never"
    """A job on edit. Never: blocks that only the target has are never given up; the Sync is then `Diverged`.
    IfDiverged: they are, and the target becomes what the other side is."""
    level: Literal["Physical", "Full"] | None = None
    """Takes effect at the next sync. How closely to look at what is pulled, before anybody sees it. Physical: all
    blocks, their rules, and the bytes of all objects. Full: the records as well. Default: Full if the Dataset keeps a
    table, as that is made from the records."""
    engine_ref: Reference | None = None
    """Takes effect at the next job. The Engine that runs the jobs; default: that of the Dataset."""
    suspend: bool = False
    """Takes effect at once. Start no jobs. What runs goes on."""


class SyncRun(Attempts):
    """One sync."""

    cause: str = ""
    """What it was begun for: a digest of what is to be the same as what."""
    slot: Time | None = None
    """The time of the slot, or when it was begun without one."""
    done: bool = False
    """Whether it is through."""
    problem: str | None = None
    """Why it was given up: `Reason: text`."""


class SyncProgress(Lenient):
    """How far the running job is."""

    stage: str
    """Comparing, Transferring or Committing."""
    blocks: int = 0
    """Number of blocks that are new to the target."""
    objects: int = 0
    """Number of objects that are there and verified."""
    objects_to_go: int = 0
    """Number of objects that are still to come."""
    bytes: int = 0
    """Bytes of the objects that are there and verified."""
    bytes_to_go: int = 0
    """Bytes that are still to come."""


class SyncStatus(Status):
    """How the two are to each other."""

    url: str | None = None
    """Where the dataset is in the Repository."""
    head: str | None = None
    """The hash of the last block that both have, since the last sync."""
    relation: Literal["Equal", "Ahead", "Behind", "Diverged"] | None = None
    """How the side that is read was to the other at the last sync. Equal: nothing was to be done. Ahead: it had more.
    Behind: it had less. Diverged: each had blocks of its own. Of the last two, `force` gives up those of the target."""
    blocks: int = 0
    """Number of blocks that the last sync moved."""
    objects: int = 0
    """Number of files of records and checkpoints that it moved. What an interrupted one had moved is not among them."""
    bytes: int = 0
    """Their bytes."""
    size: str | None = None
    """The same for people."""
    progress: SyncProgress | None = None
    """How far the running job is."""
    last_sync_time: Time | None = None
    """When both were last found, or made, the same."""
    next_time: Time | None = None
    """When the next slot is."""
    handled_request: str | None = None
    """The last request that was taken up."""
    table: TableState | None = None
    """The Dataset after the last pull."""
    run: SyncRun | None = None
    """The last sync, or the one that is under way."""


class Sync(Resource):
    """A Sync keeps a Dataset and its counterpart in a Repository the same, by pulling or by pushing."""

    kind: Literal["Sync"] = "Sync"
    spec: SyncSpec
    status: SyncStatus = SyncStatus()

    @property
    def pulls(self) -> bool:
        """Whether it writes to the Dataset."""
        return self.spec.direction == "Pull"
