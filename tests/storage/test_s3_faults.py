"""What S3Store makes of a bad network, a server in trouble, and wrong credentials."""

from __future__ import annotations

import io
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kubothek.errors import (
    AccessDenied,
    InvalidCredentials,
    ObjectNotFound,
    PreconditionFailed,
    StoreError,
    StoreUnavailable,
)
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.storage.credentials import MountedCredentials
from kubothek.storage.retry import RetryPolicy
from kubothek.storage.s3 import S3Store
from kubothek.storage.urls import S3Location, parse_url
from tests.faultproxy import Fault, FaultProxy, LostResponse, Reset, Short, Silence, Status, Truncated
from tests.s3server import S3Server

pytestmark = pytest.mark.s3

TRIES = 3


class Hasty(RetryPolicy):
    """Tries so many times, without a pause; whatever the machine's load."""

    def pause(self, attempt: int) -> float:
        return 0.0 if attempt + 1 < TRIES else math.inf


def patient_store(config: StoreConfig, patience: RetryPolicy) -> Store:
    location = parse_url(config.url)
    assert isinstance(location, S3Location)
    return S3Store(config, location, patience)


@pytest.fixture(scope="module")
def running_proxy(s3: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(s3.endpoint) as running:
        yield running


@pytest.fixture
def proxy(running_proxy: FaultProxy) -> FaultProxy:
    """One for all tests, so that all use one client: making it is what takes time."""
    running_proxy.reset()
    return running_proxy


@pytest.fixture
def config(bucket_config: StoreConfig, proxy: FaultProxy) -> StoreConfig:
    """The bucket, seen through the proxy."""
    return replace(bucket_config, endpoint=proxy.endpoint)


@pytest.fixture
def store(config: StoreConfig) -> Store:
    return patient_store(config, Hasty())


PASSING_FAULTS = [
    Reset(),
    LostResponse(),
    Status(500, "InternalError"),
    Status(502, body="<html>bad gateway</html>"),
    Status(503, "SlowDown"),
    Status(429, "TooManyRequests"),
    Status(400, "RequestTimeout"),
]


@pytest.mark.parametrize("fault", PASSING_FAULTS, ids=repr)
def test_s3_read_survives_transient_fault(store: Store, proxy: FaultProxy, fault: Fault) -> None:
    store.put("k", b"content")
    proxy.inject(fault, method="GET", times=2)
    assert store.get("k") == b"content"


@pytest.mark.parametrize("fault", PASSING_FAULTS, ids=repr)
def test_s3_write_survives_transient_fault(store: Store, proxy: FaultProxy, fault: Fault) -> None:
    proxy.inject(fault, method="PUT")
    etag = store.put("k", b"content")
    assert store.get_with_info("k")[1].etag == etag
    assert [request.method for request in proxy.requests] == ["PUT", "PUT", "GET"]


def test_s3_request_to_silent_server_is_retried(config: StoreConfig, proxy: FaultProxy) -> None:
    store = patient_store(config, Hasty(silence=0.5))
    proxy.inject(Silence(), method="PUT")
    proxy.inject(Silence(), method="GET")
    store.put("k", b"content")
    assert store.get("k") == b"content"


def test_s3_truncated_body_is_fetched_again(store: Store, proxy: FaultProxy) -> None:
    store.put("k", b"content")
    proxy.inject(Truncated(3), method="GET")
    assert store.get("k") == b"content"


def test_s3_reader_survives_transient_faults(store: Store, proxy: FaultProxy) -> None:
    data = os.urandom(2 << 20)
    store.put("k", data)
    with store.open("k") as file:
        proxy.inject(Truncated(1000), method="GET")
        proxy.inject(Status(503, "SlowDown"), method="GET")
        assert file.read() == data


def test_s3_range_response_that_is_too_short_raises_error(store: Store, proxy: FaultProxy) -> None:
    store.put("k", bytes(2 << 20))
    with store.open("k") as file:
        proxy.inject(Short(1000), method="GET")
        with pytest.raises(StoreError, match=r"asked for 1048576 bytes from 0 on, the server sent 1000"):
            file.read(10)


def test_s3_bucket_in_other_region_is_found_and_remembered(config: StoreConfig, proxy: FaultProxy) -> None:
    """As S3 says it: an error that names the region. Who then knows it asks there at once."""
    store = patient_store(replace(config, region="eu-west-3"), Hasty())
    store.put("k", b"content")
    proxy.reset()
    assert store.get("k") == b"content"
    assert len(proxy.requests) == 1


def test_s3_region_that_cannot_be_found_is_looked_up_once(config: StoreConfig, proxy: FaultProxy) -> None:
    store = patient_store(replace(config, region="eu-west-4"), Hasty())
    proxy.inject(Status(400, "AuthorizationHeaderMalformed"), times=1000)
    with pytest.raises(StoreError, match="AuthorizationHeaderMalformed"):
        store.put("k", b"content")
    assert [request.method for request in proxy.requests] == ["PUT", "GET"]


@pytest.mark.parametrize("fault", [Status(503, "SlowDown"), Status(429, "Throttling"), Reset()], ids=repr)
def test_s3_server_with_persistent_fault_raises_unavailable(
    store: Store, proxy: FaultProxy, fault: Fault, any_call: Callable[[Store], object]
) -> None:
    proxy.inject(fault, times=1000)
    with pytest.raises(StoreUnavailable, match=proxy.endpoint):
        any_call(store)
    assert len(proxy.requests) == TRIES


def test_s3_unreachable_endpoint_raises_unavailable_within_seconds(bucket_config: StoreConfig) -> None:
    started = time.monotonic()
    with pytest.raises(StoreUnavailable, match=r"http://127.0.0.1:1 of s3://.*is the endpoint right") as raised:
        open_store(replace(bucket_config, endpoint="http://127.0.0.1:1")).get("k")
    assert time.monotonic() - started < 40
    assert raised.value.transient


def test_s3_server_restart_is_awaited(bucket_config: StoreConfig) -> None:
    with S3Server() as server:

        class StartTheServer(RetryPolicy):
            def pause(self, attempt: int) -> float:
                if attempt == 1:
                    server.start()
                return 0.0

        server.create_bucket("lake")
        config = replace(bucket_config, url="s3://lake", endpoint=server.endpoint)
        store = patient_store(config, StartTheServer())
        store.put("k", b"content")
        server.stop()
        assert store.get("k") == b"content"


# --- conditional writes ---


def test_s3_put_if_absent_with_lost_response_fails_after_writing(store: Store, proxy: FaultProxy) -> None:
    proxy.inject(LostResponse(), method="PUT")
    with pytest.raises(PreconditionFailed):
        store.put_if_absent("k", b"ours")
    assert store.get("k") == b"ours"


def test_s3_put_if_match_with_lost_response_fails_after_writing(store: Store, proxy: FaultProxy) -> None:
    etag = store.put("k", b"old")
    proxy.inject(LostResponse(), method="PUT")
    with pytest.raises(PreconditionFailed):
        store.put_if_match("k", b"ours", etag)
    assert store.get("k") == b"ours"


@pytest.mark.parametrize("code", ["ConditionalRequestConflict", "OperationAborted"])
def test_s3_conditional_write_conflict_is_retried(store: Store, proxy: FaultProxy, code: str) -> None:
    proxy.inject(Status(409, code), method="PUT")
    store.put_if_absent("k", b"ours")
    assert store.get("k") == b"ours"


def test_probe_detects_s3_server_without_conditional_writes(store: Store, proxy: FaultProxy) -> None:
    proxy.inject(Status(501, "NotImplemented"), method="PUT", path="-new")
    found = store.probe()
    assert (found.put_if_absent, found.put_if_match) == (False, True)
    assert list(store.list("")) == []


# --- uploads in parts, deletes in batches ---


def test_s3_multipart_upload_survives_lost_parts_and_completion(
    store: Store, proxy: FaultProxy, tmp_path: Path
) -> None:
    data = os.urandom(1 << 20) * 17
    (tmp_path / "big").write_bytes(data)
    proxy.inject(Reset(), method="PUT", path="partNumber=2")
    proxy.inject(Status(503, "SlowDown"), method="PUT", path="partNumber=1")
    proxy.inject(LostResponse(), method="POST", path="uploadId=")
    with (tmp_path / "big").open("rb") as source:
        etag = store.upload("big", source)
    assert store.stat("big").etag == etag
    assert store.get("big") == data


def test_s3_abandoned_multipart_uploads_are_aborted(store: Store, proxy: FaultProxy, s3: S3Server, bucket: str) -> None:
    client = s3.client()

    def begin(key: str) -> None:
        client.create_multipart_upload(Bucket=bucket, Key=key)

    def left() -> list[str]:
        return [each["Key"] for each in client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])]

    prefix = store.url.removeprefix(f"s3://{bucket}").strip("/")
    ours, others = (f"{prefix}/{key}".lstrip("/") for key in ("table/a", "other/b"))
    for key in (ours, ours, others):
        begin(key)
    began = datetime.now(UTC)
    assert store.abort_uploads("table/", began - timedelta(hours=1)) == 0
    proxy.inject(LostResponse(), method="DELETE", path="uploadId=")  # it is done, and nobody is told
    assert store.abort_uploads("table/", began + timedelta(hours=1)) == 1
    assert left() == [others]
    proxy.inject(Status(403, "AccessDenied"), method="GET", path="uploads")
    with pytest.raises(AccessDenied):
        store.abort_uploads("other/", began + timedelta(hours=1))


def test_s3_failed_multipart_upload_leaves_no_parts(
    store: Store, proxy: FaultProxy, s3: S3Server, config: StoreConfig
) -> None:
    proxy.inject(Status(403, "AccessDenied"), method="PUT", path="partNumber=2")
    source = io.BytesIO(bytes(17 << 20))
    with pytest.raises(AccessDenied):
        store.upload("big", source)
    bucket = config.url.split("/")[2]
    assert s3.client().list_multipart_uploads(Bucket=bucket).get("Uploads", []) == []
    assert list(store.list("")) == []


def errors(**codes: str) -> Status:
    """A 200 to DeleteObjects with an error for each key."""
    entries = "".join(f"<Error><Key>ware/house/{key}</Key><Code>{code}</Code></Error>" for key, code in codes.items())
    return Status(200, body=f"<DeleteResult>{entries}</DeleteResult>")


def test_s3_batch_delete_retries_only_failed_keys(store: Store, proxy: FaultProxy) -> None:
    for key in ("a", "b", "c"):
        store.put(key, b"")
    proxy.inject(errors(b="InternalError", c="NoSuchKey"), method="POST")
    assert store.delete(["a", "b", "c"]) == 3
    first, second = (request.body for request in proxy.requests if request.method == "POST")
    assert [key in first for key in (b"/a<", b"/b<", b"/c<")] == [True, True, True]
    assert [key in second for key in (b"/a<", b"/b<", b"/c<")] == [False, True, False]


@pytest.mark.parametrize(
    ("code", "expected"),
    [("AccessDenied", AccessDenied), ("SlowDown", StoreUnavailable), ("InvalidObjectState", StoreError)],
)
def test_s3_key_that_cannot_be_deleted_is_named(
    store: Store, proxy: FaultProxy, code: str, expected: type[StoreError]
) -> None:
    proxy.inject(errors(b=code), method="POST", times=1000)
    with pytest.raises(expected, match=r"1 objects of .*house/b") as raised:
        store.delete(["a", "b"])
    assert type(raised.value) is expected


# --- credentials and rights ---


def test_s3_wrong_secret_and_missing_permission_raise_different_errors(
    config: StoreConfig, store: Store, proxy: FaultProxy, tmp_path: Path, any_call: Callable[[Store], object]
) -> None:
    (tmp_path / "AWS_ACCESS_KEY_ID").write_text("local-access-key")
    (tmp_path / "AWS_SECRET_ACCESS_KEY").write_text("wrong")
    with pytest.raises(InvalidCredentials, match="SignatureDoesNotMatch"):
        any_call(patient_store(replace(config, credentials_dir=str(tmp_path)), Hasty()))
    (tmp_path / "AWS_ACCESS_KEY_ID").write_text("nobody")
    with pytest.raises(InvalidCredentials, match=r"InvalidAccessKeyId|XAdminUserNotFound"):
        any_call(patient_store(replace(config, credentials_dir=str(tmp_path)), Hasty()))
    proxy.inject(Status(403, "AccessDenied"))
    with pytest.raises(AccessDenied, match="give the access key the right"):
        any_call(store)


@pytest.mark.parametrize("code", ["ExpiredToken", "RequestTimeTooSkewed"])
def test_s3_credential_errors_are_not_retried(store: Store, proxy: FaultProxy, code: str) -> None:
    proxy.inject(Status(403, code))
    with pytest.raises(InvalidCredentials, match=code):
        store.get("k")
    assert len(proxy.requests) == 1


@pytest.mark.parametrize("missing", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_s3_incomplete_secret_names_missing_key(config: StoreConfig, tmp_path: Path, missing: str) -> None:
    for name in {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} - {missing}:
        (tmp_path / name).write_text("x")
    with pytest.raises(InvalidCredentials, match=f"no {missing} in {tmp_path}"):
        patient_store(replace(config, credentials_dir=str(tmp_path)), Hasty()).get("k")


def test_s3_rotated_secret_is_used_without_restart(config: StoreConfig, secret: Path, tmp_path: Path) -> None:
    """As the kubelet does it: files are links into ``..data``, which is a link that it swaps."""
    versions = {"..1": "expired\n", "..2": (secret / "AWS_SECRET_ACCESS_KEY").read_text() + "\n"}
    for version, key in versions.items():
        (tmp_path / version).mkdir()
        (tmp_path / version / "AWS_ACCESS_KEY_ID").write_text("local-access-key\n")
        (tmp_path / version / "AWS_SECRET_ACCESS_KEY").write_text(key)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    (tmp_path / "..data").symlink_to("..1")
    store = patient_store(replace(config, credentials_dir=str(tmp_path)), Hasty())
    with pytest.raises(InvalidCredentials):
        store.put("k", b"")
    (tmp_path / "..data_tmp").symlink_to("..2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    store.put("k", b"")


def test_s3_credentials_are_reloaded_when_files_change(tmp_path: Path) -> None:
    """Also if the files were old when they were read, so that they are not read each time."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")

    def write(name: str, value: str) -> None:
        (tmp_path / "new").write_text(value)
        os.utime(tmp_path / "new", (0, 0))
        (tmp_path / "new").rename(tmp_path / name)

    for name in names[:2]:
        write(name, "1")
    credentials = MountedCredentials(tmp_path)
    assert credentials.get_frozen_credentials()[:3] == credentials.get_frozen_credentials()[:3] == ("1", "1", None)
    for name, expected in zip(names, [("2", "1", None), ("2", "2", None), ("2", "2", "2")], strict=True):
        write(name, "2")
        assert credentials.get_frozen_credentials()[:3] == expected
    (tmp_path / names[0]).unlink()
    with pytest.raises(InvalidCredentials, match=names[0]):
        credentials.get_frozen_credentials()


def test_s3_recently_written_credentials_are_read_each_time(tmp_path: Path) -> None:
    """A file that is written twice within a tick of the clock can look the same."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        (tmp_path / name).write_text("1")
    credentials = MountedCredentials(tmp_path)
    found = (tmp_path / "AWS_ACCESS_KEY_ID").stat()
    assert credentials.get_frozen_credentials().access_key == "1"
    (tmp_path / "AWS_ACCESS_KEY_ID").write_text("2")
    os.utime(tmp_path / "AWS_ACCESS_KEY_ID", ns=(found.st_atime_ns, found.st_mtime_ns))
    assert credentials.get_frozen_credentials().access_key == "2"


def test_s3_without_credentials_error_names_secret_keys(config: StoreConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", "/nonexistent")
    with pytest.raises(InvalidCredentials, match="name a Secret with AWS_ACCESS_KEY_ID"):
        patient_store(replace(config, credentials_dir=None), Hasty()).get("k")


# --- what is not S3 ---


@pytest.mark.parametrize(
    ("status", "body"),
    [(404, "<html>not found</html>"), (200, "<html>hello</html>"), (200, ""), (405, "")],
)
def test_s3_response_of_other_server_raises_store_error(
    store: Store, proxy: FaultProxy, status: int, body: str
) -> None:
    proxy.inject(Status(status, body=body), times=10)
    with pytest.raises(StoreError) as raised:
        list(store.list(""))
    assert not isinstance(raised.value, ObjectNotFound)
    with pytest.raises(StoreError) as raised:
        store.put("k", b"")
    assert not isinstance(raised.value, ObjectNotFound)
