"""Summary of a resource for users, derived from its conditions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kubothek.api import conditions
from kubothek.api.commit import Commit
from kubothek.api.compaction import Compaction
from kubothek.api.cube import Cube
from kubothek.api.dataset import Dataset
from kubothek.api.jobs import Progress
from kubothek.api.meta import Resource
from kubothek.api.query import Query
from kubothek.api.sync import Sync
from kubothek.api.verification import Verification
from kubothek.local.manifests import Key, key_of
from kubothek.words import count


class Phase(StrEnum):
    """Phase of a resource in one word."""

    READY = "Ready"
    DONE = "Done"
    SUSPENDED = "Suspended"
    RUNNING = "Running"
    WAITING = "Waiting"
    FAILED = "Failed"

    @property
    def fine(self) -> bool:
        """Whether a run that ends in this phase has done everything that the manifests ask for."""
        return self in (Phase.READY, Phase.DONE, Phase.SUSPENDED)


@dataclass(frozen=True, slots=True)
class Summary:
    """A resource's line in a table."""

    key: Key
    phase: Phase
    reason: str
    message: str
    progress: Progress | None = None


def summarise(resource: Resource) -> Summary:
    """Return the resource's line. A status of an older generation is ignored."""
    key, state = key_of(resource), conditions.state_of(resource.status)
    ready = resource.status.condition("Ready")
    if state is None or ready is None or ready.observed_generation != resource.metadata.generation:
        return Summary(key, Phase.WAITING, "", "not looked at yet")
    phase = _phase(state)
    message = (_achieved(resource) if phase.fine else None) or state.message
    return Summary(key, phase, state.reason, message, _progress(resource, phase))


def _phase(state: conditions.State) -> Phase:
    if state.ready == "True":
        return Phase.DONE if state.ended else Phase.READY
    if state.ready == "Unknown":
        return Phase.RUNNING
    return {"Stalled": Phase.FAILED, "Reconciling": Phase.WAITING, "": Phase.SUSPENDED}[state.abnormal]


def _achieved(resource: Resource) -> str | None:
    """Describe in numbers what a resource in a fine phase has achieved."""
    if isinstance(resource, Cube) and (cube := resource.status).version is not None:
        built = sum(member.version is not None for member in cube.members)
        sizes = f": {count(cube.rows, 'cell')} in {count(built, 'dataset')}, {cube.size}" if built else ""
        return f"version {cube.version}{sizes}"
    if isinstance(resource, Commit) and _appends(resource) and (rows := resource.status.rows):
        return f"version {resource.status.version}: {_size(rows, resource.status.files or 0)} added"
    if isinstance(resource, Query) and (status := resource.status).rows is not None:
        where = status.location or f"version {status.version} of {resource.spec.result.target}"
        return f"{count(status.rows, 'row')} in {where}"
    if isinstance(resource, Dataset) and resource.status.version is not None:
        table = resource.status
        bad = sum(source.quarantined for source in table.sources)
        quarantine = f"; {count(bad, 'file')} in quarantine" if bad else ""
        late = sum(each.behind or 0 for each in table.ledger.inputs) if table.ledger is not None else 0
        behind = f"; {count(late, 'record')} of its inputs wait" if late else ""
        return f"version {table.version}: {_size(table.rows, table.files)}, {table.size}{quarantine}{behind}"
    return None


def _appends(commit: Commit) -> bool:
    cube = commit.spec.cube
    return commit.spec.operation == "Append" or (cube is not None and cube.operation in ("Build", "Extend", "Append"))


def _size(rows: int, files: int) -> str:
    return f"{count(rows, 'row')} in {count(files, 'file')}"


def _progress(resource: Resource, phase: Phase) -> Progress | None:
    if phase is Phase.RUNNING and isinstance(resource, Sync) and (moving := resource.status.progress) is not None:
        total = moving.objects + moving.objects_to_go
        return Progress(stage=moving.stage, tasks_done=moving.objects, tasks_total=total)
    if phase is not Phase.RUNNING or not isinstance(resource, Commit | Query | Compaction | Verification):
        return None
    if resource.status.progress is None:
        return None
    return Progress.model_validate(resource.status.progress.model_dump())
