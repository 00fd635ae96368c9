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
def world() -> Fake:
    return Fake(allowed_source_hosts=("x",))


def ledger(*events: Any, **more: Any) -> dict[str, Any]:
    return {"metadata": list(events), **more}


def chained(version: int = 1, **changes: Any) -> DatasetState:
    chain = {"id": "did:odf:fed01", "head": f"f1620{version}", "blocks": version + 1, "records": 10 * version} | changes
    return seen(version, ledger=LedgerState(**chain))


def with_chain(world: Fake, *events: Any, **more: Any) -> None:
    """A Dataset whose chain was created."""
    with_dataset(world, ledger=ledger(*events, **more))
    world.job_ends("flights-ledger-1", dataset=chained())
    world.settle(*KEY)


def jobs_of(world: Fake, kind: type[LedgerJob | PollJob | CommitJob]) -> list[Any]:
    return [launch.job for launch in world.launches if isinstance(launch.job, kind)]


def test_the_chain_is_created_before_anything_else_with_a_key_that_is_made_once(world: Fake) -> None:
    with_dataset(world, ledger=ledger(POLLED, types="Spec"))
    assert world.condition(*KEY) == ("Unknown", "Progressing")
    assert world.identities == ["flights-identity"]
    (job,) = jobs_of(world, LedgerJob)
    assert (job.job, job.types, job.view, job.metadata) == ("flights-ledger-1", "Spec", True, (POLLED,))
    assert world.launches[-1].mounts == {job.identity_dir: "flights-identity"}
    world.create("Commit", "early", COMMIT_SPEC)
    world.settle("Commit", "early")
    assert world.condition("Commit", "early") == ("False", "DependencyNotReady")
    world.job_ends("flights-ledger-1", dataset=chained())
    world.settle(*KEY)
    assert world.condition(*KEY) == ("True", "Succeeded")
    chain = world.dataset.status.ledger
    assert chain is not None
    assert (chain.id, chain.head, chain.blocks, chain.records) == ("did:odf:fed01", "f16201", 2, 10)
    assert world.identities == ["flights-identity"]


def test_spec_version_is_given_to_the_job_and_an_edit_of_it_is_one(world: Fake) -> None:
    with_dataset(world, ledger=ledger(INFO))
    world.job_ends("flights-ledger-1", dataset=chained())
    world.settle(*KEY)
    assert [job.spec_version for job in jobs_of(world, LedgerJob)] == [None]
    world.edit(*KEY, ledger=ledger(INFO, specVersion="0.39"))
    world.settle(*KEY)
    assert [job.spec_version for job in jobs_of(world, LedgerJob)] == [None, "0.39"]


def test_a_secret_that_is_named_is_not_made(world: Fake) -> None:
    with_dataset(world, ledger=ledger(INFO, identitySecretRef={"name": "mine"}))
    assert world.identities == []
    assert [*world.launches[-1].mounts.values()] == ["mine"]


def test_a_chain_that_cannot_be_created_stops_everything_until_an_edit(world: Fake) -> None:
    with_dataset(world, ledger=ledger(INFO))
    world.job_fails("flights-ledger-1", FailureClass.REPORT, "DatasetExists")
    world.settle(*KEY)
    assert world.condition(*KEY) == ("False", "LedgerNotCreated")
    assert not world.dataset.writable
    world.edit(*KEY, ledger=ledger(INFO, POLLED))
    world.settle(*KEY)
    assert [job.job for job in jobs_of(world, LedgerJob)] == ["flights-ledger-1", "flights-ledger-2"]


def test_an_edit_appends_events_and_commits_go_on_meanwhile(world: Fake) -> None:
    with_chain(world, PUSHED)
    world.edit(*KEY, ledger=ledger(PUSHED, INFO))
    world.settle(*KEY)
    job = jobs_of(world, LedgerJob)[-1]
    assert (job.job, job.metadata, job.identity_dir) == ("flights-ledger-2", (PUSHED, INFO), None)
    assert world.condition(*KEY) == ("True", "Succeeded")
    world.job_fails("flights-ledger-2", FailureClass.REPORT, "EventInvalid")
    world.settle(*KEY)
    assert world.condition(*KEY) == ("False", "LedgerStalled")
    assert world.dataset.writable
    world.edit(*KEY, ledger=ledger(PUSHED))
    world.settle(*KEY)
    world.job_ends("flights-ledger-3", dataset=chained())
    world.settle(*KEY)
    assert world.condition(*KEY) == ("True", "Succeeded")


def test_the_source_is_polled_once_for_each_edit_and_request(world: Fake) -> None:
    with_chain(world, POLLED, envSecretRef={"name": "tokens"})
    (job,) = jobs_of(world, PollJob)
    assert (job.job, job.allowed_hosts, job.allow_local) == ("flights-poll-1", ("x",), False)
    assert world.launches[-1].mounts == {job.env_dir: "tokens"}
    world.job_ends("flights-poll-1", dataset=chained(2), poll=PollOutcome(version=2, commits=1, records=10))
    world.settle(*KEY)
    polling = world.dataset.status.polling
    assert polling is not None
    assert (polling.commits, polling.records, polling.done, polling.time) == (1, 10, True, world.now)
    world.pass_time(timedelta(days=3))
    world.settle(*KEY)
    assert len(jobs_of(world, PollJob)) == 1, "without a schedule there is no other cause"
    world.annotate(*KEY, requestedAt="now")
    world.settle(*KEY)
    assert [job.job for job in jobs_of(world, PollJob)] == ["flights-poll-1", "flights-poll-2"]


def test_each_slot_of_the_schedule_is_a_poll_and_failures_wait_for_the_next(world: Fake) -> None:
    with_chain(world, POLLED, schedule={"cron": "0 * * * *", "jitter": "10m"})
    world.job_ends("flights-poll-1", dataset=chained(2), poll=PollOutcome())
    again = world.settle(*KEY).requeue_after
    assert again is not None
    assert timedelta(hours=1) <= again <= timedelta(hours=1, minutes=10)
    world.pass_time(again)
    world.settle(*KEY)
    assert len(jobs_of(world, PollJob)) == 2
    world.job_fails("flights-poll-2", FailureClass.REPORT, "SourceNotFound", "there is no such file")
    world.settle(*KEY)
    assert world.condition(*KEY) == ("False", "SourceStalled")
    assert "there is no such file" in world.message(*KEY)
    assert world.dataset.writable
    world.pass_time(timedelta(minutes=20))
    world.settle(*KEY)
    assert len(jobs_of(world, PollJob)) == 2
    world.pass_time(timedelta(hours=1))
    world.settle(*KEY)
    assert len(jobs_of(world, PollJob)) == 3


def test_a_server_that_is_away_is_tried_again_within_the_slot(world: Fake) -> None:
    with_chain(world, POLLED, schedule={"cron": "@daily"})
    world.job_fails("flights-poll-1", FailureClass.RETRY, "SourceUnavailable")
    outcome = world.settle(*KEY)
    assert world.condition(*KEY) == ("True", "Succeeded")
    assert outcome.requeue_after is not None
    world.pass_time(outcome.requeue_after)
    world.settle(*KEY)
    assert [job.job for job in jobs_of(world, PollJob)] == ["flights-poll-1", "flights-poll-2"]


def test_a_schedule_that_names_no_time_is_said_and_the_source_is_polled_at_edits(world: Fake) -> None:
    with_chain(world, POLLED, schedule={"cron": "0 0 30 2 *"})
    assert world.condition(*KEY) == ("False", "InvalidSchedule")
    assert len(jobs_of(world, PollJob)) == 1


def test_a_suspended_ledger_starts_nothing(world: Fake) -> None:
    with_dataset(world, ledger=ledger(POLLED), suspend=True)
    assert jobs_of(world, LedgerJob) == []
    assert world.identities == []


def test_a_chain_that_another_cluster_made_is_found_and_only_checked(world: Fake) -> None:
    with_dataset(world, chained(7), ledger=ledger(PUSHED))
    (job,) = jobs_of(world, LedgerJob)
    assert job.identity_dir is None
    assert world.identities == []
    assert world.condition(*KEY) == ("True", "Succeeded"), "commits need not wait"


def test_a_chain_that_is_gone_is_made_anew(world: Fake) -> None:
    with_chain(world, INFO)
    world.pass_time(timedelta(minutes=11))
    world.settle("ObjectStore", "lake")
    world.job_ends("lake-inspect-2", datasets=(seen(),))
    world.settle("ObjectStore", "lake")
    world.settle(*KEY)
    assert [job.job for job in jobs_of(world, LedgerJob)] == ["flights-ledger-1", "flights-ledger-2"]


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
    ],
)
def test_commits_append_through_a_push_source_and_do_nothing_else(
    world: Fake, spec: dict[str, Any], told: str | None
) -> None:
    with_chain(world, PUSHED)
    world.create("Commit", "january", COMMIT_SPEC | spec)
    world.settle("Commit", "january")
    if told is None:
        (job,) = jobs_of(world, CommitJob)
        assert job.push_source == "default"
        return
    assert world.condition("Commit", "january") == ("False", "LedgerOnly")
    assert told in world.message("Commit", "january")
    assert jobs_of(world, CommitJob) == []


def test_a_push_source_goes_with_a_ledger(world: Fake) -> None:
    with_dataset(world)
    world.create("Commit", "january", COMMIT_SPEC | {"pushSource": "default"})
    world.settle("Commit", "january")
    assert world.condition("Commit", "january") == ("False", "LedgerOnly")
    world.create("Commit", "february", COMMIT_SPEC)
    world.settle("Commit", "february")
    assert jobs_of(world, CommitJob)[-1].push_source is None


def test_where_one_writer_is_safe_a_poll_waits_for_it(world: Fake) -> None:
    world.create("Dataset", "flights", {"storeRef": {"name": "lake"}, "ledger": ledger(POLLED)})
    with_store(world, chained(), conditional_writes=False)
    world.settle(*KEY)
    assert [job.job for job in jobs_of(world, LedgerJob)] == ["flights-ledger-1"]
    assert jobs_of(world, PollJob) == [], "the job that checks the events runs"
    world.job_ends("flights-ledger-1", dataset=chained())
    world.settle(*KEY)
    assert len(jobs_of(world, PollJob)) == 1


def container(image: str = "ghcr.io/acme/fetch:1", **more: Any) -> dict[str, Any]:
    return {**POLLED, "fetch": {"kind": "Container", "image": image, "command": ["fetch"], **more}}


@pytest.fixture
def open_world() -> Fake:
    return Fake(allowed_source_images=("ghcr.io/acme/*",))


def test_a_container_that_is_allowed_runs_in_the_pod_of_its_poll(open_world: Fake) -> None:
    with_chain(open_world, container())
    (job,) = jobs_of(open_world, PollJob)
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
def test_a_container_that_may_not_run_is_told_and_commits_go_on(
    open_world: Fake, fetch: dict[str, Any], reason: str, told: str
) -> None:
    with_chain(open_world, fetch)
    assert open_world.condition(*KEY) == ("False", reason)
    assert told in open_world.message(*KEY)
    assert open_world.dataset.writable
    assert jobs_of(open_world, PollJob) == []
    open_world.edit(*KEY, ledger=ledger(container()))
    open_world.settle(*KEY)
    open_world.job_ends("flights-ledger-2", dataset=chained())
    open_world.settle(*KEY)
    assert open_world.condition(*KEY) == ("True", "Succeeded")
    assert len(jobs_of(open_world, PollJob)) == 1


def test_while_a_container_has_more_a_poll_follows_at_once(open_world: Fake) -> None:
    with_chain(open_world, container())
    for number in (1, 2):
        more = PollOutcome(version=number, commits=1, records=10, has_more=True)
        open_world.job_ends(f"flights-poll-{number}", dataset=chained(number + 1), poll=more)
        open_world.settle(*KEY)
    assert [job.job for job in jobs_of(open_world, PollJob)] == [f"flights-poll-{number}" for number in (1, 2, 3)]
    open_world.job_ends("flights-poll-3", dataset=chained(4), poll=PollOutcome(version=3, commits=1, records=1))
    open_world.settle(*KEY)
    assert len(jobs_of(open_world, PollJob)) == 3
    open_world.annotate(*KEY, requestedAt="now")
    open_world.settle(*KEY)
    open_world.job_ends("flights-poll-4", dataset=chained(5), poll=PollOutcome(version=4, commits=1, has_more=True))
    open_world.settle(*KEY)
    open_world.job_fails("flights-poll-5", FailureClass.REPORT, "SourceFailed", "it broke")
    open_world.settle(*KEY)
    assert open_world.condition(*KEY) == ("False", "SourceStalled")
    assert len(jobs_of(open_world, PollJob)) == 5, "after a failure the source rests"


def test_an_edit_replaces_a_poll_whose_image_cannot_be_pulled(open_world: Fake) -> None:
    with_chain(open_world, container("ghcr.io/acme/typo"))
    open_world.job_is(
        "flights-poll-1", JobPhase.PENDING, "ImagePullFailed", 'Back-off pulling image "ghcr.io/acme/typo"'
    )
    open_world.settle(*KEY)
    assert open_world.condition(*KEY) == ("False", "SourceStalled")
    assert "acme/typo" in open_world.message(*KEY)
    open_world.edit(*KEY, ledger=ledger(container()))
    open_world.settle(*KEY)
    open_world.job_ends("flights-ledger-2", dataset=chained())
    open_world.settle(*KEY)
    assert open_world.cancelled == ["flights-poll-1"]
    assert [job.container.image for job in jobs_of(open_world, PollJob)] == [
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
def test_which_images_a_rule_covers(rule: str, covered: list[str], not_covered: list[str]) -> None:
    assert [image for image in covered if not is_allowed(image, [rule])] == []
    assert [image for image in not_covered if is_allowed(image, [rule])] == []
