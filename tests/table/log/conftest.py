"""Stores for tests of commits."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log import DatasetLog
from tests.s3server import S3Server
from tests.table.log.table import CLAIM, UUID


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


@pytest.fixture
def bucket_config(s3: S3Server, secret: Path, bucket: str) -> StoreConfig:
    """An empty bucket on a real S3 server."""
    return StoreConfig(f"s3://{bucket}", s3.endpoint, s3.region, str(secret))
