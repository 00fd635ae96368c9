from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kubothek.api.jobs import Progress
from kubothek.jobs.own_pod import OwnPod
from kubothek.jobs.progress import PodAnnotation, Reporter

pytestmark = pytest.mark.slow


def told(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line)["progress"] for line in out.getvalue().splitlines()]


def test_progress_stage_is_reported_at_once_and_then_rate_limited() -> None:
    now = [0.0]
    out = io.StringIO()
    reporter = Reporter(out, clock=lambda: now[0])
    reporter.report("Starting")
    for step in range(100):
        now[0] = step * 0.1
        reporter.report("Writing", step, 100, step * 1000)
    reporter.report("Committing")
    stages = [progress["stage"] for progress in told(out)]
    assert stages[0] == "Starting"
    assert stages[-1] == "Committing"
    assert 15 <= stages.count("Writing") <= 25
    assert told(out)[1] == {"stage": "Writing", "tasks_done": 0, "tasks_total": 100, "rows": 0}


def test_unchanged_progress_is_not_reported_again() -> None:
    now = [0.0]
    out = io.StringIO()
    reporter = Reporter(out, clock=lambda: now[0])
    for _ in range(3):
        now[0] += 10
        reporter.report("Reading")
    assert len(told(out)) == 1


class ApiServer:
    def __init__(self, status: int = 200) -> None:
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.arrived = threading.Semaphore(0)
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_PATCH(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                api.requests.append((self.path, dict(self.headers), body))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()
                api.arrived.release()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture(params=[200])
def api(request: pytest.FixtureRequest) -> Iterator[ApiServer]:
    api = ApiServer(request.param)
    thread = threading.Thread(target=api.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield api
    api.server.shutdown()
    thread.join()
    api.server.server_close()


@pytest.fixture
def account(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("secret-token")
    return tmp_path


def test_progress_is_written_as_pod_annotation(api: ApiServer, account: Path) -> None:
    annotation = PodAnnotation(OwnPod("team-a", "flights-1", server=api.url, account=account), seconds=60)
    with Reporter(io.StringIO(), annotation) as reporter:
        reporter.report("Writing", 1, 4, 1000)
        assert api.arrived.acquire(timeout=60)
    path, headers, body = api.requests[0]
    assert path == "/api/v1/namespaces/team-a/pods/flights-1"
    assert headers["Authorization"] == "Bearer secret-token"
    assert headers["Content-Type"] == "application/merge-patch+json"
    written = Progress.model_validate_json(body["metadata"]["annotations"]["kubothek.io/progress"])
    assert written == Progress(stage="Writing", tasks_done=1, tasks_total=4, rows=1000)


def test_progress_annotations_are_rate_limited_and_newest_wins(api: ApiServer, account: Path) -> None:
    annotation = PodAnnotation(OwnPod("ns", "pod", server=api.url, account=account), seconds=1)
    for number in range(50):
        annotation.set(Progress(stage="Writing", rows=number))
    assert api.arrived.acquire(timeout=60)
    annotation.set(Progress(stage="Writing", rows=98))
    annotation.set(Progress(stage="Writing", rows=99))
    assert api.arrived.acquire(timeout=60)
    annotation.stop()
    assert len(api.requests) == 2
    assert '"rows":99' in api.requests[1][2]["metadata"]["annotations"]["kubothek.io/progress"]


@pytest.mark.parametrize("api", [403], indirect=True)
def test_refused_progress_annotation_does_not_fail_job(api: ApiServer, account: Path) -> None:
    annotation = PodAnnotation(OwnPod("ns", "pod", server=api.url, account=account), seconds=1)
    for number in range(2):
        annotation.set(Progress(stage="Writing", rows=number))
        assert api.arrived.acquire(timeout=60)
    annotation.stop()


def test_progress_annotation_outside_pod_is_none() -> None:
    assert PodAnnotation.of({}) is None
