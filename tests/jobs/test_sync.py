"""Syncs as jobs: from a web server, a gateway and a directory, and back; interrupted, tampered with, refused."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest

from kubothek.api.jobs import ExitCode, JobResult
from kubothek.errors import SourceRefused
from kubothek.ingest import UrlPolicy
from kubothek.odf import Layout, verify
from kubothek.odf.dataset import Root
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log import DatasetLog
from tests.gateway.running import READER, WRITER, running
from tests.jobs.conftest import UUID, Here
from tests.odf.dataset.planes import LEDGER, made, push
from tests.odf.dataset.planes import table as table_of_planes
from tests.odf.sync.static import Static, static
from tests.testcluster.pki import Authority

pytestmark = pytest.mark.slow

LOCAL = {"allowed_hosts": ("*",), "allow_local": True}


@pytest.fixture(scope="module")
def twelve(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A chain of a dozen slices."""
    store = open_store(StoreConfig(tmp_path_factory.mktemp("twelve").as_uri()))
    made(store, LEDGER)
    for number in range(1, 13):
        push(store, {number: f"model {number}"})
    return store


@pytest.fixture
def other(twelve: Store, tmp_path: Path) -> Store:
    """That of the other party."""
    return copied(twelve, tmp_path / "other")


@pytest.fixture
def web(other: Store) -> Iterator[Static]:
    with static(other) as web:
        yield web


def sync(here: Here, url: str, direction: str = "Pull", uuid: str = UUID, **job: Any) -> dict[str, Any]:
    remote = {"url": url, **LOCAL, **job.pop("remote", {})}
    spec = {**here.job("sync"), "remote": remote, "direction": direction, **job}
    return {**spec, "dataset": {**spec["dataset"], "uuid": uuid}}


def done(here: Here, job: dict[str, Any]) -> JobResult:
    """A sync that must succeed."""
    result, code = here.run(job)
    assert (code, result.outcome) == (ExitCode.DONE, "Succeeded"), result
    assert result.sync is not None
    return result


def refused(here: Here, job: dict[str, Any]) -> JobResult:
    """One that must tell a person, and leave the dataset as it was."""
    before = here.head()
    result, code = here.run(job)
    assert (code, result.outcome, result.retryable) == (ExitCode.INVALID, "Failed", False), result
    assert here.head() == before
    return result


def secret(here: Here, **values: str) -> dict[str, Any]:
    directory = here.root.with_name("secret")
    directory.mkdir(exist_ok=True)
    for name, value in values.items():
        (directory / name).write_text(value)
    return {"secret_dir": str(directory)}


def pulled(here: Here) -> Root:
    return Root(here.store, DatasetLog(here.store, UUID))


# --- pull ------------------------------------------------------------------------------------------------------------


def test_pull_job_creates_dataset_with_table_and_rerun_changes_nothing(here: Here, other: Store, web: Static) -> None:
    job = sync(here, web.url)
    result = done(here, job)
    assert result.sync is not None
    assert (result.sync.relation, result.sync.version, result.sync.objects) == ("Ahead", result.dataset.version, 12)  # type: ignore[union-attr]
    assert result.sync.bytes == sum(len(other.get(f".kubothek/planes/odf/{path}")) for path in data(web))
    assert result.dataset is not None
    assert result.dataset.ledger is not None
    assert (result.dataset.ledger.head, result.dataset.owner) == (result.sync.head, "cluster/default/flights")
    assert {row["id"] for row in here.rows("id")} == set(range(1, 13))
    assert verify(here.store, Layout(f".kubothek/{UUID}/odf/")).sound
    web.asked.clear()
    before, again = here.head(), done(here, job)
    assert again.sync is not None
    assert (again.sync.relation, again.sync.blocks, again.message[:11]) == ("Equal", 0, "nothing new")
    assert (web.asked, here.head()) == (["refs/head"], before)


def data(web: Static) -> list[str]:
    return [path for path in web.asked if path.startswith("data/")]


def test_pull_job_without_view_creates_chain_only(here: Here, web: Static) -> None:
    done(here, sync(here, web.url, view=False))
    assert here.rows() == []
    assert pulled(here).state.length > 12


def test_pull_job_reports_progress(here: Here, web: Static) -> None:
    result = done(here, sync(here, web.url))
    told, stages = here.progress(), [step["stage"] for step in here.progress()]
    assert list(dict.fromkeys(stages)) == ["Comparing", "Transferring", "Committing"]
    assert result.sync is not None
    last = told[-1]
    assert (last["tasks_done"], last["tasks_total"], last["blocks"]) == (12, 12, result.sync.blocks)
    assert last["bytes"] == last["bytes_total"] == result.sync.bytes


def test_killed_pull_job_resumes_transfer(here: Here, other: Store, web: Static) -> None:
    blocks = Root(other, DatasetLog(other, "planes")).state.length
    web.dies = 1 + blocks + 5
    job = here.write(sync(here, web.url))
    with subprocess.Popen([sys.executable, "-m", "kubothek.jobs.main", job], stderr=subprocess.DEVNULL) as process:
        kept = here.root / ".kubothek" / UUID / "odf/data"
        deadline = time.monotonic() + 300
        while len(web.asked) <= web.dies or len(list(kept.glob("*"))) < 5:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.kill()
    assert len(web.asked) > web.dies
    arrived = set(data(web)[:5])
    assert here.head() is None, "nothing of it is to be seen"
    web.dies = None
    web.asked.clear()
    result = done(here, sync(here, web.url))
    assert result.sync is not None
    assert (result.sync.blocks, result.sync.objects) == (blocks, 7)
    assert not [path for path in web.asked if path.startswith("blocks/")], "all blocks had come"
    assert len(data(web)) == 7
    assert not arrived & set(data(web))
    assert {row["id"] for row in here.rows("id")} == set(range(1, 13))


def test_concurrent_pull_jobs_create_one_dataset(here: Here, web: Static) -> None:
    both, ended = Barrier(2), list[JobResult]()

    def run(number: int) -> None:
        job = sync(here, web.url) | {"job": f"run-sync-{number}"}
        both.wait()
        ended.append(here.run(job)[0])

    threads = [Thread(target=run, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(result.outcome == "Succeeded" or result.retryable for result in ended), ended
    again = done(here, sync(here, web.url))
    assert again.sync is not None
    assert again.sync.relation == "Equal"
    assert sorted(row["id"] for row in here.rows("id")) == list(range(1, 13))


@pytest.mark.parametrize("kind", ["data", "blocks"])
def test_pull_of_altered_object_is_refused_and_names_object(here: Here, web: Static, kind: str) -> None:
    def flipped(path: str, body: bytes) -> bytes:
        return body[:-1] + bytes([body[-1] ^ 1]) if path.startswith(f"{kind}/") else body

    web.change = flipped
    result = refused(here, sync(here, web.url))
    assert result.reason == "Corrupt"
    names = (path.partition("/")[2] for path in web.asked if path.startswith(f"{kind}/"))
    assert any(name in result.message for name in names)
    assert here.head() is None
    web.change = lambda path, body: body
    done(here, sync(here, web.url))


def test_pull_from_unreachable_server_is_retryable(here: Here) -> None:
    result, code = here.run(sync(here, "http://127.0.0.1:1/flights"))
    assert (code, result.reason, result.retryable) == (ExitCode.TRANSIENT, "StoreUnavailable", True)


def test_pull_of_missing_dataset_is_refused(here: Here, web: Static) -> None:
    assert refused(here, sync(here, f"{web.url}/elsewhere")).reason == "DatasetNotFound"


def test_pull_of_diverged_chain_is_refused_unless_forced(here: Here, other: Store, web: Static, tmp_path: Path) -> None:
    done(here, sync(here, web.url))
    ours = pulled(here).state.head
    twin = copied(other, tmp_path / "twin")
    push(other, {100: "theirs"})
    push(twin, {200: "another's"})
    done(here, sync(here, web.url))
    with static(twin) as elsewhere:
        result = refused(here, sync(here, elsewhere.url))
        assert result.reason == "Diverged"
        assert "only here" in result.message
        forced = done(here, sync(here, elsewhere.url, force=True))
    assert forced.sync is not None
    assert forced.sync.relation == "Diverged"
    assert {row["id"] for row in here.rows("id")} == {*range(1, 13), 200}
    assert pulled(here).state.head != ours


def copied(store: Store, root: Path) -> Store:
    shutil.copytree(store.url.removeprefix("file://"), root)
    return open_store(StoreConfig(root.as_uri()))


# --- gateways --------------------------------------------------------------------------------------------------------


def test_sync_job_with_token_reads_gateway_by_either_protocol(here: Here, other: Store) -> None:
    with running(other) as gateway:
        url = gateway.smart()
        assert refused(here, sync(here, url)).reason == "InvalidCredentials"
        lacking = refused(here, sync(here, url, remote=secret(here)))
        assert lacking.message.startswith("the Repository's Secret has no key 'token'")
        assert refused(here, sync(here, url, remote=secret(here, token="two words"))).reason == "InvalidInput"
        assert refused(here, sync(here, url, remote=secret(here, token="of-nobody-at-all"))).reason in (
            "InvalidCredentials",
            "AccessDenied",
        )
        done(here, sync(here, url, remote=secret(here, token=f"{READER}\n")))
        assert done(here, sync(here, gateway.url(), remote=secret(here))).message.startswith("nothing new")
    assert {row["id"] for row in here.rows("id")} == set(range(1, 13))


def test_push_job_to_gateway_creates_dataset_and_sends_nothing_twice(here: Here, tmp_path: Path) -> None:
    made(here.store, LEDGER)
    push(here.store, {1: "A", 2: "B"})
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    store = open_store(StoreConfig(theirs.as_uri()))
    with running(store) as gateway:
        job = sync(here, gateway.smart("fresh"), "Push", "planes", remote=secret(here, token=WRITER))
        job["dataset"]["claim"] = {"owner": "", "incarnation": ""}
        first = done(here, job)
        assert first.sync is not None
        assert (first.sync.objects, first.sync.version, first.dataset) == (1, None, None)
        assert first.sync.bytes > 0
        again = done(here, job)
        assert again.sync is not None
        assert (again.sync.relation, again.sync.objects) == ("Equal", 0)
        reader = {**job, "remote": {**job["remote"], **secret(here, token=READER)}}
        push(here.store, {3: "C"})
        result, code = here.run(reader)
        assert code == ExitCode.INVALID, result
    assert Root(store, DatasetLog(store, "fresh")).state.next_offset == 2


def test_push_job_into_directory_creates_repository_for_pull(here: Here, tmp_path: Path) -> None:
    made(here.store, LEDGER)
    push(here.store, {1: "A", 2: "B"})
    target = tmp_path / "out"
    target.mkdir()
    url = f"{target.as_uri()}/planes"
    (target / "planes").mkdir()
    result = done(here, sync(here, url, "Push", "planes"))
    assert result.sync is not None
    assert (result.sync.relation, result.sync.objects) == ("Ahead", 1)
    done(here, sync(here, url))
    assert {row["id"]: row["model"] for row in here.rows("id")} == table_of_planes(here.store) == {1: "A", 2: "B"}


# --- where it may go -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "hosts", "reason"),
    [
        ("https://example.org/flights", (), "not on the operator's list"),
        ("odf+https://example.org/flights", ("example.com",), "not on the operator's list"),
        ("https://example.org:8443/flights", ("example.org",), "port 8443 is not on the operator's list"),
        ("file:///etc", ("*",), "outside a cluster only"),
        ("s3+https://example.org/bucket/flights", (), "not on the operator's list"),
        ("http://127.0.0.1/flights", ("*",), "not a public address"),
        ("http://127.0.0.1/flights", ("127.0.0.1",), "not a public address"),
        ("odf+http://169.254.169.254/flights", ("169.254.169.254",), "not a public address"),
        ("http://10.0.0.1/flights", ("*",), "not a public address"),
    ],
)
def test_sync_job_to_host_outside_allowed_list_is_refused(
    here: Here, url: str, hosts: tuple[str, ...], reason: str
) -> None:
    result = refused(here, sync(here, url, remote={"allowed_hosts": hosts, "allow_local": False}))
    assert result.reason in ("SourceRefused", "AccessDenied")
    assert reason in result.message


def test_sync_job_to_s3_endpoint_checks_allowed_hosts(here: Here) -> None:
    remote = {"endpoint": "http://127.0.0.1:9000", "allowed_hosts": ("127.0.0.1:9000",), "allow_local": False}
    assert "not a public address" in refused(here, sync(here, "s3://bucket/flights", remote=remote)).message


def test_private_address_is_allowed_only_by_exact_name() -> None:
    def resolved(host: str, *allowed: str) -> list[tuple[str, int]]:
        policy = UrlPolicy(allowed, named_private=True)
        return policy.resolve(policy.check(f"https://{host}/"))

    assert resolved("10.1.2.3", "10.1.2.3") == [("10.1.2.3", 443)]
    for host, allowed in (("10.1.2.3", "*"), ("127.0.0.1", "127.0.0.1"), ("169.254.169.254", "169.254.169.254")):
        with pytest.raises(SourceRefused, match="not a public address"):
            resolved(host, allowed)


def test_sync_job_with_ca_bundle_trusts_only_its_certificates(here: Here, web: Static, tmp_path: Path) -> None:
    authority = Authority("theirs")
    authority.issue("server", hosts=("127.0.0.1",)).write(tmp_path, "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    web.server.socket = context.wrap_socket(web.server.socket, server_side=True)
    url = web.url.replace("http://", "https://")
    stranger = Authority("another").pair.certificate_pem
    result, code = here.run(sync(here, url, remote={"ca_bundle": stranger}))
    assert (code, result.reason) == (ExitCode.TRANSIENT, "StoreUnavailable")
    assert "CERTIFICATE_VERIFY_FAILED" in result.message
    assert done(here, sync(here, url, remote={"ca_bundle": authority.pair.certificate_pem})).sync is not None


def test_sync_job_with_invalid_ca_bundle_is_refused(here: Here) -> None:
    pem = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"
    result = refused(here, sync(here, "https://127.0.0.1:1/flights", remote={"ca_bundle": pem}))
    assert "caBundle of the Repository holds no certificates" in result.message
