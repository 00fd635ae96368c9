"""Stores for tests of commits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kubothek.lake.commits import DatasetLog
from kubothek.lake.store import Store, StoreConfig, open_store
from tests.commits.table import CLAIM, UUID
from tests.s3server import S3Server


@pytest.fixture
def config(tmp_path: Path) -> StoreConfig:
    root = tmp_path / "lake"
    root.mkdir()
    return StoreConfig(root.as_uri())


@pytest.fixture
def store(config: StoreConfig) -> Store:
    return open_store(config)


@pytest.fixture
def log(store: Store) -> DatasetLog:
    return DatasetLog(store, UUID, claim=CLAIM)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def bucket(s3: S3Server, tmp_path: Path) -> StoreConfig:
    """An empty bucket on a real S3 server."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "AWS_ACCESS_KEY_ID").write_text(s3.access_key)
    (secret / "AWS_SECRET_ACCESS_KEY").write_text(s3.secret_key)
    name = s3.create_bucket(f"commits-{abs(hash(str(tmp_path))):x}")
    return StoreConfig(f"s3://{name}", s3.endpoint, s3.region, str(secret))
