"""One operator and one fleet, from its first look at it to the end of a queue; all that is counted on the way."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import gcd
from statistics import quantiles
from typing import Any, Final

from benchmarks.fleet.cluster import Cluster, Object
from benchmarks.fleet.kubelet import Kubelet
from benchmarks.fleet.process import Operator
from kubothek.cluster import names

_API: Final = "/apis/kubothek.io/v1alpha1"
_EDITED: Final = "benchmark-edits"
_READS: Final = ("get", "list")
PATIENCE: Final = 900.0
"""Seconds until something is given up, and with it the rest of what its system was to do."""
_UNREST: Final = 60.0
"""Seconds after which writes are taken for those of a system that never rests, such as handlers that wait."""


@dataclass(frozen=True)
class Size:
    """How large a fleet is. Half of the Commits are in one namespace; a last namespace has but one."""

    datasets: int = 10_000
    commits: int = 2_000
    namespaces: int = 100
    interval: int = 60
    """Seconds between inspections of a store; each namespace has one store."""
    edits: int = 300
    edits_a_second: float = 20.0

    @property
    def spaces(self) -> list[str]:
        """The namespaces."""
        return [f"team-{number:03}" for number in range(self.namespaces)]


@dataclass
class Findings:
    """What was found, by what a row of the report is called; None is what does not apply."""

    name: str
    values: dict[str, float] = field(default_factory=dict)
    requests: dict[str, Counter[tuple[str, str]]] = field(default_factory=dict)
    """Of each phase, by verb and resource."""


async def build(cluster: Cluster, size: Size) -> None:
    """Namespaces, stores and Datasets; nobody looks at them yet."""
    spaces = size.spaces
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "kubothek-job"}}
    namespaces = [("/api/v1/namespaces", _core("Namespace", space)) for space in spaces]
    await cluster.create_all(namespaces)
    await cluster.create_all((f"/api/v1/namespaces/{space}/serviceaccounts", account) for space in spaces)
    await cluster.create_all(_datasets(size))
    spec = {"url": "s3://lake", "interval": f"{size.interval}s"}
    await cluster.create_all((_list("objectstores", space), _ours("ObjectStore", "lake", spec)) for space in spaces)


def _datasets(size: Size) -> Iterator[tuple[str, Object]]:
    for number in range(size.datasets):
        space = size.spaces[number % size.namespaces]
        table = {"partitionOn": [], "targetFileSize": "64Mi"}
        yield (
            _list("datasets", space),
            _ours("Dataset", _dataset(number), {"storeRef": {"name": "lake"}, "table": table}),
        )


def _commits(size: Size, prefix: str = "commit") -> Iterator[tuple[str, Object]]:
    """Half in the first namespace, the rest in all others but the last, which has one."""
    for number in range(size.commits):
        busy = number % 2 == 0 or size.namespaces < 3
        place = 0 if busy else 1 + (number // 2) % (size.namespaces - 2)
        yield _commit(size, place, f"{prefix}-{number:05}", number)
    yield _commit(size, size.namespaces - 1, "lonely", 0)


def _commit(size: Size, place: int, name: str, number: int) -> tuple[str, Object]:
    here = range(place, size.datasets, size.namespaces)
    spec = {
        "datasetRef": {"name": _dataset(here[number % min(len(here), 20)])},
        "operation": "Append",
        "source": {"paths": [f"{name}.csv"], "format": "CSV"},
    }
    return _list("commits", size.spaces[place]), _ours("Commit", name, spec)


class GivenUp(Exception):
    """What was waited for did not come."""


async def measure(
    name: str,
    cluster: Cluster,
    size: Size,
    seconds: float,
    start: Callable[[], Any],
    tell: Callable[[str], None],
) -> Findings:
    """All of it. ``start`` is a context manager of the operator, ``seconds`` how long a job runs."""
    found, kubelet = Findings(name), Kubelet(cluster, seconds)
    async with asyncio.TaskGroup() as group:  # a kubelet that fails ends all of it
        playing = group.create_task(kubelet.run())
        try:
            await _phases(found, cluster, size, kubelet, start, tell)
        except GivenUp as given_up:
            tell(f"given up, and all that would follow: {given_up}")
        playing.cancel()
    return found


async def _phases(
    found: Findings,
    cluster: Cluster,
    size: Size,
    kubelet: Kubelet,
    start: Callable[[], Any],
    tell: Callable[[str], None],
) -> None:
    async with start() as operator:
        await _settle(found, "first", cluster, size, operator)
        tell(_over(found, "first", operator))
        await _idle(found, cluster, size, operator, kubelet)
        tell(_over(found, "idle", operator))
    cluster.audit.since()
    async with start() as operator:
        await _restarted(found, cluster, size, operator)
        tell(_over(found, "restart", operator))
        await _queued(found, cluster, size, operator, kubelet)
        tell(_over(found, "queued", operator))
        await _flow(found, cluster, size, operator, kubelet)
        tell(_over(found, "flow", operator))
        await _again(found, cluster, size, operator)
        tell(_over(found, "again", operator))


def _over(found: Findings, phase: str, operator: Operator) -> str:
    """What was found in a phase, in one line: a long run that is stopped has told of what it did.

    With it, how much else the machine had to do: times are the operator's only where that is little.
    """
    found.values[f"{phase}: load of the machine at its end"] = os.getloadavg()[0]
    found.values[f"{phase}: seconds since its start that it waited for a core"] = operator.starved
    rows = (f"{row.partition(': ')[2]} {value:.2f}" for row, value in found.values.items() if row.startswith(phase))
    return f"{phase}: {'; '.join(rows)}"


async def _settle(found: Findings, phase: str, cluster: Cluster, size: Size, operator: Operator) -> None:
    begun = time.monotonic()
    await _until(lambda: _all_ready(cluster, size), operator, every=1.0)
    found.values[f"{phase}: seconds until all is settled"] = time.monotonic() - begun
    found.values[f"{phase}: CPU seconds"] = operator.cpu
    found.values[f"{phase}: MB of memory"] = operator.memory
    await _calm(cluster, found, phase)
    asked = found.requests[phase]
    found.values[f"{phase}: status writes a Dataset"] = asked["patch", "datasets/status"] / size.datasets
    found.values[f"{phase}: other writes a Dataset"] = asked["patch", "datasets"] / size.datasets


async def _calm(cluster: Cluster, found: Findings, phase: str) -> None:
    """Until two seconds bring no write to a Dataset or Commit; what was asked belongs to the phase."""
    asked, begun = found.requests.setdefault(phase, Counter()), time.monotonic()
    while time.monotonic() < begun + _UNREST:
        await asyncio.sleep(2)
        new = cluster.audit.since()
        asked.update(new)
        if not any(
            count for (verb, what), count in new.items() if verb == "patch" and what.startswith(("data", "comm"))
        ):
            return


async def _idle(found: Findings, cluster: Cluster, size: Size, operator: Operator, kubelet: Kubelet) -> None:
    """Two intervals in which nobody wants anything."""
    cluster.audit.since()
    before, cpu, begun = Counter(kubelet.pods), operator.cpu, time.monotonic()
    await asyncio.sleep(2 * size.interval)
    took = time.monotonic() - begun
    asked = found.requests["idle"] = cluster.audit.since()
    pods = Counter(kubelet.pods)
    pods.subtract(before)
    found.values["idle: % of a core"] = 100 * (operator.cpu - cpu) / took
    found.values["idle: MB of memory"] = operator.memory
    found.values["idle: inspection pods a store and interval"] = (
        sum(count for (_, verb), count in pods.items() if verb == "inspect") / size.namespaces / (took / size.interval)
    )
    about = sum(count for (verb, what), count in asked.items() if what.startswith("datasets") and verb != "watch")
    found.values["idle: requests about Datasets, a minute"] = about / took * 60
    requests = sum(count for (verb, _), count in asked.items() if verb != "watch")
    found.values["idle: requests a store and interval"] = requests / size.namespaces / (took / size.interval)


async def _restarted(found: Findings, cluster: Cluster, size: Size, operator: Operator) -> None:
    """Everything is as it should be: how long until the operator knows, and what it does to find out."""
    begun = time.monotonic()
    canary = _canaries(size)[0]
    await _edit(cluster, canary, "65Mi")
    await _until(lambda: _observed(cluster, canary), operator, every=0.2)
    found.values["restart: seconds until an edit is dealt with"] = time.monotonic() - begun
    await _calm(cluster, found, "restart")
    found.values["restart: CPU seconds"] = operator.cpu
    found.values["restart: MB of memory"] = operator.memory
    asked = found.requests["restart"]
    writes = sum(count for (verb, what), count in asked.items() if verb == "patch" and what.startswith("datasets"))
    found.values["restart: writes to Datasets"] = max(writes - 1, 0)


async def _queued(found: Findings, cluster: Cluster, size: Size, operator: Operator, kubelet: Kubelet) -> None:
    """Commits queue up and wait, while people edit Datasets."""
    kubelet.may_end.clear()
    cluster.audit.since()
    await cluster.create_all(_commits(size))
    await _until(lambda: _all_seen(cluster), operator, every=1.0)
    await _calm(cluster, found, "queued")
    found.values["queued: MB of memory"] = operator.memory
    waits = await _edits(cluster, size, operator, 100)
    found.values |= _waits("queued: milliseconds from edit to observed", waits)
    asked = cluster.audit.since()
    found.requests["edits"] = asked
    found.values["queued: status writes an edit"] = asked["patch", "datasets/status"] / len(waits)


async def _flow(found: Findings, cluster: Cluster, size: Size, operator: Operator, kubelet: Kubelet) -> None:
    """They all go through."""
    begun, cpu = time.monotonic(), operator.cpu
    lonely = asyncio.create_task(_complete(cluster, size.spaces[-1], "lonely"))
    kubelet.may_end.set()
    edits = asyncio.create_task(_edits(cluster, size, operator, 2000))
    await _until(lambda: _all_complete(cluster, size), operator, every=1.0)
    took = time.monotonic() - begun
    found.values["flow: seconds until all Commits are complete"] = took
    found.values["flow: Commits a minute"] = 60 * size.commits / took
    found.values["flow: CPU milliseconds a Commit"] = 1000 * (operator.cpu - cpu) / size.commits
    found.values["flow: seconds until the lone Commit of a namespace is complete"] = await lonely - begun
    waits = await edits
    found.values |= _waits("flow: milliseconds from edit to observed", waits)
    await _calm(cluster, found, "flow")
    asked = found.requests["flow"] + found.requests["queued"]
    found.values["flow: status writes a Commit's life"] = asked["patch", "commits/status"] / (size.commits + 1)
    found.values["flow: MB of memory"] = operator.memory


async def _again(found: Findings, cluster: Cluster, size: Size, operator: Operator) -> None:
    """All Commits go, with what was theirs, and as many new ones come: what was kept of the old ones would show.

    What is theirs the cluster's garbage collector would take away; there is none here.
    """
    theirs = f"labelSelector={names.VERB}=commit"
    for space in size.spaces:
        await cluster.request("DELETE", _list("commits", space))
        for kind in ("pods", "configmaps"):
            await cluster.request("DELETE", f"/api/v1/namespaces/{space}/{kind}?{theirs}")
    await _until(lambda: _none(cluster), operator, every=1.0)
    found.values["again: MB of memory without them"] = operator.memory
    await cluster.create_all(_commits(size, "another"))
    await _until(lambda: _all_complete(cluster, size), operator, every=1.0)
    await _calm(cluster, found, "again")
    found.values["again: MB of memory"] = operator.memory


# --- edits -----------------------------------------------------------------------------------------------------------


def _canaries(size: Size) -> list[tuple[str, str]]:
    """Namespaces and names of Datasets to edit, from all over the fleet."""
    step = max(1, size.datasets // 50)
    while gcd(step, size.namespaces) > 1:  # or they would all be in a few namespaces
        step += 1
    return [(size.spaces[number % size.namespaces], _dataset(number)) for number in range(0, size.datasets, step)]


async def _edits(cluster: Cluster, size: Size, operator: Operator, first: int) -> list[float]:
    """Milliseconds that each of many edits took until the status spoke of it. ``first``: what they begin to set."""
    canaries, random_ = _canaries(size), random.Random(1)
    labelled = {"metadata": {"labels": {_EDITED: "yes"}}}
    for space, name in canaries:
        await cluster.merge(_object("datasets", space, name), labelled)
    due: dict[tuple[str, str], tuple[int, float]] = {}
    seen: dict[tuple[str, str], tuple[int, float]] = {}  # which generation the status spoke of last, and since when
    waits: list[float] = []

    def settle(key: tuple[str, str]) -> None:
        (generation, sent), (observed, when) = due.get(key, (1 << 60, 0.0)), seen.get(key, (-1, 0.0))
        if observed >= generation:
            waits.append(1000 * (when - sent))
            del due[key]

    async def all_settled() -> bool:
        return not due

    async def watch() -> None:
        async for _, obj in cluster.watch(f"{_API}/datasets", _EDITED):
            key = obj["metadata"]["namespace"], obj["metadata"]["name"]
            observed = obj["status"].get("observedGeneration", -1)
            if observed > seen.get(key, (-1, 0.0))[0]:
                seen[key] = observed, time.perf_counter()
                settle(key)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(1)
    try:
        for number in range(size.edits):
            operator.check()
            await asyncio.sleep(random_.expovariate(size.edits_a_second))
            free = [each for each in canaries if each not in due]
            if not free:
                continue
            key = random_.choice(free)
            sent = time.perf_counter()
            changed = await _edit(cluster, key, f"{first + number}Mi")
            due[key] = changed["metadata"]["generation"], sent
            settle(key)  # it may have been observed before we knew its generation
        await _until(all_settled, operator, every=0.05)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    return waits


async def _edit(cluster: Cluster, key: tuple[str, str], value: str) -> Object:
    return await cluster.merge(_object("datasets", *key), {"spec": {"table": {"targetFileSize": value}}})


def _waits(row: str, waits: list[float]) -> dict[str, float]:
    cuts = quantiles(waits, n=100, method="inclusive")
    return {f"{row}, median": cuts[49], f"{row}, p99": cuts[98]}


# --- what is there ---------------------------------------------------------------------------------------------------


async def _until(condition: Callable[[], Any], operator: Operator, every: float) -> None:
    begun = time.monotonic()
    while time.monotonic() < begun + PATIENCE:
        operator.check()
        if await condition():
            return
        await asyncio.sleep(every)
    raise GivenUp(f"after {PATIENCE:.0f} s")


async def _all_ready(cluster: Cluster, size: Size) -> bool:
    """Whether all stores and Datasets are Ready as their tables are. Asks the last first: most often they are not."""
    for place in reversed(range(size.namespaces)):
        space = size.spaces[place]
        items = (await cluster.request("GET", _list("datasets", space)))["items"]
        if not all(_holds(item, "Ready") and item["status"].get("version") for item in items):
            return False
    return True


async def _all_seen(cluster: Cluster) -> bool:
    """Whether the system has written to all Commits: a handler that waits leaves an annotation, and no condition."""
    commits = await cluster.items(f"{_API}/commits")
    return all(_conditions(each) or each["metadata"].get("annotations") for each in commits)


async def _all_complete(cluster: Cluster, size: Size) -> bool:
    for space in size.spaces:
        items = (await cluster.request("GET", _list("commits", space)))["items"]
        if not all(_holds(item, "Complete") for item in items):
            return False
    return True


async def _none(cluster: Cluster) -> bool:
    return not await cluster.items(f"{_API}/commits")


async def _complete(cluster: Cluster, space: str, name: str) -> float:
    """When a Commit was complete."""
    while not _holds(await cluster.request("GET", _object("commits", space, name)), "Complete"):
        await asyncio.sleep(0.2)
    return time.monotonic()


async def _observed(cluster: Cluster, key: tuple[str, str]) -> bool:
    obj = await cluster.request("GET", _object("datasets", *key))
    return bool(obj["status"].get("observedGeneration") == obj["metadata"]["generation"])


def _conditions(obj: Object) -> dict[str, str]:
    return {each["type"]: each["status"] for each in (obj.get("status") or {}).get("conditions") or ()}


def _holds(obj: Object, condition: str) -> bool:
    return _conditions(obj).get(condition) == "True"


def _dataset(number: int) -> str:
    return f"events-{number:05}"


def _core(kind: str, name: str) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}


def _ours(kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": "kubothek.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _list(plural: str, space: str) -> str:
    return f"{_API}/namespaces/{space}/{plural}"


def _object(plural: str, space: str, name: str) -> str:
    return f"{_list(plural, space)}/{name}"
