"""When derivatives run: in the order of what they depend on, once for one change, in batches, by schedules; and what
stands in their way.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from kubothek.api.dataset import Dataset
from kubothek.api.jobs import (
    DatasetState,
    InputRef,
    LedgerInput,
    LedgerJob,
    LedgerState,
    StoreState,
    TransformJob,
    TransformOutcome,
)
from kubothek.controller.context import FailureClass, JobPhase
from tests.controller.fake import START, Fake, seen, with_store

PUSHED = {
    "kind": "AddPushSource",
    "sourceName": "default",
    "read": {"kind": "Csv", "schema": ["id BIGINT"]},
    "merge": {"kind": "Append"},
}


def transform(*inputs: str, query: str = "SELECT * FROM x") -> dict[str, Any]:
    named = [{"datasetRef": name} for name in inputs]
    return {"kind": "SetTransform", "inputs": named, "transform": {"kind": "Sql", "engine": "duckdb", "query": query}}


class Lakes:
    """A context with ledgers, and what their chains are in the store."""

    def __init__(self, **derived: str | dict[str, Any]) -> None:
        """Of each name the inputs, in one text (none: a root), or all of ``spec.ledger``."""
        self.context = Fake()
        self.chains: dict[str, LedgerState] = {}
        self.quiet: set[str] = set()
        """Derivatives of which the SQL makes nothing of anything new."""
        self.idle: set[str] = set()
        """Derivatives that find nothing to do, and note nothing."""
        self.empty: set[str] = set()
        """Roots that begin without data."""
        self.runs = Counter[str]()
        for name, given in derived.items():
            self.context.create("Dataset", name, {"storeRef": {"name": "lake"}, "ledger": _ledger(given)})
        with_store(self.context, *(seen(uuid=name) for name in derived))

    def settle(self, order: random.Random | None = None, *, but: tuple[str, ...] = ()) -> None:
        """Until nothing happens any more: all decide, then one of the jobs ends; none of Datasets in ``but``."""
        while True:
            self.decide()
            waiting = [name for name in self.open_jobs() if name.rsplit("-", 2)[0] not in but]
            if not waiting:
                return
            self.end((order or random.Random(0)).choice(waiting))

    def decide(self) -> None:
        for _ in range(4):  # each may wake others
            for kind, name in list(self.context.resources):
                if kind == "Dataset":
                    self.context.settle(kind, name)

    def open_jobs(self) -> list[str]:
        """Of Datasets, those that have not ended."""
        known = {launch.job.job for launch in self.context.launches if isinstance(launch.job, LedgerJob | TransformJob)}
        return sorted(
            name for name, view in self.context.jobs.items() if name in known and view.phase is JobPhase.PENDING
        )

    def end(self, name: str) -> None:
        """The job does what its spec says to the chain."""
        job = next(launch.job for launch in self.context.launches if launch.job.job == name)
        assert isinstance(job, LedgerJob | TransformJob)
        uuid = job.dataset.uuid
        if isinstance(job, LedgerJob):
            records = 0 if job.kind == "Derivative" or uuid in self.empty else 1
            made = LedgerState(id=f"did:odf:{uuid}", head=f"{uuid}-1", blocks=2, records=records)
            self.chains.setdefault(uuid, made)
            self.context.job_ends(name, dataset=self.state(uuid))
            return
        self.runs[uuid] += 1
        if uuid in self.idle:
            self.context.job_ends(name, dataset=self.state(uuid), transform=TransformOutcome())
            return
        read = tuple(_read(self.chains[each.uuid]) for each in job.inputs)
        chain = self.chains[uuid]
        self.chains[uuid] = chain.model_copy(update={"inputs": read})
        if uuid not in self.quiet:
            self._moved(uuid, 1)
        self.context.job_ends(name, dataset=self.state(uuid), transform=TransformOutcome(version=2, records=1))

    def push(self, name: str, records: int = 1) -> None:
        """Somebody appends to a root, and an inspection sees it."""
        self._moved(name, records)
        self.inspect()

    def inspect(self) -> None:
        """All chains, as they are, come into the statuses."""
        for name in self.chains:
            dataset = self.dataset(name)
            state = self.state(name).ledger
            assert state is not None
            dumped = state.model_dump() | {"inputs": [each.model_dump() | {"name": ""} for each in state.inputs]}
            chain = type(dataset.status.ledger or _empty()).model_validate(dumped)
            status = dataset.status.model_copy(update={"ledger": chain})
            self.context.resources["Dataset", name] = dataset.model_copy(update={"status": status})

    def inspected(self, number: int, *states: DatasetState) -> None:
        """An inspection of the store ends, which saw this."""
        self.context.job_ends(f"lake-inspect-{number}", store=StoreState(conditional_writes=True), datasets=states)
        self.context.settle("ObjectStore", "lake")

    def _moved(self, name: str, records: int) -> None:
        chain = self.chains[name]
        changes = {"head": f"{name}-{chain.blocks}", "blocks": chain.blocks + 1, "records": chain.records + records}
        self.chains[name] = chain.model_copy(update=changes)

    def state(self, name: str) -> DatasetState:
        return seen(self.chains[name].blocks, uuid=name, ledger=self.chains[name])

    def dataset(self, name: str) -> Dataset:
        found = self.context.resources["Dataset", name]
        assert isinstance(found, Dataset)
        return found

    def edit(self, name: str, **ledger: Any) -> None:
        spec = self.dataset(name).spec.ledger
        assert spec is not None
        before = spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
        self.context.edit("Dataset", name, ledger=before | ledger)

    def condition(self, name: str) -> tuple[str, str]:
        return self.context.condition("Dataset", name)

    def new_runs(self) -> dict[str, int]:
        """Since it was asked last."""
        found, self.runs = dict(self.runs), Counter()
        return found


def _ledger(given: str | dict[str, Any]) -> dict[str, Any]:
    if isinstance(given, dict):
        return given
    if not given:
        return {"metadata": [PUSHED]}
    return {"kind": "Derivative", "metadata": [transform(*given.split())]}


def _empty() -> Any:
    from kubothek.api.ledger import LedgerState as Kept

    return Kept()


def _read(chain: LedgerState) -> LedgerInput:
    offset = chain.records - 1 if chain.records else None
    return LedgerInput(id=chain.id or "", alias="x", block=chain.head, offset=offset)


def derived(*inputs: str, **settings: Any) -> dict[str, Any]:
    more = {"schedule": settings.pop("schedule")} if "schedule" in settings else {}
    return {"kind": "Derivative", "metadata": [transform(*inputs)], "transform": settings} | more


SHAPES = {
    "a chain": {"a": "", "b": "a", "c": "b", "d": "c"},
    "a diamond": {"a": "", "b": "a", "c": "a", "d": "b c"},
    "a diamond with a long side": {"a": "", "b": "a", "c": "b", "e": "a", "d": "c e"},
    "an input and what is made of it": {"a": "", "b": "a", "d": "a b"},
    "two roots": {"a": "", "z": "", "b": "a z", "c": "a", "d": "b c z"},
    "diamonds on diamonds": {"a": "", "b": "a", "c": "a", "d": "b c", "e": "b d", "f": "c d e"},
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_source_change_updates_derivatives_in_topological_order_once_each(shape: str) -> None:
    for seed in range(4):  # jobs end in any order
        lakes = Lakes(**SHAPES[shape])
        order = random.Random(seed)
        lakes.settle(order)
        derivatives = {name for name, inputs in SHAPES[shape].items() if inputs}
        assert lakes.new_runs() == dict.fromkeys(derivatives, 1), "the first run"
        lakes.push("a")
        lakes.settle(order)
        assert lakes.new_runs() == dict.fromkeys(derivatives, 1)
        assert all(lakes.condition(name) == ("True", "Succeeded") for name in SHAPES[shape])
        lakes.settle(order)
        assert lakes.new_runs() == {}


def test_derivative_status_ignores_inspection_started_before_run_ended() -> None:
    lakes = Lakes(a="", b="a", c="b")
    lakes.settle()
    lakes.context.pass_time(timedelta(minutes=10))
    lakes.context.reconcile("ObjectStore", "lake")
    early = lakes.state("b")
    lakes.push("a")
    lakes.new_runs()
    lakes.settle(but=("c",))
    lakes.inspected(2, early)
    lakes.settle()
    assert lakes.new_runs() == {"b": 1, "c": 1}
    chain = lakes.dataset("b").status.ledger
    assert chain is not None
    assert chain.head == lakes.chains["b"].head


def test_ledger_chain_missing_from_early_inspection_is_created_only_once() -> None:
    lakes = Lakes(a="")
    lakes.context.pass_time(timedelta(minutes=10))
    lakes.context.reconcile("ObjectStore", "lake")
    lakes.settle()
    lakes.inspected(2, seen(uuid="a"))
    lakes.settle()
    assert [launch.job.job for launch in lakes.context.launches if isinstance(launch.job, LedgerJob)] == ["a-ledger-1"]
    assert lakes.dataset("a").status.ledger is not None


def test_derivative_runs_only_when_each_input_has_data() -> None:
    lakes = Lakes(a="", z="", b="a", d="b z")
    lakes.empty.add("z")
    lakes.settle()
    assert lakes.new_runs() == {"b": 1}
    lakes.push("z")
    lakes.settle()
    assert lakes.new_runs() == {"d": 1}


def test_derivative_without_new_output_unblocks_downstream_derivatives() -> None:
    lakes = Lakes(**SHAPES["a diamond with a long side"])
    lakes.settle()
    lakes.new_runs()
    lakes.quiet.add("b")
    lakes.push("a")
    lakes.settle()
    assert lakes.new_runs() == {"b": 1, "e": 1, "d": 1}, "c has nothing to read"


def test_derivative_status_shows_lineage_and_input_positions() -> None:
    lakes = Lakes(a="", z="", b="a", d=derived("b", "z", suspend=True))
    lakes.settle()
    assert lakes.new_runs() == {"b": 1}
    lineage = lakes.dataset("d").status.lineage
    assert lineage is not None
    assert (lineage.roots, lineage.depth, lineage.consumers) == (("a", "z"), 2, ())
    origin = lakes.dataset("a").status.lineage
    assert origin is not None
    assert (origin.roots, origin.depth, origin.consumers) == ((), 0, ("b",))
    lakes.edit("d", transform={})
    lakes.settle()
    lakes.edit("d", transform={"suspend": True})
    lakes.push("z", 5)
    lakes.settle()
    chain = lakes.dataset("d").status.ledger
    assert chain is not None
    assert [(each.name, each.behind) for each in chain.inputs] == [("b", 0), ("z", 5)]
    assert lakes.new_runs() == {"d": 1}
    lakes.edit("d", transform={"suspend": False})
    lakes.settle()
    assert lakes.new_runs() == {"d": 1}


def test_derivative_job_gets_inputs_and_on_change_policy() -> None:
    lakes = Lakes(a="", b=derived("a", onChange="Reset"))
    lakes.settle()
    jobs = [launch.job for launch in lakes.context.launches if launch.job.job in ("b-ledger-1", "b-transform-1")]
    for job in jobs:
        assert isinstance(job, LedgerJob | TransformJob)
        assert (job.inputs, job.on_change) == ((InputRef(reference="a", uuid="a"),), "Reset")


# --- batches ---------------------------------------------------------------------------------------------------------


def test_derivative_run_waits_for_min_records_or_max_wait() -> None:
    lakes = Lakes(a="", b=derived("a", minRecords=10, maxWait="1h"))
    lakes.settle()
    assert lakes.new_runs() == {"b": 1}
    lakes.push("a", 4)
    lakes.settle()
    assert lakes.new_runs() == {}
    again = lakes.context.settle("Dataset", "b").requeue_after
    assert again == timedelta(hours=1)
    lakes.push("a", 6)
    lakes.settle()
    assert lakes.new_runs() == {"b": 1}
    lakes.push("a", 1)
    lakes.settle()
    lakes.context.pass_time(timedelta(minutes=59))
    lakes.settle()
    assert lakes.new_runs() == {}
    lakes.context.pass_time(timedelta(minutes=1))
    lakes.settle()
    assert lakes.new_runs() == {"b": 1}


def test_derivative_input_block_without_records_starts_no_max_wait() -> None:
    lakes = Lakes(a="", b=derived("a", minRecords=10, maxWait="1h"))
    lakes.settle()
    lakes.new_runs()
    lakes.idle.add("b")
    lakes.push("a", 0)
    lakes.context.pass_time(timedelta(hours=2))
    lakes.settle()
    lakes.context.pass_time(timedelta(hours=1))
    lakes.settle()
    assert lakes.new_runs() == {"b": 1}
    lakes.context.pass_time(timedelta(hours=3))
    lakes.push("a", 1)
    lakes.settle()
    assert lakes.new_runs() == {}, "the record waits from now on"
    lakes.context.pass_time(timedelta(hours=1))
    lakes.settle()
    assert lakes.new_runs() == {"b": 1}


def test_derivative_with_schedule_runs_at_slot_only_with_new_data() -> None:
    lakes = Lakes(a="", b=derived("a", schedule={"cron": "0 * * * *"}))
    lakes.settle()
    assert lakes.new_runs() == {"b": 1}
    lakes.context.pass_time(timedelta(hours=1))
    lakes.settle()
    lakes.push("a")
    lakes.settle()
    assert lakes.new_runs() == {}, "the slot is over, there was nothing new at it"
    lakes.context.pass_time(timedelta(hours=1))
    lakes.settle()
    assert lakes.new_runs() == {"b": 1}
    lakes.context.annotate("Dataset", "b", requestedAt="now")
    lakes.settle()
    assert lakes.new_runs() == {"b": 1}


@pytest.mark.parametrize("settings", [{"suspend": True}, {"minRecords": 100}, {"schedule": {"cron": "@daily"}}])
def test_derivative_skips_waiting_for_input_that_cannot_advance(settings: dict[str, Any]) -> None:
    lakes = Lakes(a="", b="a", c="a", d="b c")
    lakes.settle()
    lakes.new_runs()
    schedule = settings.pop("schedule", None)
    lakes.edit("c", transform=settings, **({} if schedule is None else {"schedule": schedule}))
    lakes.settle()
    lakes.new_runs()
    lakes.push("a")
    lakes.settle()
    assert lakes.new_runs() == {"b": 1, "d": 1}


def test_derivative_waits_for_slow_input_up_to_max_wait() -> None:
    lakes = Lakes(a="", b="a", c="a", d=derived("b", "c", maxWait="5m"))
    lakes.settle()
    lakes.new_runs()
    lakes.push("a")
    lakes.settle(but=("c",))
    assert lakes.new_runs() == {"b": 1}, "d waits for c"
    again = lakes.context.settle("Dataset", "d").requeue_after
    assert again is not None
    lakes.context.pass_time(timedelta(minutes=5))
    lakes.settle(but=("c",))
    assert lakes.new_runs() == {"d": 1}


def test_derivative_runs_without_waiting_for_failed_input() -> None:
    lakes = Lakes(a="", b="a", c="a", d="b c")
    lakes.settle()
    lakes.new_runs()
    lakes.push("a")
    lakes.decide()
    lakes.context.job_fails("c-transform-2", FailureClass.REPORT, "TransformInvalid", "no such column")
    lakes.settle()
    assert lakes.new_runs() == {"b": 1, "d": 1}
    assert lakes.condition("c") == ("False", "TransformInvalid")
    assert "no such column" in lakes.context.message("Dataset", "c")
    lakes.push("a")
    lakes.settle()
    assert lakes.new_runs() == {"b": 1, "c": 1, "d": 1}, "what is new is another cause"
    assert lakes.condition("c") == ("True", "Succeeded")


# --- what stands in the way ------------------------------------------------------------------------------------------


def test_derivative_cycle_is_refused_with_path_of_cycle() -> None:
    lakes = Lakes(a="", b="a d", c="b", d="c", e="d")
    lakes.settle()
    for name in "bcd":
        assert lakes.condition(name) == ("False", "Cycle")
        assert lakes.context.kstatus("Dataset", name) == "Failed"
    assert "b from d from c from b" in lakes.context.message("Dataset", "b")
    assert lakes.condition("e") == ("False", "InputNotReady")
    lakes.edit("b", metadata=[transform("a")])
    lakes.settle()
    assert lakes.new_runs() == {"b": 1, "c": 1, "d": 1, "e": 1}
    assert lakes.condition("e") == ("True", "Succeeded")


def test_derivative_of_itself_is_refused_as_cycle() -> None:
    lakes = Lakes(b="b")
    lakes.decide()
    assert lakes.condition("b") == ("False", "Cycle")


def test_derivative_with_missing_input_waits_then_fails_then_recovers() -> None:
    lakes = Lakes(b="a")
    lakes.decide()
    assert lakes.condition("b") == ("False", "InputMissing")
    assert lakes.context.kstatus("Dataset", "b") == "InProgress"
    lakes.context.pass_time(timedelta(minutes=6))
    lakes.decide()
    assert lakes.context.kstatus("Dataset", "b") == "Failed"
    lakes.context.create("Dataset", "a", {"storeRef": {"name": "lake"}, "ledger": _ledger("")})
    lakes.decide()
    assert lakes.condition("b") == ("False", "InputNotReady")
    status = lakes.dataset("a").status.model_copy(update={"inspected_time": START})
    lakes.context.resources["Dataset", "a"] = lakes.dataset("a").model_copy(update={"status": status})
    lakes.settle()
    assert lakes.new_runs() == {"b": 1}
    assert lakes.condition("b") == ("True", "Succeeded")


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"storeRef": {"name": "lake"}}, "has no ledger"),
        ({"storeRef": {"name": "other"}, "ledger": {"metadata": []}}, "is in another ObjectStore, 'other'"),
    ],
)
def test_derivative_with_invalid_input_names_reason(spec: dict[str, Any], why: str) -> None:
    lakes = Lakes(b="a")
    lakes.context.create("Dataset", "a", spec)
    lakes.context.reconcile("Dataset", "b")
    assert lakes.condition("b") == ("False", "TransformInvalid")
    assert why in lakes.context.message("Dataset", "b")


def test_derivative_input_resolves_by_did() -> None:
    lakes = Lakes(a="", b="did:odf:a")
    lakes.settle()
    assert lakes.new_runs() == {"b": 1}
    chain = lakes.dataset("b").status.ledger
    assert chain is not None
    assert [each.name for each in chain.inputs] == ["a"]


def test_derivative_graph_with_many_paths_is_reconciled_quickly() -> None:
    rungs = 24  # 2^24 ways from the last to the first
    shape = {"a0": "", "b0": "a0"}
    for number in range(1, rungs):
        shape |= {f"{side}{number}": f"a{number - 1} b{number - 1}" for side in "ab"}
    lakes = Lakes(**shape)
    for name in shape:  # as if all had run
        inputs = shape[name].split()
        read = tuple(LedgerInput(id=f"did:odf:{each}", alias="x", block=f"{each}-1", offset=0) for each in inputs)
        state = LedgerState(id=f"did:odf:{name}", head=f"{name}-1", blocks=2, records=1, inputs=read)
        lakes.chains[name] = state
    lakes.inspect()
    started = time.perf_counter()
    lakes.context.reconcile("Dataset", f"a{rungs - 1}")
    assert time.perf_counter() - started < 20


def test_derivative_cycle_above_existing_chains_is_reported() -> None:
    lakes = Lakes(a="", b="a", c="b", d="c", e="d c")
    lakes.settle()
    lakes.edit("b", metadata=[transform("a", "d")])
    lakes.push("a")
    lakes.settle()
    assert [lakes.condition(name)[1] for name in "bcde"] == ["Cycle", "Cycle", "Cycle", "Succeeded"]


# --- evolution -------------------------------------------------------------------------------------------------------


def test_transform_edit_is_recorded_in_ledger_before_next_run() -> None:
    lakes = Lakes(a="", b="a")
    lakes.settle()
    lakes.new_runs()
    lakes.edit("b", metadata=[transform("a", query="SELECT 1 AS one FROM x")])
    lakes.decide()
    assert lakes.open_jobs() == ["b-ledger-2"]
    lakes.context.job_fails("b-ledger-2", FailureClass.REPORT, "TransformChanged", "there is data of another query")
    lakes.decide()
    assert lakes.condition("b") == ("False", "TransformChanged")
    assert lakes.open_jobs() == [], "nothing runs until a person has decided"
    lakes.edit("b", transform={"onChange": "Continue"})
    lakes.decide()
    job = lakes.context.launches[-1].job
    assert isinstance(job, LedgerJob)
    assert (job.job, job.on_change) == ("b-ledger-3", "Continue")
    lakes.settle()
    assert lakes.new_runs() == {"b": 1}
    assert lakes.condition("b") == ("True", "Succeeded")


def test_derivative_with_diverged_input_is_reported_and_retried_after_edit() -> None:
    lakes = Lakes(a="", b="a")
    lakes.settle()
    lakes.new_runs()
    lakes.push("a")
    lakes.decide()
    lakes.context.job_fails("b-transform-2", FailureClass.REPORT, "InputDiverged", "a has another history")
    lakes.settle()
    assert lakes.condition("b") == ("False", "InputDiverged")
    lakes.edit("b", transform={"onChange": "Reset"})
    lakes.settle()
    assert lakes.new_runs() == {"b": 1}
    assert lakes.condition("b") == ("True", "Succeeded")


def test_derivative_with_recreated_input_records_new_identity() -> None:
    lakes = Lakes(a="", b="a")
    lakes.settle()
    lakes.chains["a"] = LedgerState(id="did:odf:other", head="other-1", blocks=2, records=1)
    lakes.inspect()
    lakes.decide()
    assert lakes.open_jobs() == ["b-ledger-2"], "the chain names its inputs by identity"
