"""A stream of work under faults: what is applied is done once, and nothing else is left of it.

Each :meth:`Stage.round` applies the next Commits of every table (and whatever was applied before, again), lets a fault
strike while they are under way, waits for calm and looks at everything.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests import kstatus
from tests.e2e import clocks, manifests
from tests.e2e.kubectl import PATIENCE, Manifest, eventually
from tests.e2e.operators import Operator
from tests.e2e.weather import Weather
from tests.e2e.workspace import Workspace
from tests.faultproxy import Hold

ROWS = 10
"""Of each Commit."""
HEAD = ".by-dataset-metadata.json"
PUSHED = manifests.push_source("x BIGINT", "p BIGINT", "text STRING")
TABLES: dict[str, Manifest] = {
    "plain": manifests.dataset("plain"),
    "parts": manifests.dataset("parts", ["p"]),
    "ledger": manifests.dataset("ledger", ledger={"metadata": [PUSHED]}),
}
RUNS = "kcm,kcp"
RESOURCES = f"{RUNS},kds,kgc,kos,keng"
KEPT = {"Commit": 20, "Compaction": 20}
"""How many attempts of a resource may be left in the cluster, by its kind; of all others :data:`ROUNDS_KEPT`."""
ROUNDS_KEPT = 4
STEP = 600
"""Seconds by which clocks of jobs are off: beyond a quarter of an hour S3 takes no request that they sign."""
POLICY = "everything"
RETRY = {"limit": 20, "backoff": {"initial": "1s", "max": "5s"}}


@dataclass(frozen=True)
class Blow:
    """What a fault did: how long it lasted, and how long it took from its end until all was calm, in seconds."""

    fault: str
    lasted: float
    recovered: float


@dataclass
class Stage:
    """One namespace with its store behind a proxy, and one operator of its own."""

    place: Workspace
    operator: Operator
    proxy: Weather
    random: random.Random
    commits: dict[str, Manifest] = field(default_factory=dict)
    """All that were ever applied, by name."""
    compactions: dict[str, Manifest] = field(default_factory=dict)
    expected: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    blows: list[Blow] = field(default_factory=list)

    def prepare(self) -> None:
        """The store, the tables and a policy that collects each minute."""
        self.place.prepare(endpoint=self.proxy.endpoint)
        spark = manifests.engine("spark", retry=RETRY, sparkFrom="1")
        self.engine()
        self.place.kubectl.apply(*clocks.config_maps(STEP, -STEP), spark, policy(), *TABLES.values())

    def engine(self, **more: Any) -> None:
        """All jobs of the namespace from now on; ``more`` than this they have nothing else."""
        self.place.kubectl.apply(manifests.engine(retry=RETRY, **more))

    def collect(self) -> None:
        """A round of the policy, now, and its end."""
        kubectl, asked = self.place.kubectl, str(len(self.commits))
        kubectl("annotate", "kgc", POLICY, f"kubothek.io/requestedAt={asked}", "--overwrite")

        def done() -> bool:
            status = kubectl.get("kgc", POLICY)["status"]
            return status.get("handledRequest") == asked and "round" not in status

        eventually(done, "a collection")

    def expect(self, driver: str, *, reason: str, failures: int = 0, disruptions: int = 0) -> None:
        """Once all is calm, the Commit of this pod must have lost so many attempts, and an event have told why."""
        self.expected[driver.rpartition("-")[0]] = (failures, disruptions, reason)

    def round(self, name: str, strike: Callable[[Stage], None], commits: int = 1) -> None:
        """Work, a fault, calm. Raises AssertionError for whatever is not as it must be then."""
        self.proxy.requests.clear()
        for table in TABLES:
            for _ in range(commits):
                self.commit(table)
        self.apply()
        began = time.monotonic()
        strike(self)
        over = time.monotonic()
        self.settle()
        blow = Blow(name, over - began, time.monotonic() - over)
        self.blows.append(blow)
        self.check()
        print(
            f"{name}: {blow.lasted:.0f} s, calm after {blow.recovered:.0f} s, {len(self.commits)} Commits", flush=True
        )

    def commit(self, table: str, **spec: Any) -> str:
        """The next Commit of a table, not yet applied; returns its name."""
        number = len(self.commits)
        name, first = f"{table}-{number}", ROWS * number
        self.place.put_rows(f"sources/{name}.csv", first, ROWS)
        self.commits[name] = manifests.commit(name, table, f"sources/{name}.csv", **spec)
        return name

    def compact(self, table: str) -> None:
        """The next Compaction of a table, not yet applied."""
        name = f"compact-{len(self.compactions)}"
        self.compactions[name] = manifests.resource("Compaction", name, {"datasetRef": {"name": table}})

    def apply(self) -> None:
        """All manifests, as from a Git repository; of one Commit that is done the object was lost before."""
        done = sorted(self.complete())
        if done:
            self.place.kubectl.delete("kcm", self.random.choice(done), wait=False)
        self.place.kubectl.apply(*TABLES.values(), *self.commits.values(), *self.compactions.values())

    def complete(self, kind: str = "kcm") -> set[str]:
        """The names of Commits, or of others that happen once, that say that they are."""
        return {each["metadata"]["name"] for each in self.place.kubectl.items(kind) if _true(each, "Complete")}

    @contextmanager
    def held(self, table: str) -> Iterator[str]:
        """The driver of a Commit of this table that is about to swap the head, and cannot while the block lasts."""
        # A Compaction would swap it as well.
        eventually(lambda: self.complete("kcp") >= {*self.compactions}, "the Compactions to end")
        held = self.proxy.inject(Hold(), method="PUT", path=f"{table}{HEAD}")
        self.commit(table)
        self.apply()
        try:
            assert held.arrived.wait(PATIENCE), self.place.kubectl.situation("kcm")
            runs = self.place.kubectl.items("pods", "kubothek.io/kind=Commit")
            (pod,) = (  # the Commits of a table run one after the other
                each["metadata"]["name"]
                for each in runs
                if each["status"]["phase"] == "Running" and each["metadata"]["name"].startswith(f"{table}-")
            )
            yield str(pod)
        finally:
            held.release()

    # --- calm ------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Wait until everything that was applied is done, and the Datasets tell of it."""
        kubectl = self.place.kubectl
        wanted = {*self.commits, *self.compactions}

        def calm() -> bool:
            found = kubectl.items(f"{RUNS},kds")
            done = {each["metadata"]["name"] for each in found if _true(each, "Complete")}
            return done >= wanted and all(kstatus.compute(each) == "Current" for each in _of(found, "Dataset"))

        try:
            eventually(calm, "calm")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{kubectl.situation(f'{RUNS},kds')}") from None

    def check(self) -> None:
        """All that must hold in calm."""
        found = self.place.kubectl.items(RESOURCES)
        self._check_data({each["metadata"]["name"]: each["status"] for each in _of(found, "Commit")})
        broken = {
            f"{each['kind']}/{each['metadata']['name']}": rules
            for each in found
            if (rules := kstatus.check(each["metadata"]["generation"], each["status"]))
        }
        assert not broken
        self._check_budgets()
        left: list[str] = []

        def clean() -> bool:
            left[:] = self._leaks()
            return not left

        try:
            eventually(clean, "nothing to be left")
        except AssertionError as error:
            raise AssertionError(f"{error}: {left}") from None

    def _check_data(self, statuses: Mapping[str, Manifest]) -> None:
        for table in TABLES:
            ours = [name for name, commit in self.commits.items() if commit["spec"]["datasetRef"]["name"] == table]
            expected = sorted(x for name in ours for x in _rows(name))
            assert self.place.column(table) == expected, table
            history = [*self.place.lake.dataset(table).history()][::-1]
            versions = [record.version for record in history]
            assert versions == [*range(versions[0], versions[0] + len(versions))], (table, versions)
            made = {record.id: record.version for record in history}
            assert len(made) == len(history), (table, [record.id for record in history])
            told = {f"{self.place.kubectl.namespace}/{name}": statuses[name]["version"] for name in ours}
            assert {id_: made[id_] for id_ in told} == told, table

    def _check_budgets(self) -> None:
        kubectl = self.place.kubectl
        for name, (failures, disruptions, reason) in self.expected.items():
            status = kubectl.get("kcm", name)["status"]
            counted = status.get("failures", 0), status.get("disruptions", 0)
            assert counted == (failures, disruptions), kubectl.situation(f"kcm/{name}")
            told = [
                f"{each['reason']}: {each['note']}"
                for each in kubectl.items("events.events.k8s.io")
                if each["regarding"]["name"] == name
            ]
            assert any(reason in each for each in told), (reason, told)
        self.expected.clear()

    def _leaks(self) -> list[str]:
        """What is there and should not be."""
        objects = self.place.kubectl.items(f"{RESOURCES},pods,configmaps")
        of_runs = [each for each in objects if "kubothek.io/run" in each["metadata"].get("labels", {})]
        owners = {each["metadata"]["uid"]: each for each in objects if each["apiVersion"] == manifests.API_VERSION}
        found, kept = [], dict.fromkeys(owners, 0)
        for pod in _of(of_runs, "Pod"):
            name, owner = pod["metadata"]["name"], pod["metadata"]["ownerReferences"][0]["uid"]
            if pod["metadata"]["labels"]["app.kubernetes.io/component"] != "driver":
                found.append(f"executor {name}")
            elif owner not in owners:
                found.append(f"pod {name} of nobody")
            else:
                kept[owner] += 1
        for config in _of(of_runs, "ConfigMap"):
            if config["metadata"]["ownerReferences"][0]["uid"] not in owners:
                found.append(f"ConfigMap {config['metadata']['name']} of nobody")
        for uid, count in kept.items():
            if count > KEPT.get(owners[uid]["kind"], ROUNDS_KEPT):
                found.append(f"{count} pods of {owners[uid]['kind']} {owners[uid]['metadata']['name']}")
        uploads = self.place.cluster.s3_client().list_multipart_uploads(Bucket=self.place.cluster.s3_bucket)
        found += [each["Key"] for each in uploads.get("Uploads", []) if each["Key"].startswith(f"{self.place.prefix}/")]
        return found


def policy() -> Manifest:
    """Keeps all versions, and takes soon what attempts have left behind."""
    spec = {"selector": {"all": True}, "schedule": {"cron": "* * * * *"}, "gracePeriod": "5m", "mode": "Enforce"}
    return manifests.resource("GCPolicy", POLICY, {**spec, "retention": {"versions": 1000}})


def table_of(blows: list[Blow]) -> str:
    """The faults with their times, in seconds, as Markdown."""
    lines = ["| fault | times | lasted, median | recovery, median | recovery, longest |", "|---|---|---|---|---|"]
    for name in dict.fromkeys(blow.fault for blow in blows):
        ours = [blow for blow in blows if blow.fault == name]
        lasted, recovered = sorted(blow.lasted for blow in ours), sorted(blow.recovered for blow in ours)
        middle = len(ours) // 2
        figures = f"{lasted[middle]:.1f} | {recovered[middle]:.1f} | {recovered[-1]:.1f}"
        lines.append(f"| {name} | {len(ours)} | {figures} |")
    return "\n".join(lines)


def _rows(commit: str) -> range:
    first = ROWS * int(commit.rpartition("-")[2])
    return range(first, first + ROWS)


def _of(objects: Sequence[Manifest], kind: str) -> list[Manifest]:
    return [each for each in objects if each["kind"] == kind]


def _true(obj: Manifest, kind: str) -> bool:
    conditions = obj.get("status", {}).get("conditions", [])
    return any(condition["type"] == kind and condition["status"] == "True" for condition in conditions)
