"""Remote signing: a reader without credentials of the bucket, by pyiceberg's own signer against a real S3 server."""

from __future__ import annotations

import io
import posixpath
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http import HTTPMethod
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import boto3
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import urllib3
from aiohttp import web
from botocore import UNSIGNED
from botocore.config import Config
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.exceptions import NoSuchTableError, SignError
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.io.fsspec import S3V4RestSigner

from kubothek.catalog import Lake
from kubothek.dataset import Dataset
from kubothek.errors import FormatInvalid
from kubothek.gateway.iceberg.signing import SignRequest, is_table_file, sign
from kubothek.storage import Presigned, Store, StoreConfig, open_store
from kubothek.table.iceberg.objects import _Stored
from kubothek.table.log import DatasetLog
from tests.faultproxy import FaultProxy, Status
from tests.gateway.running import READER, Running, running
from tests.gateway.test_iceberg import AS_READER, PLANES, catalogue, error, load
from tests.gateway.test_objects import Answered, ask
from tests.s3server import S3Server

pytestmark = [pytest.mark.slow, pytest.mark.s3]

SIGN = f"{PLANES}/sign"
DELEGATED = {"header.X-Iceberg-Access-Delegation": "remote-signing"}


@pytest.fixture
def store(s3: S3Server, secret: Path, bucket: str) -> Store:
    return open_store(StoreConfig(f"s3://{bucket}/lake", endpoint=s3.endpoint, credentials_dir=str(secret)))


@pytest.fixture
def planes(store: Store) -> Dataset:
    found = Lake(store).create_dataset("planes", partition_on=["town"])
    found.append(pa.table({"town": ["a b", "50%", "ö/+"], "seats": [1, 2, 3]}))
    Lake(store).create_dataset("planes2").append(pa.table({"seats": [4]}))
    return found


@pytest.fixture
def gateway(store: Store, planes: Dataset) -> Iterator[Running]:
    with running(store) as gateway:
        yield gateway


class Unsigned(FileIO):
    """Objects of a bucket, by a client without credentials whose requests pyiceberg has signed."""

    def __init__(self, properties: dict[str, Any]) -> None:
        super().__init__(properties)
        config = Config(signature_version=UNSIGNED, s3={"addressing_style": "path"})
        self.client = boto3.client(
            "s3", endpoint_url=properties["s3.endpoint"], region_name=properties["s3.region"], config=config
        )
        self.client.meta.events.register_last("before-sign.s3", S3V4RestSigner(properties), unique_id=1925)  # type: ignore[arg-type]

    def read(self, location: str, **more: Any) -> bytes:
        parts = urlsplit(quote(location, safe=":/"))
        key = location.removeprefix(f"s3://{parts.netloc}/")
        assert self.client.head_object(Bucket=parts.netloc, Key=key)["ContentLength"]
        return self.client.get_object(Bucket=parts.netloc, Key=key, **more)["Body"].read()

    def new_input(self, location: str) -> InputFile:
        return _Stored(location, self.read(location))

    def new_output(self, location: str) -> OutputFile:
        raise NotImplementedError

    def delete(self, location: object) -> None:
        raise NotImplementedError


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """pyiceberg's FileIO for signed requests needs s3fs; this one has the same signer."""
    monkeypatch.setattr("pyiceberg.io._import_file_io", lambda name, properties: Unsigned(properties))


@pytest.mark.usefixtures("reader")
def test_client_without_credentials_reads_signed_files(planes: Dataset, gateway: Running) -> None:
    table = catalogue(gateway, READER, **DELEGATED).load_table("default.planes")
    assert isinstance(table.io, Unsigned)
    read = {}
    for task in table.scan().plan_files():
        data = table.io.read(task.file.file_path)
        assert table.io.read(task.file.file_path, Range="bytes=0-3") == b"PAR1"
        read[task.file.partition[0]] = pq.read_table(io.BytesIO(data))["seats"].to_pylist()
    assert read == {"a b": [1], "50%": [2], "ö/+": [3]}
    signed = [line["signed"] for line in gateway.lines if line["path"].endswith("/sign")]
    assert {each.partition(" ")[0] for each in signed} == {"GET", "HEAD"}
    for name in ("planes2/table/x.parquet", ".kubothek/planes/owner.json", "planes.by-dataset-metadata.json"):
        with pytest.raises(SignError):
            table.io.read(f"{planes_root(table.location())}/{name}")


def planes_root(location: str) -> str:
    return location.partition("/.kubothek/")[0]


def sign_request(gateway: Running, uri: str, method: str = "GET", /, **headers: list[str]) -> Answered:
    body = {"region": "us-east-1", "method": method, "uri": uri, "headers": headers}
    return ask(gateway, SIGN, "POST", orjson.dumps(body), **AS_READER)


def data_file(store: Store) -> str:
    return next(info.key for info in store.list("planes/") if info.key.endswith(".parquet"))


def url(store: Store, key: str) -> str:
    bucket = urlsplit(store.url)
    return f"{store.config.endpoint}/{bucket.netloc}{bucket.path}/{quote(key)}"


def fetch(uri: str, method: str = "GET", **headers: str) -> int:
    return urllib3.request(method, uri, headers=headers, retries=False).status


def test_signature_is_valid_for_one_key_method_and_time(store: Store, planes: Dataset, gateway: Running) -> None:
    key = data_file(store)
    answer = sign_request(gateway, url(store, key), **{"x-amz-checksum-mode": ["ENABLED"], "range": ["bytes=0-3"]})
    assert answer.status == 200
    signed = orjson.loads(answer.body)
    assert signed["headers"] == {"x-amz-checksum-mode": ["ENABLED"]}
    headers = {"x-amz-checksum-mode": "ENABLED"}
    assert fetch(signed["uri"], **headers) == 200
    assert fetch(signed["uri"], Range="bytes=0-3", **headers) == 206
    assert fetch(signed["uri"]) == 403  # without a signed header
    for method in ("HEAD", "PUT", "DELETE"):
        assert fetch(signed["uri"], method, **headers) == 403
    other = next(info.key for info in store.list("planes/") if info.key.endswith(".parquet") and info.key != key)
    assert fetch(signed["uri"].replace(quote(key), quote(other)), **headers) == 403
    later = sign(store, "planes", SignRequest("GET", url(store, key), {}), 1).url
    assert fetch(later) == 200
    time.sleep(2.1)
    assert fetch(later) == 403
    assert fetch(later.replace("X-Amz-Expires=1&", "X-Amz-Expires=100&")) == 403


def test_request_for_another_object_or_method_is_not_signed(store: Store, planes: Dataset, gateway: Running) -> None:
    key = data_file(store)
    fine = url(store, key)
    bucket = fine.partition("/lake/")[0]
    assert sign_request(gateway, f"{fine}?x-id=GetObject").status == 200
    for method in ("PUT", "DELETE", "POST", "get", ""):
        assert error(sign_request(gateway, fine, method)) == (403, "ForbiddenException")
    for uri in (
        f"{fine}?versionId=1",
        f"{bucket}?list-type=2&prefix=lake",
        f"{bucket}/{key}",
        f"{bucket}/lake/planes/../planes2/table/x.parquet",
        f"{bucket}/lake/planes/%2e%2e/planes2/table/x.parquet",
        f"{bucket}/lake/planes//x.parquet",
        f"{bucket}/lake/planes2/table/x.parquet",
        f"{bucket}/lake/planes/indices/town/x.parquet",
        f"{bucket}/lake/.kubothek/planes/commits/x.parquet",
        f"{bucket}/lake/.kubothek/planes2/iceberg/metadata/v1.metadata.json",
        f"{bucket}-other/lake/{key}",
        f"http://elsewhere/{key}",
        "",
    ):
        assert error(sign_request(gateway, uri)) == (403, "ForbiddenException"), uri
    assert error(ask(gateway, SIGN, "POST", b"{}")) == (401, "NotAuthorizedException")
    assert error(sign_request(gateway, "http://[")) == (400, "BadRequestException")


def test_signing_is_off_without_presigned_urls(store: Store, planes: Dataset) -> None:
    with running(store, presigned=0) as gateway:
        config = orjson.loads(load(gateway, X_Iceberg_Access_Delegation="remote-signing").body)["config"]
        assert config.keys() == {"s3.endpoint", "s3.path-style-access", "s3.region", "client.region"}
        assert error(sign_request(gateway, url(store, data_file(store)))) == (403, "ForbiddenException")


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("a-b/table/x.parquet", True),
        (".kubothek/a-b/iceberg/metadata/v1.metadata.json", True),
        ("a/b/x.parquet", False),  # of the dataset ``a``
        ("a-b/table/_common_metadata", False),
        ("a-b/indices/x/y.parquet", False),
        (".kubothek/a-b/iceberg/../commits/x", False),
        ("a-b/../c/x.parquet", False),
        ("a-b.by-dataset-metadata.json", False),
        ("a-b", False),
    ],
)
def test_file_of_table_is_known_by_its_key(key: str, expected: bool) -> None:
    assert is_table_file("a-b", key) is expected


def test_last_export_is_answered_if_store_is_read_only(s3: S3Server, store: Store, planes: Dataset) -> None:
    exported = planes.export_iceberg()
    planes.delete("town = 'a b'")
    with FaultProxy(s3.endpoint) as proxy:
        denied = proxy.inject(Status(403, "AccessDenied"), method="PUT", times=10**6)
        with running(open_store(replace(store.config, endpoint=proxy.endpoint)), public=("planes2",)) as gateway:
            found = catalogue(gateway)
            assert found.list_tables("default") == [("default", "planes"), ("default", "planes2")]
            for _ in range(2):
                assert found.load_table("default.planes").metadata_location == exported.metadata_location
            assert denied.arrived.is_set()
            with pytest.raises(NoSuchTableError, match="`kubothek iceberg planes2`"):
                found.load_table("default.planes2")
            assert found.list_tables("default") == [("default", "planes")]
            DatasetLog(store, "planes").delete()
            with pytest.raises(NoSuchTableError):
                found.load_table("default.planes")


def test_load_is_503_and_then_repaired_if_export_breaks_off(s3: S3Server, store: Store, planes: Dataset) -> None:
    with (
        FaultProxy(s3.endpoint) as proxy,
        running(open_store(replace(store.config, endpoint=proxy.endpoint))) as gateway,
    ):
        broken = proxy.inject(Status(400, "Strange"), method="PUT", path="metadata.json")
        assert error(load(gateway)) == (503, "ServiceUnavailableException")
        assert broken.arrived.is_set()
        assert load(gateway).status == 200


class Signing:
    """A bucket whose signatures are the keys that it signed."""

    def __init__(self, endpoint: str | None) -> None:
        self.config = StoreConfig("s3://bucket/lake", endpoint=endpoint)
        self.url = self.config.url

    def presigned(self, method: HTTPMethod, key: str, seconds: int, headers: Mapping[str, str]) -> Presigned:
        return Presigned(key, headers)


def signed_key(uri: str, endpoint: str | None) -> str:
    store: Any = Signing(endpoint)
    return sign(store, "planes", SignRequest("GET", uri, {}), 60).url


@pytest.mark.parametrize(
    ("endpoint", "root"),
    [
        (None, "https://bucket.s3.eu-west-1.amazonaws.com"),
        (None, "https://s3.eu-west-1.amazonaws.com/bucket"),
        ("http://bucket.example:9000", "http://bucket.example:9000/bucket"),
        ("http://s3.example:9000", "http://bucket.s3.example:9000"),
    ],
)
def test_bucket_may_be_in_host_or_in_path(endpoint: str | None, root: str) -> None:
    assert signed_key(f"{root}/lake/planes/table/a%2520b/x.parquet", endpoint) == "planes/table/a%20b/x.parquet"


SEGMENTS = (
    "bucket lake planes planes2 .. . %2e%2e %2E. table x.parquet .kubothek iceberg commits indices %2F..%2F ?x # \\"
)


@settings(max_examples=1000)
@given(
    host=st.sampled_from(["http://s3", "http://bucket.s3", "http://[", "http:/", "", "//bucket.s3@x"]),
    path=st.lists(st.one_of(st.sampled_from(SEGMENTS.split()), st.just(""), st.text(max_size=3)), max_size=9),
)
def test_no_uri_signs_another_object(host: str, path: list[str]) -> None:
    try:
        key = signed_key("/".join([host, "bucket", "lake", *path]), "http://s3")
    except (FormatInvalid, web.HTTPForbidden):
        return
    assert posixpath.normpath(key) == key
    assert key.startswith((".kubothek/planes/iceberg/", "planes/"))
    assert not key.startswith("planes/indices/")
