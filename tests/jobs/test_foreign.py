"""A derivative through jobs, with an engine of another party: ours, in this process, over the contract."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from kubothek.api.jobs import ExitCode
from kubothek.errors import EngineFailed
from kubothek.jobs.transform import running_image
from kubothek.local.errors import LocalError
from kubothek.local.loop import running_engines
from tests.jobs.conftest import Here
from tests.jobs.test_transform import LARGE, Lake, lake, refs, transform
from tests.odf.engines.world import serving

pytestmark = pytest.mark.slow

__all__ = ["lake"]


def test_transform_job_drives_foreign_engine_and_reports_its_errors(lake: Lake, tmp_path: Path, here: Here) -> None:
    event = transform(LARGE, "planes")
    strange = {**event, "transform": {**event["transform"], "engine": "risingwave"}}
    result, code = lake.define("far", strange, kind="Derivative", inputs=refs("planes"), foreign=True)
    assert code == ExitCode.DONE, result
    volume = tmp_path / "volume"
    with serving(volume) as address:
        place: dict[str, Any] = {
            "image": "ghcr.io/acme/x:1",
            "address": address,
            "volume_dir": str(volume / "default-far"),
            "timeout_seconds": 60,
        }
        assert lake.ran("far", "planes", foreign=place).records == 2
        assert lake.rows("far") == {1: 180, 3: 150}
        assert '"stage": "EngineRunning"' in here.said.getvalue()
        lake.push((1, 180), (2, 190), (3, 150))
        elsewhere = {**place, "volume_dir": str(tmp_path / "elsewhere")}
        result, code = lake.run("far", "planes", foreign=elsewhere)
        assert (result.reason, result.retryable, code) == ("EngineMisbehaved", False, ExitCode.INVALID)
        assert "is not below" in result.message
        assert lake.ran("far", "planes", foreign=place).records == 3
    result, _ = lake.derive("bad", "SELECT * FROM planes QUALIFY random() > 1", "planes", foreign=True)
    with serving(volume) as address:
        result, code = lake.run("bad", "planes", foreign={**place, "address": address})
    assert (result.reason, result.retryable, code) == ("TransformInvalid", False, ExitCode.INVALID)
    assert lake.rows("far") == {1: 180, 2: 190, 3: 150}


@pytest.mark.requirement("EN-11")
def test_engine_digest_is_image_digest_of_running_container(tmp_path: Path) -> None:
    digest = "sha256:" + "5" * 64
    pods: list[Any] = [
        {"status": {}},
        {"status": {"initContainerStatuses": [{"name": "engine", "imageID": ""}]}},
        {
            "status": {
                "initContainerStatuses": [{"name": "other", "imageID": "x"}, {"name": "engine", "imageID": digest}]
            }
        },
    ]
    asked = list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers["Authorization"])
            body = json.dumps(pods[min(len(asked), len(pods)) - 1]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    (tmp_path / "token").write_text("secret")
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/api/v1/namespaces/team/pods/t-1"
        assert running_image("acme/x:1", "engine", url, account=tmp_path) == f"acme/x:1@{digest}"
        pods[:] = [
            {"status": {"initContainerStatuses": [{"name": "engine", "imageID": f"docker-pullable://a@{digest}"}]}}
        ]
        assert running_image("acme/x:1", "engine", url, account=tmp_path) == f"a@{digest}"
        pods[:] = [{"status": {}}]
        with pytest.raises(EngineFailed, match="has not been started"):
            running_image("acme/x:1", "engine", url, account=tmp_path, patience=0)
        server.shutdown()
    assert set(asked) == {"Bearer secret"}


def test_local_engines_are_parsed_from_environment_variable() -> None:
    assert running_engines("") == {}
    assert running_engines("Flink=127.0.0.1:5544/tmp/x, spark=[::1]:1/y") == {
        "flink": ("127.0.0.1:5544", "/tmp/x"),
        "spark": ("[::1]:1", "/y"),
    }
    for wrong in ("flink", "flink=host/x", "flink=host:5544", "=host:1/x", "flink=host:1/x,y"):
        with pytest.raises(LocalError, match="NAME=HOST:PORT/DIRECTORY"):
            running_engines(wrong)
