"""The Iceberg REST catalogue over directories, read by pyiceberg: what it lists, loads and refuses."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import orjson
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError, UnauthorizedError

from kubothek.catalog import Lake
from kubothek.dataset import Dataset
from kubothek.storage import Store, StoreConfig, open_store
from tests.gateway.running import READER, WRITER, Running, running
from tests.gateway.test_objects import Answered, ask

pytestmark = pytest.mark.slow

AS_READER = {"Authorization": f"Bearer {READER}"}
V1 = "/iceberg/v1"
TABLES = f"{V1}/namespaces/default/tables"
PLANES = f"{TABLES}/planes"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(StoreConfig(tmp_path.as_uri()))


@pytest.fixture
def planes(store: Store) -> Dataset:
    return dataset(store, "planes")


@pytest.fixture
def gateway(store: Store, planes: Dataset) -> Iterator[Running]:
    with running(store) as gateway:
        yield gateway


def dataset(store: Store, name: str) -> Dataset:
    found = Lake(store).create_dataset(name, partition_on=["month"])
    found.append(rows(1))
    return found


def rows(*months: int) -> pa.Table:
    return pa.table({"month": list(months), "seats": [month * 10 for month in months]})


def catalogue(gateway: Running, token: str = READER, **properties: str) -> RestCatalog:
    return RestCatalog("gateway", uri=f"{gateway.root}/iceberg", token=token, **properties)


def load(gateway: Running, path: str = PLANES, /, **headers: str) -> Answered:
    return ask(gateway, path, **AS_READER, **headers)


def error(answer: Answered) -> tuple[int, str]:
    """Status and exception; the body is an IcebergErrorResponse of the REST specification."""
    (body,) = orjson.loads(answer.body).values()
    assert isinstance(body["message"], str)
    assert body["code"] == answer.status
    return answer.status, body["type"]


def months(catalogue: RestCatalog, name: str = "planes", **scan: Any) -> list[int]:
    return sorted(catalogue.load_table(("default", name)).scan(**scan).to_arrow()["month"].to_pylist())


def test_pyiceberg_reads_every_version_through_catalogue(planes: Dataset, gateway: Running) -> None:
    found = catalogue(gateway)
    assert found.list_namespaces() == [("default",)]
    assert found.list_tables("default") == [("default", "planes")]
    assert months(found) == [1]
    planes.append(rows(2))
    assert months(found) == [1, 2]  # the load exports the commit
    assert months(found, snapshot_id=2) == [1]  # the dataset was created as version 1
    assert months(found, row_filter="month > 1") == [2]
    assert found.table_exists("default.planes")
    assert found.namespace_exists("default")


def test_catalogue_loads_current_version_while_commits_go_on(planes: Dataset, gateway: Running) -> None:
    found = catalogue(gateway)

    def read(_: int) -> tuple[int, list[int]]:
        committed = planes.version
        table = found.load_table("default.planes")
        snapshot = table.current_snapshot()
        assert snapshot is not None
        assert snapshot.snapshot_id >= committed
        return snapshot.snapshot_id, sorted(table.scan().to_arrow()["month"].to_pylist())

    with ThreadPoolExecutor(4) as pool:
        reads = pool.map(read, range(12))
        for month in range(2, 8):
            planes.append(rows(month))
        assert all(seen == list(range(1, version)) for version, seen in reads)


def test_token_without_rights_lists_and_loads_nothing(store: Store, gateway: Running) -> None:
    dataset(store, "copy")
    assert catalogue(gateway, WRITER).list_tables("default") == [("default", "copy"), ("default", "planes")]
    found = catalogue(gateway)
    assert found.list_tables("default") == [("default", "planes")]
    for name in ("copy", "absent"):
        with pytest.raises(NoSuchTableError, match=f"no table '{name}' that you may pull"):
            found.load_table(("default", name))
        assert not found.table_exists(("default", name))
    with pytest.raises(UnauthorizedError):
        catalogue(gateway, "a-token-of-nobody-1")
    for path in (TABLES, PLANES):
        assert error(ask(gateway, path)) == (401, "NotAuthorizedException")


def test_public_table_is_loaded_without_token(store: Store, planes: Dataset) -> None:
    dataset(store, "copy")
    with running(store, public=("planes",)) as gateway:
        found = RestCatalog(
            "gateway", uri=f"{gateway.root}/iceberg", auth={"type": "noop"}
        )  # or it sends "Bearer None"
        assert found.list_tables("default") == [("default", "planes")]
        assert months(found) == [1]
        assert error(ask(gateway, f"{TABLES}/copy")) == (401, "NotAuthorizedException")
