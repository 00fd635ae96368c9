"""Requests of a commit that go side by side, on a real S3 server behind a proxy."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from kubothek.errors import OwnedByAnother, StoreUnavailable
from kubothek.storage import Store, StoreConfig
from kubothek.storage.retry import RetryPolicy
from kubothek.storage.s3 import S3Store
from kubothek.storage.urls import S3Location, parse_url
from kubothek.table.log import AlreadyApplied, DatasetLog
from tests.faultproxy import FaultProxy, Hold, Status
from tests.s3server import S3Server
from tests.table.log.table import CLAIM, UUID, append, appending, present, started, write

pytestmark = pytest.mark.s3

HEAD = f"/{UUID}.by-dataset-metadata.json"
TIMES = 1000
TIMEOUT = 60


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(s3.endpoint) as running:
        yield running


@pytest.fixture
def remote(proxy: FaultProxy, bucket_config: StoreConfig) -> Store:
    location = parse_url(bucket_config.url)
    assert isinstance(location, S3Location)
    return S3Store(
        replace(bucket_config, endpoint=proxy.endpoint), location, RetryPolicy(troubled=0.0, unreachable=0.0)
    )


@pytest.fixture
def log(remote: Store) -> DatasetLog:
    log = DatasetLog(remote, UUID, claim=CLAIM)
    append(log, remote, "first", [1])
    return log


@pytest.mark.parametrize(
    ("method", "path", "looks"),
    [("GET", "/owner.json", 1), ("PUT", "/applied/second", 2)],
    ids=["claim and head", "marker and last look"],
)
def test_commit_reads_head_while_another_response_is_outstanding(
    remote: Store, log: DatasetLog, proxy: FaultProxy, method: str, path: str, looks: int
) -> None:
    proxy.reset()
    held = proxy.inject(Hold(), method=method, path=path)
    with ThreadPoolExecutor(1) as pool:
        commit = pool.submit(append, log, remote, "second", [2])
        try:
            assert held.arrived.wait(TIMEOUT)
            deadline = time.monotonic() + TIMEOUT
            while [(r.method, r.path.endswith(HEAD)) for r in proxy.requests].count(("GET", True)) < looks:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        finally:
            held.release()
        commit.result()
    assert present(remote) == [1, 2]


@pytest.mark.parametrize(("method", "path"), [("PUT", "/applied/second"), ("GET", HEAD)], ids=["marker", "last look"])
def test_commit_whose_last_request_fails_raises_but_counts_as_applied(
    remote: Store, log: DatasetLog, proxy: FaultProxy, method: str, path: str
) -> None:
    begun = started(log, "second")
    file = write(remote, "second", [2])
    proxy.inject(Status(503, "SlowDown"), method=method, path=path, times=TIMES)
    with pytest.raises(StoreUnavailable):
        begun.commit(appending(file))
    proxy.reset()
    assert isinstance(DatasetLog(remote, UUID, claim=CLAIM).begin("second", "d"), AlreadyApplied)
    assert present(remote) == [1, 2]


def test_dataset_owned_by_another_is_refused_while_head_is_unreadable(
    remote: Store, log: DatasetLog, proxy: FaultProxy
) -> None:
    proxy.inject(Status(503, "SlowDown"), method="GET", path=HEAD, times=TIMES)
    with pytest.raises(OwnedByAnother):
        DatasetLog(remote, UUID, claim=replace(CLAIM, owner="cluster/ns/other")).begin("second", "d")
