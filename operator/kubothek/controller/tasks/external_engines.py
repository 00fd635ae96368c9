"""Transformations for engines of other parties: which ones they are, and the address of their engine."""

from __future__ import annotations

from kubothek.api.conditions import State, stalled
from kubothek.api.dataset import Dataset
from kubothek.api.engine import Engine, ForeignEngine
from kubothek.api.jobs import ForeignEngineRef
from kubothek.api.values import parse_duration
from kubothek.controller.context import Settings

VOLUME_DIRECTORY = "/opt/engine"
"""Directory that the job and the engine share; engines expect this name."""

CONTAINER = "engine"
"""Container of the engine in the pod of the job."""


def asked_of(dataset: Dataset, engine: Engine | None) -> ForeignEngine | None:
    """Return the engine of another party that a Dataset's transformation requires; None: our own engine runs it."""
    ledger, foreign = dataset.spec.ledger, None if engine is None else engine.spec.odf
    if ledger is None or ledger.engine is None or foreign is None:
        return None
    return foreign if ledger.engine.lower() == foreign.engine.lower() else None


def refused_engine(dataset: Dataset, engine: Engine | None, settings: Settings) -> State | None:
    """Return why the engine cannot run here; None if it can, or if it is our own: only a cluster starts containers."""
    foreign = asked_of(dataset, engine)
    if foreign is None or not settings.allow_local_sources or foreign.engine.lower() in settings.engines:
        return None
    return stalled(
        "EngineNotRunning",
        f"the transformation asks for engine {foreign.engine!r}, a container of image {foreign.image!r}, which only a "
        f"cluster starts: start it here and say where it is, KUBOTHEK_ENGINES={foreign.engine}=HOST:PORT/DIRECTORY, "
        "with a directory that both see under this name",
    )


def engine_ref(dataset: Dataset, engine: Engine | None, settings: Settings) -> ForeignEngineRef | None:
    """Return the engine as the job needs it; None: our own."""
    foreign = asked_of(dataset, engine)
    if foreign is None:
        return None
    address, volume = f"127.0.0.1:{foreign.port}", VOLUME_DIRECTORY
    here = settings.allow_local_sources
    if here:  # one engine serves several jobs at once
        address, directory = settings.engines[foreign.engine.lower()]
        volume = f"{directory.rstrip('/')}/{dataset.namespace}-{dataset.name}"
    return ForeignEngineRef(
        image=foreign.image,
        address=address,
        volume_dir=volume,
        timeout_seconds=parse_duration(foreign.timeout).total_seconds(),
        container=None if here else CONTAINER,
    )
