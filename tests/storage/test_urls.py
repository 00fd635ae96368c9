"""Store URLs and endpoints: what they mean, and the message for what they cannot mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubothek.errors import InputError
from kubothek.storage import StoreConfig, open_store
from kubothek.storage.urls import FileLocation, S3Location, parse_url


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("s3://bucket", S3Location("bucket", "")),
        ("s3://bucket/", S3Location("bucket", "")),
        ("s3://bucket/a/b", S3Location("bucket", "a/b/")),
        ("s3://bucket/a%20b/", S3Location("bucket", "a%20b/")),
        ("s3://my.bucket-1/p", S3Location("my.bucket-1", "p/")),
        ("file:///data/lake", FileLocation(Path("/data/lake"))),
        ("file:///data/lake/", FileLocation(Path("/data/lake"))),
        ("file://localhost/data", FileLocation(Path("/data"))),
        ("file:///my%20data/50%25", FileLocation(Path("/my data/50%"))),
    ],
)
def test_store_url_is_parsed_into_location(url: str, location: S3Location | FileLocation) -> None:
    assert parse_url(url) == location


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("", "is not a store URL"),
        ("/data/lake", "did you mean file:///data/lake?"),
        ("lake/x y", "/lake/x%20y?"),
        ("s3:bucket", "s3://bucket"),
        ("S3://bucket", "is not a store URL"),
        ("s3a://bucket", "s3://bucket"),
        ("http://host/bucket", "is not a store URL"),
        ("s3://", "'' is no bucket name"),
        ("s3://b", "is no bucket name"),
        ("s3://user:secret@bucket", "is no bucket name"),
        ("s3://bucket:9000/x", "is no bucket name"),
        ("s3://bucket//x", "empty"),
        ("s3://bucket/../x", r"'\.\.'"),
        ("file://data/lake", "no host"),
        ("file:data", "file:///absolute/path"),
        ("file:///data?x", "%3F"),
        ("file:///data#x", "%23"),
        ("file:///data/../etc", r"'\.\.'"),
        ("file:///data/%2e%2e/etc", r"'\.\.'"),
    ],
)
def test_invalid_store_url_is_refused_with_hint(url: str, hint: str) -> None:
    with pytest.raises(InputError, match=hint):
        open_store(StoreConfig(url))


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "host:9000",
        "ftp://host",
        "http://",
        "http://host/path",
        "http://u:p@host",
        "http://host:x",
        "http://h?q",
    ],
)
def test_s3_endpoint_other_than_bare_http_address_is_refused(endpoint: str) -> None:
    with pytest.raises(InputError, match="is no S3 endpoint"):
        open_store(StoreConfig("s3://bucket", endpoint))


def test_s3_settings_on_directory_store_are_refused() -> None:
    for config in (
        StoreConfig("file:///data", endpoint="http://host"),
        StoreConfig("file:///data", region="eu-central-1"),
        StoreConfig("file:///data", credentials_dir="/secret"),
    ):
        with pytest.raises(InputError, match="is a directory"):
            open_store(config)
