"""The same on a real S3 server: conditional writes, Arrow's own client, and two writers at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import kubothek
from kubothek.catalog import Dataset, Lake
from kubothek.errors import Conflict
from tests.s3server import S3Server
from tests.table.operations.table import flights, labels, rows

pytestmark = pytest.mark.s3


@pytest.fixture
def lake(s3: S3Server, secret: Path, bucket: str) -> Lake:
    return kubothek.open(f"s3://{bucket}", endpoint=s3.endpoint, credentials_dir=str(secret))


@pytest.fixture
def remote(lake: Lake) -> Dataset:
    dataset = lake.create_dataset("flights", ["month"])
    dataset.append(flights((1, "AA", 10), (1, None, 11), (2, "UA", 20), (3, "B6", None)))
    return dataset


def test_each_operation_on_s3_produces_expected_rows(remote: Dataset) -> None:
    first = labels(remote)
    remote.replace(flights((1, "ZZ", 1), (4, "ZZ", 4)))
    remote.delete("month = 3")
    remote.delete("carrier = 'UA'", row_level=True)
    remote.update({"month": 5}, where="delay = 4", row_level=True)
    assert rows(remote) == [(1, "ZZ", 1), (5, "ZZ", 4)]
    remote.overwrite(flights((9, "OO", 9)))
    assert rows(remote) == [(9, "OO", 9)]
    remote.rollback(2)
    assert labels(remote) == first
    assert len(rows(remote)) == 4


def test_concurrent_replaces_on_s3_land_per_partition(lake: Lake, remote: Dataset) -> None:
    def replace(month: int) -> bool:
        try:
            Dataset(lake, "flights").replace(flights((month, f"M{month}", month)))
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(replace, range(10, 16)))
        same = list(pool.map(replace, [1, 1, 1, 1]))
    assert any(same)
    found = rows(remote)
    assert [row for row in found if row[0] == 1] == [(1, "M1", 1)]
    assert {row[0] for row in found} == {1, 2, 3, *range(10, 16)}
    assert remote.version == 2 + 6 + sum(same)
