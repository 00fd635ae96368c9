"""Servers and stores that fail for a while, and stores that are not directories."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kubothek.api.jobs import ExitCode
from kubothek.storage import StoreConfig, open_store
from kubothek.table.log import read_settings
from kubothek.table.log.model import keys
from tests.jobs.conftest import Here
from tests.s3server import S3Server

pytestmark = pytest.mark.slow


class Web:
    """Serves one file, answering 503 to the requests whose numbers (from 1) are in ``down``."""

    def __init__(self, body: bytes, down: range) -> None:
        self.asked = 0
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                web.asked += 1
                self.send_response(503 if web.asked in down else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/x.csv"

    def __enter__(self) -> Web:
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


BODY = b"p,v\n" + b"".join(b"%d,%d\n" % (i % 3, i) for i in range(1000))
OPEN: dict[str, Any] = {"allowed_hosts": ["127.0.0.1"], "allow_local": True}
TABLE = {"partition_on": ["p"]}


def test_commit_job_reads_source_from_url(either: Here) -> None:
    with Web(BODY, down=range(0)) as web:
        either.commit(urls=[web.url], table=TABLE, **OPEN)
    assert len(either.rows()) == 1000


@pytest.mark.spark
@pytest.mark.parametrize("either", ["spark"], indirect=True)
def test_commit_task_with_transient_failure_is_retried_and_counts_once(either: Here) -> None:
    with Web(BODY, down=range(2, 3)) as web:  # the driver's request is the first, the task's the second
        result = either.commit(urls=[web.url], table=TABLE, **OPEN)
        assert web.asked == 3
    assert result.commit is not None
    assert result.commit.rows == 1000
    assert sorted(row["v"] for row in either.rows()) == list(range(1000))


@pytest.mark.spark
@pytest.mark.parametrize("either", ["spark"], indirect=True)
def test_commit_job_with_persistent_server_failure_reports_server_answer(either: Here) -> None:
    with Web(BODY, down=range(2, 99)) as web:
        result, code = either.run(either.commit_job(urls=[web.url], table=TABLE, **OPEN))
    assert (result.reason, result.retryable, code) == ("SourceUnavailable", True, ExitCode.TRANSIENT)
    assert result.message == f"'{web.url}': the server answers 503 Service Unavailable"
    assert either.head() is None


@pytest.mark.s3
def test_commit_inspect_and_delete_jobs_on_s3_succeed(either: Here, s3: S3Server, secret: Path, bucket: str) -> None:
    config = StoreConfig(f"s3://{bucket}/lake", s3.endpoint, s3.region, str(secret))
    store = open_store(config)
    store.put("in/x.csv", BODY)
    where = {
        "store": {
            "name": "lake",
            "url": config.url,
            "endpoint": s3.endpoint,
            "region": s3.region,
            "credentials_dir": str(secret),
        }
    }
    committed, code = either.run({**either.commit_job("in/x.csv", table=TABLE), **where})
    assert code == ExitCode.DONE, committed
    inspected, _ = either.run({**either.inspect_job(), **where})
    assert inspected.store is not None
    assert inspected.store.conditional_writes
    assert inspected.datasets[0] == committed.dataset
    assert inspected.datasets[0].totals.rows == 1000
    assert either.run({**either.commit_job("in/x.csv", commit_id="again", table=TABLE), **where})[1] == ExitCode.DONE
    spark = either.commit_job()["spark"]
    wish = {"commit_id": "compaction:1", "digest": "d", "spark": spark}
    compacted, code = either.run({**either.job("compact", **TABLE), **wish, **where})
    assert compacted.compact is not None, compacted
    assert (compacted.compact.version, compacted.compact.files_before, compacted.compact.files_after) == (3, 6, 3)
    tagged, code = either.run({**either.job("tag"), "tags": {"first": 1}, **where})
    assert tagged.dataset is not None, tagged
    assert tagged.dataset.tags == {"first": 1}
    healed, code = either.run({**either.job("heal", **TABLE), **where})
    assert healed.message == "nothing to repair"
    base = either.job("collect")
    target = {"name": "flights", "dataset": base.pop("dataset"), "policies": [{"versions": 1}]}
    round_ = {"targets": [target], "enforce": True, "grace_seconds": 60.0, "spark": spark}
    collected, code = either.run({**base, **round_, **where})
    assert collected.collect is not None, collected
    assert (collected.collect.datasets, collected.collect.failed, collected.collect.collected) == (1, 0, ())
    assert read_settings(store).grace.total_seconds() == 60.0
    bad, code = either.run({**either.commit_job("in/y.csv", commit_id="bad", table=TABLE), **where})
    assert (bad.reason, code) == ("SourceNotFound", ExitCode.INVALID)
    deleted, _ = either.run({**either.job("delete"), **where})
    assert deleted.dataset is not None
    assert deleted.dataset.deleted
    assert store.get(keys.job("flights", "uid-of-delete"))
    (secret / "AWS_SECRET_ACCESS_KEY").write_text("wrong")
    refused, code = either.run({**either.inspect_job(), **where})
    assert (refused.reason, refused.retryable, code) == ("InvalidCredentials", False, ExitCode.INVALID)
