"""What the operator tells of a run and hands to its jobs: one trace, whoever tells a part of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kubothek.api.kinds import manifest_of, parse
from kubothek.api.meta import Resource
from kubothek.cluster import names
from kubothek.cluster.config import TracingConfig
from kubothek.cluster.pods import job_pod
from kubothek.cluster.telemetry.traces import Traces
from kubothek.controller.scheduling.run_spans import run_kind, run_kind_of, trace_of_job
from kubothek.tracing import Ended, Place, started
from tests.cluster import podshapes
from tests.cluster.test_pods import CONFIG, launch

CREATED, STARTED, ENDED = "2026-11-21T11:59:00Z", "2026-11-21T12:00:00Z", "2026-11-21T12:05:01Z"
COLLECTOR = "http://otel.tracing:4318"
ACTION = launch()
ACTION = replace(
    ACTION,
    owner=ACTION.owner.model_copy(
        update={
            "metadata": ACTION.owner.metadata.model_validate(
                {**ACTION.owner.metadata.model_dump(by_alias=True), "creationTimestamp": CREATED}
            )
        }
    ),
)


def environment(ratio: float) -> dict[str, str]:
    config = replace(CONFIG, tracing=TracingConfig(COLLECTOR, ratio))
    (driver,) = job_pod.driver_pod(ACTION, config)["spec"]["containers"]
    return {each["name"]: each.get("value", "") for each in driver["env"]}


def commit(*conditions: dict[str, Any], **status: Any) -> dict[str, Any]:
    """The Commit of the job as the API server has it."""
    status = {"startTime": STARTED, "conditions": list(conditions), **status}
    return {**manifest_of(ACTION.owner), "status": status}


def pod(**shape: Any) -> dict[str, Any]:
    """The pod of the job as a kubelet reports it."""
    found = podshapes.pod(**shape)
    found["metadata"] |= {"labels": job_pod.driver_pod(ACTION, CONFIG)["metadata"]["labels"], "name": "january-2"}
    return found


def told_by(ratio: float = 1.0) -> list[Ended]:
    """What an operator tells that sees a job run and end, and then its Commit."""
    told: list[Ended] = []
    traces, owner = Traces(ratio), commit()
    with started(told.append):
        with traces.launching(ACTION):
            pass
        running, done = (
            pod(phase="Running", state=podshapes.running()),
            pod(
                phase="Failed",
                state=podshapes.exited(3, '{"outcome":"Failed","reason":"InputInvalid","message":"row 7"}'),
            ),
        )
        traces.pod(None, running, owner)
        traces.pod(running, done, owner)
        traces.pod(done, done, owner)
        traces.pod(running, done, None)
        failed = {"type": "Failed", "status": "True", "reason": "InputInvalid", "lastTransitionTime": ENDED}
        traces.resource("Commit", owner, commit(failed))
        traces.resource("Commit", commit(failed), commit(failed))
        traces.resource("Commit", None, commit(failed))
    return told


def test_commit_and_job_form_one_trace_continued_in_pod() -> None:
    told = told_by()
    parents = {each.place.span: each.name for each in told}
    assert [(parents.get(each.parent or 0), each.name) for each in told] == [
        ("attempt", "launch"),
        ("attempt", "pending"),
        ("Commit", "attempt"),
        ("Commit", "queue wait"),
        (None, "Commit"),
    ]
    assert len({each.place.trace for each in told}) == 1
    by_name = {each.name: each for each in told}
    attempt = by_name["attempt"]
    assert environment(1.0) | {
        "OTEL_EXPORTER_OTLP_ENDPOINT": COLLECTOR,
        "TRACEPARENT": attempt.place.header,
    } == environment(1.0)
    assert Place.of_header(environment(1.0)["TRACEPARENT"]) == attempt.place
    assert (attempt.error, attempt.attributes["k8s.node.name"]) == ("InputInvalid: row 7", "n1")
    assert (by_name["pending"].end - by_name["pending"].begin) // 10**9 == 10
    assert (by_name["queue wait"].end - by_name["queue wait"].begin) // 10**9 == 60
    assert told_by()[1:] == told[1:], "another operator tells the same"


def test_reconcile_without_action_is_not_traced() -> None:
    told: list[Ended] = []
    now = ACTION.owner.metadata.creation_timestamp
    assert now is not None
    with started(told.append):
        Traces(1.0).round("Commit", commit(), now, now, did=[])
        Traces(1.0).round("Dataset", commit(), now, now, did=["LaunchJob"])
        Traces(1.0).round("Commit", commit(), now, now, did=["LaunchJob", "status"])
    (one,) = told
    assert (one.name, one.attributes) == ("reconcile", {"kubothek.did": "LaunchJob, status"})


def test_unsampled_run_is_not_traced() -> None:
    assert told_by(0.0) == []
    assert not {"TRACEPARENT", "OTEL_EXPORTER_OTLP_ENDPOINT"} & environment(0.0).keys()
    (driver,) = job_pod.driver_pod(ACTION, CONFIG)["spec"]["containers"]
    assert driver["name"] == names.DRIVER_CONTAINER
    assert "TRACEPARENT" not in {each["name"] for each in driver["env"]}


def test_jobs_of_standing_query_are_traces_of_their_own() -> None:
    spec = {"sql": "SELECT 1", "storeRef": {"name": "lake"}, "result": {"datasetRef": {"name": "top"}}}
    meta = {"name": "top", "uid": "u", "creationTimestamp": CREATED}

    def owner(spec: dict[str, Any]) -> Resource:
        manifest = {"apiVersion": "kubothek.io/v1alpha1", "kind": "Query", "metadata": meta, "spec": spec}
        assert run_kind_of("Query", manifest) == run_kind(parse(manifest))
        return parse(manifest)

    def traces(query: Resource) -> set[int]:
        jobs = (ACTION.job.model_copy(update={"job": f"top-query-{number}"}) for number in (1, 2))
        return {trace_of_job(replace(ACTION, owner=query, job=job)).run.trace for job in jobs}

    assert len(traces(owner(spec))) == 1
    assert len(traces(owner(spec | {"schedule": {"cron": "@hourly"}}))) == 2
    assert len(traces(owner(spec | {"follow": [{"name": "flights"}]}))) == 2
