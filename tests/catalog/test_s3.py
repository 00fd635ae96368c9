"""The whole door against a real S3 server."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import kubothek
from kubothek.catalog import Dataset, Lake
from kubothek.errors import AccessDenied, InvalidCredentials, StoreError, VersionIncomplete
from tests.s3server import S3Server

pytestmark = pytest.mark.s3


@pytest.fixture
def lake(s3: S3Server, secret: Path, bucket: str) -> Lake:
    return kubothek.open(f"s3://{bucket}/ware/house", endpoint=s3.endpoint, credentials_dir=str(secret))


@pytest.fixture
def flights(lake: Lake) -> Dataset:
    dataset = lake.create_dataset("flights", partition_on=["carrier"])
    dataset.append(pa.table({"carrier": ["a/b", "..", "ü", ""] * 50, "delay": list(range(200))}))
    return dataset


def test_dataset_on_s3_is_written_read_and_queried(lake: Lake, flights: Dataset) -> None:
    flights.append(pa.table({"carrier": ["x y"], "delay": [-1]}))
    assert lake.datasets() == ["flights"]
    assert flights.rows == 201
    assert flights.scan().read_all()["delay"].sort().to_pylist() == list(range(-1, 200))
    assert flights.scan(where="carrier = 'a/b'").read_all().num_rows == 50
    assert lake.sql("SELECT sum(delay) s FROM flights WHERE carrier = 'ü'").read_all()["s"].to_pylist() == [5000]
    assert flights.scan(as_of=2).read_all().num_rows == 200
    assert [file.all_rows for file in flights.plan("delay < 0").files] == [True], "the footers of the others tell"
    assert flights.scan(["carrier"], "delay IN (-1, 3)").read_all()["carrier"].to_pylist() == ["", "x y"]


def test_open_on_s3_uses_credentials_from_environment(
    s3: S3Server, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    dataset = kubothek.open(lake.store.url, endpoint=s3.endpoint).create_dataset("a")
    dataset.append(pa.table({"x": [1]}))
    assert dataset.scan().read_all().to_pylist() == [{"x": 1}]


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_open_on_s3_uses_endpoint_from_environment_for_all_requests(
    s3: S3Server, secret: Path, bucket: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv(name, s3.endpoint)
    lake = kubothek.open(f"s3://{bucket}/environment", credentials_dir=str(secret))
    assert lake.store.config.endpoint == s3.endpoint
    dataset = lake.create_dataset("a")
    dataset.append(pa.table({"x": [1]}))
    assert dataset.scan().read_all().to_pylist() == [{"x": 1}]


def test_scan_and_query_on_s3_with_missing_file_raise_version_incomplete(lake: Lake, flights: Dataset) -> None:
    key = next(info.key for info in lake.store.list("flights/table/carrier=../"))
    lake.store.delete([key])
    with pytest.raises(VersionIncomplete, match="carrier="):
        flights.scan().read_all()
    with pytest.raises(VersionIncomplete, match="carrier="):
        lake.sql("SELECT * FROM flights").read_all()


def test_scan_on_s3_with_wrong_secret_raises_credentials_error(flights: Dataset, secret: Path) -> None:
    dataset = flights.arrow_dataset()
    (secret / "AWS_SECRET_ACCESS_KEY").write_text("wrong")
    with pytest.raises((InvalidCredentials, AccessDenied)) as refused:
        flights.scan()
    assert isinstance(refused.value, StoreError)
    assert dataset.count_rows() == 200, "what was opened before goes on with the credentials it had"
