"""The jobs that make a Dataset's chain hold its events, and poll its source."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kubothek.api.jobs import CommitJob, DatasetState, LedgerJob, LedgerState, PollJob, PollOutcome
from kubothek.controller.context import FailureClass, JobPhase
from kubothek.controller.tasks.containers import is_allowed
from tests.controller.fake import COMMIT_SPEC, Fake, seen, with_dataset, with_store

KEY = ("Dataset", "flights")
READ = {"kind": "Csv", "schema": ["id BIGINT", "name STRING"]}
MERGE = {"kind": "Snapshot", "primaryKey": ["id"]}
POLLED = {"kind": "SetPollingSource", "fetch": {"kind": "Url", "url": "https://x/y"}, "read": READ, "merge": MERGE}
PUSHED = {"kind": "AddPushSource", "sourceName": "default", "read": READ, "merge": {"kind": "Append"}}
INFO = {"kind": "SetInfo", "description": "Planes"}


@pytest.fixture
def context() -> Fake:
    return Fake(allowed_source_hosts=("x",))


def ledger(*events: Any, **more: Any) -> dict[str, Any]:
    return {"metadata": list(events), **more}


def chained(version: int = 1, **changes: Any) -> DatasetState:
    chain = {"id": "did:odf:fed01", "head": f"f1620{version}", "blocks": version + 1, "records": 10 * version} | changes
    return seen(version, ledger=LedgerState(**chain))


def with_chain(context: Fake, *events: Any, **more: Any) -> None:
    """A Dataset whose chain was created."""
    with_dataset(context, ledger=ledger(*events, **more))
    context.job_ends("flights-ledger-1", dataset=chained())
    context.settle(*KEY)


def jobs_of(context: Fake, kind: type[LedgerJob | PollJob | CommitJob]) -> list[Any]:
    return [launch.job for launch in context.launches if isinstance(launch.job, kind)]


def test_ledger_chain_is_created_first_with_one_new_key(context: Fake) -> None:
    with_dataset(context, ledger=ledger(POLLED, types="Spec"))
    assert context.condition(*KEY) == ("Unknown", "Progressing")
    assert context.identities == ["flights-identity"]
    (job,) = jobs_of(context, LedgerJob)
    assert (job.job, job.types, job.view, job.metadata) == ("flights-ledger-1", "Spec", True, (POLLED,))
    assert context.launches[-1].mounts == {job.identity_dir: "flights-identity"}
    context.create("Commit", "early", COMMIT_SPEC)
    context.settle("Commit", "early")
    assert context.condition("Commit", "early") == ("False", "DependencyNotReady")
    context.job_ends("flights-ledger-1", dataset=chained())
    context.settle(*KEY)
    assert context.condition(*KEY) == ("True", "Succeeded")
    chain = context.dataset.status.ledger
    assert chain is not None
    assert (chain.id, chain.head, chain.blocks, chain.records) == ("did:odf:fed01", "f16201", 2, 10)
    assert context.identities == ["flights-identity"]


def test_spec_version_is_given_to_the_job_and_an_edit_of_it_is_one(context: Fake) -> None:
    with_dataset(context, ledger=ledger(INFO))
    context.job_ends("flights-ledger-1", dataset=chained())
    context.settle(*KEY)
    assert [job.spec_version for job in jobs_of(context, LedgerJob)] == [None]
    context.edit(*KEY, ledger=ledger(INFO, specVersion="0.39"))
    context.settle(*KEY)
    assert [job.spec_version for job in jobs_of(context, LedgerJob)] == [None, "0.39"]


def test_ledger_with_named_identity_secret_creates_no_secret(context: Fake) -> None:
    with_dataset(context, ledger=ledger(INFO, identitySecretRef={"name": "mine"}))
    assert context.identities == []
    assert [*context.launches[-1].mounts.values()] == ["mine"]


def test_ledger_that_cannot_be_created_stalls_until_edit(context: Fake) -> None:
    with_dataset(context, ledger=ledger(INFO))
    context.job_fails("flights-ledger-1", FailureClass.REPORT, "DatasetExists")
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "LedgerNotCreated")
    assert not context.dataset.writable
    context.edit(*KEY, ledger=ledger(INFO, POLLED))
    context.settle(*KEY)
    assert [job.job for job in jobs_of(context, LedgerJob)] == ["flights-ledger-1", "flights-ledger-2"]


def test_ledger_edit_appends_events_while_commits_continue(context: Fake) -> None:
    with_chain(context, PUSHED)
    context.edit(*KEY, ledger=ledger(PUSHED, INFO))
    context.settle(*KEY)
    job = jobs_of(context, LedgerJob)[-1]
    assert (job.job, job.metadata, job.identity_dir) == ("flights-ledger-2", (PUSHED, INFO), None)
    assert context.condition(*KEY) == ("True", "Succeeded")
    context.job_fails("flights-ledger-2", FailureClass.REPORT, "EventInvalid")
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "LedgerStalled")
    assert context.dataset.writable
    context.edit(*KEY, ledger=ledger(PUSHED))
    context.settle(*KEY)
    context.job_ends("flights-ledger-3", dataset=chained())
    context.settle(*KEY)
    assert context.condition(*KEY) == ("True", "Succeeded")


def test_ledger_source_is_polled_once_per_edit_and_request(context: Fake) -> None:
    with_chain(context, POLLED, envSecretRef={"name": "tokens"})
    (job,) = jobs_of(context, PollJob)
    assert (job.job, job.allowed_hosts, job.allow_local) == ("flights-poll-1", ("x",), False)
    assert context.launches[-1].mounts == {job.env_dir: "tokens"}
    context.job_ends("flights-poll-1", dataset=chained(2), poll=PollOutcome(version=2, commits=1, records=10))
    context.settle(*KEY)
    polling = context.dataset.status.polling
    assert polling is not None
    assert (polling.commits, polling.records, polling.done, polling.time) == (1, 10, True, context.now)
    context.pass_time(timedelta(days=3))
    context.settle(*KEY)
    assert len(jobs_of(context, PollJob)) == 1, "without a schedule there is no other cause"
    context.annotate(*KEY, requestedAt="now")
    context.settle(*KEY)
    assert [job.job for job in jobs_of(context, PollJob)] == ["flights-poll-1", "flights-poll-2"]


def test_ledger_schedule_polls_at_each_slot_and_failed_poll_waits_for_next(context: Fake) -> None:
    with_chain(context, POLLED, schedule={"cron": "0 * * * *", "jitter": "10m"})
    context.job_ends("flights-poll-1", dataset=chained(2), poll=PollOutcome())
    again = context.settle(*KEY).requeue_after
    assert again is not None
    assert timedelta(hours=1) <= again <= timedelta(hours=1, minutes=10)
    context.pass_time(again)
    context.settle(*KEY)
    assert len(jobs_of(context, PollJob)) == 2
    context.job_fails("flights-poll-2", FailureClass.REPORT, "SourceNotFound", "there is no such file")
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "SourceStalled")
    assert "there is no such file" in context.message(*KEY)
    assert context.dataset.writable
    context.pass_time(timedelta(minutes=20))
    context.settle(*KEY)
    assert len(jobs_of(context, PollJob)) == 2
    context.pass_time(timedelta(hours=1))
    context.settle(*KEY)
    assert len(jobs_of(context, PollJob)) == 3


def test_ledger_poll_of_unavailable_server_retries_within_slot(context: Fake) -> None:
    with_chain(context, POLLED, schedule={"cron": "@daily"})
    context.job_fails("flights-poll-1", FailureClass.RETRY, "SourceUnavailable")
    outcome = context.settle(*KEY)
    assert context.condition(*KEY) == ("True", "Succeeded")
    assert outcome.requeue_after is not None
    context.pass_time(outcome.requeue_after)
    context.settle(*KEY)
    assert [job.job for job in jobs_of(context, PollJob)] == ["flights-poll-1", "flights-poll-2"]


def test_ledger_with_invalid_schedule_is_reported_and_polls_after_edits(context: Fake) -> None:
    with_chain(context, POLLED, schedule={"cron": "0 0 30 2 *"})
    assert context.condition(*KEY) == ("False", "InvalidSchedule")
    assert len(jobs_of(context, PollJob)) == 1


def test_ledger_of_suspended_dataset_starts_no_job(context: Fake) -> None:
    with_dataset(context, ledger=ledger(POLLED), suspend=True)
    assert jobs_of(context, LedgerJob) == []
    assert context.identities == []


def test_ledger_chain_of_other_cluster_is_adopted_and_verified(context: Fake) -> None:
    with_dataset(context, chained(7), ledger=ledger(PUSHED))
    (job,) = jobs_of(context, LedgerJob)
    assert job.identity_dir is None
    assert context.identities == []
    assert context.condition(*KEY) == ("True", "Succeeded"), "commits need not wait"


def test_ledger_chain_that_disappeared_is_recreated(context: Fake) -> None:
    with_chain(context, INFO)
    context.pass_time(timedelta(minutes=11))
    context.settle("ObjectStore", "lake")
    context.job_ends("lake-inspect-2", datasets=(seen(),))
    context.settle("ObjectStore", "lake")
    context.settle(*KEY)
    assert [job.job for job in jobs_of(context, LedgerJob)] == ["flights-ledger-1", "flights-ledger-2"]


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({}, None),
        ({"pushSource": "default"}, None),
        (
            {"pushSource": "other"},
            "has no push source 'other' in spec.ledger: add an AddPushSource; there is: 'default'",
        ),
        ({"operation": "Overwrite"}, "rows change through its sources only"),
        ({"source": {"sql": "SELECT 1"}}, "let a Query write the rows to a file"),
    ],
)
def test_ledger_accepts_only_append_commits_through_push_source(
    context: Fake, spec: dict[str, Any], told: str | None
) -> None:
    with_chain(context, PUSHED)
    context.create("Commit", "january", COMMIT_SPEC | spec)
    context.settle("Commit", "january")
    if told is None:
        (job,) = jobs_of(context, CommitJob)
        assert job.push_source == "default"
        return
    assert context.condition("Commit", "january") == ("False", "LedgerOnly")
    assert told in context.message("Commit", "january")
    assert jobs_of(context, CommitJob) == []


def test_push_source_without_ledger_is_refused(context: Fake) -> None:
    with_dataset(context)
    context.create("Commit", "january", COMMIT_SPEC | {"pushSource": "default"})
    context.settle("Commit", "january")
    assert context.condition("Commit", "january") == ("False", "LedgerOnly")
    context.create("Commit", "february", COMMIT_SPEC)
    context.settle("Commit", "february")
    assert jobs_of(context, CommitJob)[-1].push_source is None


def test_ledger_poll_on_single_writer_store_waits_for_ledger_job(context: Fake) -> None:
    context.create("Dataset", "flights", {"storeRef": {"name": "lake"}, "ledger": ledger(POLLED)})
    with_store(context, chained(), conditional_writes=False)
    context.settle(*KEY)
    assert [job.job for job in jobs_of(context, LedgerJob)] == ["flights-ledger-1"]
    assert jobs_of(context, PollJob) == [], "the job that checks the events runs"
    context.job_ends("flights-ledger-1", dataset=chained())
    context.settle(*KEY)
    assert len(jobs_of(context, PollJob)) == 1


def container(image: str = "ghcr.io/acme/fetch:1", **more: Any) -> dict[str, Any]:
    return {**POLLED, "fetch": {"kind": "Container", "image": image, "command": ["fetch"], **more}}


@pytest.fixture
def open_context() -> Fake:
    return Fake(allowed_source_images=("ghcr.io/acme/*",))


def test_ledger_source_container_runs_in_poll_pod(open_context: Fake) -> None:
    with_chain(open_context, container())
    (job,) = jobs_of(open_context, PollJob)
    assert (job.container.image, job.container.output_dir) == ("ghcr.io/acme/fetch:1", "/opt/odf/out")


@pytest.mark.parametrize(
    ("fetch", "reason", "told"),
    [
        (
            container("evil/fetch"),
            "ImageNotAllowed",
            "'evil/fetch', which this operator does not allow (it allows: ghcr",
        ),
        (container(command=[]), "SourceStalled", "without a command: add fetch.command"),
    ],
)
def test_ledger_source_container_denied_is_reported_and_commits_continue(
    open_context: Fake, fetch: dict[str, Any], reason: str, told: str
) -> None:
    with_chain(open_context, fetch)
    assert open_context.condition(*KEY) == ("False", reason)
    assert told in open_context.message(*KEY)
    assert open_context.dataset.writable
    assert jobs_of(open_context, PollJob) == []
    open_context.edit(*KEY, ledger=ledger(container()))
    open_context.settle(*KEY)
    open_context.job_ends("flights-ledger-2", dataset=chained())
    open_context.settle(*KEY)
    assert open_context.condition(*KEY) == ("True", "Succeeded")
    assert len(jobs_of(open_context, PollJob)) == 1


def test_ledger_source_container_with_more_data_is_polled_immediately(open_context: Fake) -> None:
    with_chain(open_context, container())
    for number in (1, 2):
        more = PollOutcome(version=number, commits=1, records=10, has_more=True)
        open_context.job_ends(f"flights-poll-{number}", dataset=chained(number + 1), poll=more)
        open_context.settle(*KEY)
    assert [job.job for job in jobs_of(open_context, PollJob)] == [f"flights-poll-{number}" for number in (1, 2, 3)]
    open_context.job_ends("flights-poll-3", dataset=chained(4), poll=PollOutcome(version=3, commits=1, records=1))
    open_context.settle(*KEY)
    assert len(jobs_of(open_context, PollJob)) == 3
    open_context.annotate(*KEY, requestedAt="now")
    open_context.settle(*KEY)
    open_context.job_ends("flights-poll-4", dataset=chained(5), poll=PollOutcome(version=4, commits=1, has_more=True))
    open_context.settle(*KEY)
    open_context.job_fails("flights-poll-5", FailureClass.REPORT, "SourceFailed", "it broke")
    open_context.settle(*KEY)
    assert open_context.condition(*KEY) == ("False", "SourceStalled")
    assert len(jobs_of(open_context, PollJob)) == 5, "after a failure the source rests"


def test_ledger_edit_replaces_poll_with_unpullable_image(open_context: Fake) -> None:
    with_chain(open_context, container("ghcr.io/acme/typo"))
    open_context.job_is(
        "flights-poll-1", JobPhase.PENDING, "ImagePullFailed", 'Back-off pulling image "ghcr.io/acme/typo"'
    )
    open_context.settle(*KEY)
    assert open_context.condition(*KEY) == ("False", "SourceStalled")
    assert "acme/typo" in open_context.message(*KEY)
    open_context.edit(*KEY, ledger=ledger(container()))
    open_context.settle(*KEY)
    open_context.job_ends("flights-ledger-2", dataset=chained())
    open_context.settle(*KEY)
    assert open_context.cancelled == ["flights-poll-1"]
    assert [job.container.image for job in jobs_of(open_context, PollJob)] == [
        "ghcr.io/acme/typo",
        "ghcr.io/acme/fetch:1",
    ]


@pytest.mark.parametrize(
    ("rule", "covered", "not_covered"),
    [
        ("*", ["python", "ghcr.io/a/b:1"], ["a b", "", "ghcr.io/../b", "A:b"]),
        ("ghcr.io/acme/*", ["ghcr.io/acme/a:1", "ghcr.io/acme/a/b"], ["ghcr.io/acme-evil/a", "ghcr.io/acme", "acme/a"]),
        (
            "acme/fetch",
            ["acme/fetch", "docker.io/acme/fetch:2"],
            ["acme/fetcher", "ghcr.io/acme/fetch", "x/acme/fetch"],
        ),
        (
            "python:3",
            ["python:3", "docker.io/library/python:3", "docker.io/python:3"],
            ["python", "python:3.1", "me/python:3"],
        ),
        ("a/b:1", ["a/b:1"], ["a/b:1@sha256:00", "a/b@sha256:00"]),
        ("a/b@sha256:00", ["a/b@sha256:00"], ["a/b", "a/b@sha256:01"]),
        ("reg:5000/a", ["reg:5000/a:1"], ["reg:5001/a", "reg/a"]),
        ("docker.io/*", ["python", "acme/fetch"], ["Intranet/fetch", "localhost/fetch", "quay.io/acme/fetch"]),
    ],
)
def test_image_rule_matches_only_covered_images(rule: str, covered: list[str], not_covered: list[str]) -> None:
    assert [image for image in covered if not is_allowed(image, [rule])] == []
    assert [image for image in not_covered if is_allowed(image, [rule])] == []
