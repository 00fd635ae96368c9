"""Warm drivers: which jobs they take, how many there should be, and when they are replaced.

A driver takes one job and ends with it, so a job leaves nothing for the next: no setting, no cached row, no credential
(docs/decisions/0025). Which jobs it may take is fixed before it starts, by its mounts and its start parameters. These
form its *key*: the Engine's spec, the operator's defaults, and the ObjectStore with its Secrets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from kubothek.api.cube import Cube
from kubothek.api.dataset import Dataset
from kubothek.api.engine import DEFAULT_ENGINE, Engine, Warm, WarmState
from kubothek.api.jobs import QueryJob
from kubothek.api.objectstore import ObjectStore
from kubothek.api.pod_templates import DRIVER_CONTAINER
from kubothek.api.values import parse_duration
from kubothek.controller.context import Context, LaunchJob, Settings, StartDriver, StopDriver, WarmDriver, WarmPool
from kubothek.controller.references import digest, launch_job, store_ref

VERBS: Final = frozenset({"commit", "cube", "query", "tag"})
"""Jobs that users wait for. Warm drivers serve only these, not maintenance or schedules."""
_BURST: Final = timedelta(minutes=1)
"""Approximate start time of a driver on a busy node: for jobs within this time, starting another one is too late."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Changes of an Engine's warm drivers."""

    state: WarmState | None
    actions: tuple[StartDriver | StopDriver, ...] = ()
    again: timedelta | None = None


def key_of(launch: LaunchJob, settings: Settings) -> str | None:
    """Return the key of the drivers that may take this job; None: it needs a pod of its own."""
    engine, store = launch.engine, launch.job.store.name
    if not isinstance(engine, Engine) or engine.spec.warm is None or has_company(engine):
        return None
    stores = {*launch.secrets, *launch.volumes, *launch.keys}
    if launch.job.verb not in VERBS or launch.mounts or not stores <= {store}:
        return None
    return _key(launch, engine, settings)


def _key(like: LaunchJob, engine: Engine, settings: Settings) -> str:
    spec = engine.spec.model_dump_json(exclude={"retry", "deadlines", "spark_from", "odf", "warm"})
    kept = "" if engine.spec.warm is None else str(engine.spec.warm.spark_up_to)
    store = like.job.store
    mounted = [str(sorted(each.items())) for each in (like.secrets, like.volumes, like.keys)]
    defaults = (settings.default_image, settings.default_service_account)
    return digest(engine.metadata.uid, spec, kept, *defaults, store.name, store.url, *mounted)


def has_company(engine: Engine) -> bool:
    """Return whether driver pods have other containers: those would wait as well, or have ended before the job."""
    spec = engine.spec.pod_template.driver.get("spec") or {}
    containers = [each for each in spec.get("containers") or () if each.get("name") != DRIVER_CONTAINER]
    return bool(containers or spec.get("initContainers"))


def keep_warm(engine: Engine, context: Context) -> Pool:
    """Return the actions that bring the warm drivers to their target number."""
    found = context.warm_pool(engine)
    if found is None:
        return Pool(None)
    warm = engine.spec.warm if not has_company(engine) else None
    likes = {_key(like, engine, context.settings): like for like in _likes(engine, context)} if warm is not None else {}
    number = 0 if engine.status.warm is None else engine.status.warm.last
    actions: list[StartDriver | StopDriver] = []
    rechecks: list[timedelta] = []
    for key, like in likes.items():
        assert warm is not None, "without there are no keys"
        mine = [driver for driver in found.drivers if driver.key == key]
        start, stop, again = tally(warm, mine, found.asked.get(key, ()), context.now)
        for _ in range(start):
            number += 1
            actions.append(StartDriver(f"{engine.name}-warm-{number}", key, like))
        actions += (StopDriver(engine.namespace, name) for name in stop)
        rechecks += () if again is None else (again,)
    actions += (StopDriver(engine.namespace, driver.name) for driver in found.drivers if driver.key not in likes)
    state = _state(found, actions, number) if warm is not None or found.drivers else None
    return Pool(state, tuple(actions), min(rechecks, default=None))


def tally(
    warm: Warm, drivers: Sequence[WarmDriver], asked: Sequence[datetime], now: datetime
) -> tuple[int, tuple[str, ...], timedelta | None]:
    """Return, for the drivers with one key: how many to start, which to stop, and when this changes by itself.

    A driver that exceeds the idle timeout is stopped when enough newer ones are ready. A failed one counts until that
    timeout, so that a driver that cannot start is not restarted in a loop. A starting driver counts for as long as its
    start takes: otherwise an ``idleTimeout`` shorter than a start would pile up drivers.
    """
    patience = parse_duration(warm.idle_timeout)
    target = max(warm.min, min(warm.max, busiest(asked, now - patience)))
    old = [each for each in drivers if each.phase != "Starting" and now - each.since >= patience]
    fresh = sorted((each for each in drivers if each not in old), key=lambda each: each.since)
    surplus = fresh[: max(0, len(fresh) - target)]
    replaced = sum(each.phase == "Ready" for each in fresh) >= target
    stop = [*surplus, *(each for each in old if replaced or each.phase == "Failed")]
    moments = [moment + patience for moment in (*(each.since for each in fresh), *asked) if moment > now - patience]
    again = min(moments) - now if moments else None
    return max(0, target - len(fresh)), tuple(each.name for each in stop), again


def busiest(asked: Sequence[datetime], since: datetime) -> int:
    """Return the largest number of jobs that arrived within one minute, after ``since``."""
    window: deque[datetime] = deque()
    most = 0
    for moment in asked:
        if moment <= since:
            continue
        window.append(moment)
        while window[0] <= moment - _BURST:
            window.popleft()
        most = max(most, len(window))
    return most


def _likes(engine: Engine, context: Context) -> Iterator[LaunchJob]:
    """Yield a launch with the mounts of a job, for each ObjectStore whose Datasets or Cubes use this Engine."""
    namespace = engine.namespace
    users: Sequence[Dataset | Cube] = (*context.list(Dataset, namespace), *context.list(Cube, namespace))
    named = {
        each.spec.store_ref.name
        for each in users
        if engine.name == (DEFAULT_ENGINE if each.spec.engine_ref is None else each.spec.engine_ref.name)
    }
    for name in sorted(named):
        store = context.get(ObjectStore, namespace, name)
        if store is not None and not store.spec.suspend and not store.deleting:
            job = QueryJob(job=engine.name, uid=engine.metadata.uid, store=store_ref(store))
            yield launch_job(job, engine, engine, store)


def _state(found: WarmPool, actions: Sequence[StartDriver | StopDriver], number: int) -> WarmState:
    """Return the state of the drivers after the actions."""
    stopped = {action.name for action in actions if isinstance(action, StopDriver)}
    phases = [driver.phase for driver in found.drivers if driver.name not in stopped]
    started = sum(isinstance(action, StartDriver) for action in actions)
    return WarmState(
        ready=phases.count("Ready"),
        starting=phases.count("Starting") + started,
        failed=phases.count("Failed"),
        last=number,
    )
