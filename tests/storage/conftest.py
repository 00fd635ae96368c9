"""The stores that the conformance suite runs over: a directory, and a real S3 server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kubothek.storage import Store, StoreConfig, open_store
from tests.s3server import S3Server


@pytest.fixture
def bucket_config(s3: S3Server, secret: Path, bucket: str) -> StoreConfig:
    """A prefix of an empty bucket."""
    return StoreConfig(f"s3://{bucket}/ware/house", s3.endpoint, s3.region, str(secret))


@pytest.fixture
def directory_config(tmp_path: Path) -> StoreConfig:
    root = tmp_path / "lake"
    root.mkdir()
    return StoreConfig(root.as_uri())


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.s3)])
def config(request: pytest.FixtureRequest) -> StoreConfig:
    found: StoreConfig = request.getfixturevalue("directory_config" if request.param == "file" else "bucket_config")
    return found


@pytest.fixture
def store(config: StoreConfig) -> Store:
    return open_store(config)


@pytest.fixture
def missing_root(config: StoreConfig) -> Store:
    """A store whose directory or bucket does not exist."""
    url = "s3://no-such-bucket" if config.url.startswith("s3") else f"{config.url}/missing"
    return open_store(StoreConfig(url, config.endpoint, config.region, config.credentials_dir))


Attempt = Callable[[Store], object]


@pytest.fixture(
    params=[
        lambda store: store.get("k"),
        lambda store: store.get_with_info("k"),
        lambda store: store.stat("k"),
        lambda store: store.open("k"),
        lambda store: store.put("k", b""),
        lambda store: store.put_if_absent("k", b""),
        lambda store: store.put_if_match("k", b"", "e"),
        lambda store: store.put_many([("k", b"")]),
        lambda store: list(store.list("")),
        lambda store: store.delete(["k"]),
        lambda store: store.probe(),
    ],
    ids=[
        "get",
        "get_with_info",
        "stat",
        "open",
        "put",
        "put_if_absent",
        "put_if_match",
        "put_many",
        "list",
        "delete",
        "probe",
    ],
)
def any_call(request: pytest.FixtureRequest) -> Attempt:
    """Each method of a store once."""
    attempt: Attempt = request.param
    return attempt
