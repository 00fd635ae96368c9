"""A driver that waits: how it gets a job from its pod, and what it leaves of its rehearsal."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kubothek.api.jobs import Ended, JobResult, SparkSettings, signed
from kubothek.jobs import outcome, warm
from kubothek.jobs.own_pod import OwnPod
from kubothek.spark import session

pytestmark = pytest.mark.slow

JOB = {"kubothek.io/job-spec": '{"verb": "commit"}', "kubothek.io/executor-template": '{"kind": "Pod"}'}


def event(annotations: dict[str, str], kind: str = "MODIFIED") -> bytes:
    return json.dumps({"type": kind, "object": {"metadata": {"annotations": annotations}}}).encode() + b"\n"


class Api:
    """Answers each watch with the next of these; the last one with the job."""

    def __init__(self, *watches: bytes | int) -> None:
        self.watches = [*watches, event({}, "ADDED") + event({}, "BOOKMARK") + event(JOB)]
        self.annotated: list[dict[str, str]] = []
        self.refuses = 0
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                assert "fieldSelector=metadata.name%3Dw-1" in self.path
                answer = api.watches.pop(0)
                self.send_response(answer if isinstance(answer, int) else 200)
                self.end_headers()
                self.wfile.write(b"" if isinstance(answer, int) else answer)

            def do_PATCH(self) -> None:
                body: Any = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                api.refuses -= 1
                if api.refuses < 0:
                    api.annotated.append(body["metadata"]["annotations"])
                self.send_response(200 if api.refuses < 0 else 503)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def served() -> Iterator[list[Api]]:
    """APIs that are put here are served."""
    apis: list[Api] = []
    yield apis
    for api in apis:
        api.server.shutdown()
        api.server.server_close()


def pod_of(api: Api, served: list[Api], account: Path) -> OwnPod:
    served.append(api)
    threading.Thread(target=api.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    (account / "token").write_text("secret-token")
    return OwnPod("lake", "w-1", server=api.url, account=account)


@pytest.mark.parametrize(
    "watches",
    [
        (),
        (b"",),  # its time is over
        (event({})[:-20],),  # cut
        (410, 429, 500),
    ],
    ids=["at once", "ended", "cut", "refused"],
)
def test_warm_driver_receives_job_from_pod_annotation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served: list[Api], watches: tuple[bytes | int, ...]
) -> None:
    monkeypatch.setattr(warm, "_PAUSE_SECONDS", 0.01)
    monkeypatch.setenv("KUBOTHEK_EXECUTOR_TEMPLATE", "")
    api = Api(*watches)
    api.refuses = 2
    job = warm.take(pod_of(api, served, tmp_path), tmp_path)
    assert json.loads(job.read_text()) == {"verb": "commit"}
    assert json.loads(Path(os.environ["KUBOTHEK_EXECUTOR_TEMPLATE"]).read_text()) == {"kind": "Pod"}
    (annotations,) = api.annotated  # said once, when it can be heard
    ((name, moment),) = annotations.items()
    assert name == "kubothek.io/ready"
    assert datetime.now(UTC) - datetime.fromisoformat(moment) < timedelta(minutes=5)
    assert api.watches == []


def test_warm_driver_reports_success_with_time_and_signature(tmp_path: Path, served: list[Api]) -> None:
    api = Api()
    pod = pod_of(api, served, tmp_path)
    private, public = signed.new_key()
    (tmp_path / "result-key").write_bytes(private)
    done, environ = (
        JobResult(outcome="Succeeded", reason="Succeeded", message="done"),
        {"KUBOTHEK_PRIVATE": str(tmp_path)},
    )
    outcome.report_success(done, pod, environ)
    (annotated,) = api.annotated
    text = signed.verified(annotated["kubothek.io/result"], public)
    assert Ended.model_validate_json(text or "").result.message == "done"
    api.refuses = 1
    outcome.report_success(done, pod, environ)  # fails, and nothing else
    outcome.report_success(done, pod, {})
    (tmp_path / "result-key").write_bytes(b"short")
    outcome.report_success(done, pod, environ)
    assert len(api.annotated) == 1, "without a key nothing is told"


def test_warm_driver_rehearsal_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    warm.rehearse(SparkSettings(from_bytes=1 << 30))
    assert list(tmp_path.iterdir()) == []


def test_warm_driver_ignores_unreachable_store_during_preparation(tmp_path: Path) -> None:
    warm.prepare({"KUBOTHEK_WARM_STORE": json.dumps({"name": "lake", "url": f"file://{tmp_path}/missing"})})


class Session:
    """As much of a Spark session as is asked of it here."""

    def __init__(self) -> None:
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True


def test_warm_session_runs_small_work_and_is_replaced_for_large(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Session, dict[str, str]]] = []

    def start(conf: dict[str, str]) -> Session:
        made.append((Session(), conf))
        return made[-1][0]

    monkeypatch.setattr(session, "_start", start)
    monkeypatch.setattr(session, "_kept", [])
    session.keep({"spark.driver.cores": "2"}, 100)
    kept, conf = made[0]
    assert conf["spark.master"] == "local[2]"
    for _ in range(2):
        with session.running({}, 100) as found:
            assert found is kept
    assert not kept.stopped
    assert len(made) == 1
    with session.running({"spark.executor.instances": "2"}, 101) as found:
        assert kept.stopped
        assert found is made[1][0]
        assert "spark.master" not in made[1][1]
    with session.running({}) as found:
        assert found is made[2][0]
