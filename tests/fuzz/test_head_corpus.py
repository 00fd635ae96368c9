"""Heads that another writer damaged, field by field, under every operation: a result, or a named error.

CI runs a sample, a soak all.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kubothek
from kubothek.catalog import Lake
from kubothek.dataset import Dataset
from kubothek.errors import HeadUnreadable, LakeError
from kubothek.storage import StoreConfig, open_store
from kubothek.table.indexes.model import IndexKind
from kubothek.table.skipping.model import IndexDefinition
from tests.fuzz.structures import changed, mutations
from tests.s3server import S3Server
from tests.sampling import SOAK, sampled

pytestmark = pytest.mark.slow

HEAD = "flights.by-dataset-metadata.json"
CANARY = "CANARY"
ROWS = pa.table({"month": [1, 1, 2], "carrier": ["UA", "AA", "UA"], "delay": [1, 2, 3]})
OPERATIONS: dict[str, Callable[[Lake, Dataset], object]] = {
    "scan": lambda lake, dataset: dataset.scan(where="month < 9").read_all().to_pylist(),
    "sql": lambda lake, dataset: lake.sql("SELECT * FROM flights WHERE carrier = 'UA'").read_all().to_pylist(),
    "plan": lambda lake, dataset: dataset.plan("carrier = 'UA' AND delay > 1"),
    "verify": lambda lake, dataset: dataset.verify(),
    "health": lambda lake, dataset: dataset.health(),
    "compact": lambda lake, dataset: dataset.compact(),
    "collect": lambda lake, dataset: dataset.collect(),
    "append": lambda lake, dataset: dataset.append(ROWS),
    "delete": lambda lake, dataset: dataset.delete("month = 1"),
    "heal": lambda lake, dataset: dataset.heal(),
    "history": lambda lake, dataset: [dataset.tags, list(dataset.history()), dataset.skipping],
    "expire": lambda lake, dataset: dataset.collect(keep_versions=1, enforce=True),
}


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A head that does not parse is read again after a moment: another program may be writing it in place."""
    monkeypatch.setattr("kubothek.table.log.journal._HEAD_READ_PAUSE", 0)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a store, whose dataset has everything that a head can name, and a file outside of it."""
    place = tmp_path_factory.mktemp("heads")
    (place / "store").mkdir()
    (place / "outside").mkdir()
    pq.write_table(ROWS.append_column("canary", pa.array([CANARY] * 3)), place / "outside/x.parquet")
    lake = kubothek.open((place / "store").as_uri())
    dataset = lake.create_dataset(
        "flights",
        partition_on=["month"],
        indices={"carrier": IndexKind.KARTOTHEK, "delay": IndexKind.NATIVE},
        skipping=[IndexDefinition("MinMax", ("delay",))],
    )
    dataset.append(ROWS)
    dataset.append(ROWS)
    dataset.tag("first")
    head = json.loads((place / "store" / HEAD).read_bytes())
    record = head["metadata"]["kubothek_commit"]
    extra = {
        "kubothek_horizon": 1,
        "kubothek_since": 0,
        "kubothek_fenced": ["a"],
        "kubothek_lost": [record],
        "kubothek_overwritten": {record: "why"},
        "kubothek_index_pending": {"delay": "Native"},
        "kubothek_intake_s": ".kubothek/flights/intake/s/x.json",
        "kubothek_drift": record,
        "kubothek_table": "table",
        "kubothek_dialect": "Plateau",
    }
    (place / "mutable.json").write_text(json.dumps(head | {"metadata": head["metadata"] | extra}))
    return place


def _run(original: Path, work: Path, document: Any, operation: str) -> str | None:
    """Run an operation on a copy with this head; the name of its error. Raises AssertionError for an unnamed one."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(original, work, copy_function=os.link)
    head = work / "store" / HEAD
    head.unlink()
    head.write_text(json.dumps(document))
    lake = kubothek.open((work / "store").as_uri())
    try:
        found = OPERATIONS[operation](lake, lake.dataset("flights"))
    except LakeError as error:
        return type(error).__name__
    finally:
        assert (work / "outside/x.parquet").is_file()
    assert CANARY not in str(found)
    return None


def test_head_with_one_damaged_field_gives_result_or_named_error(original: Path, tmp_path: Path) -> None:
    document = json.loads((original / "mutable.json").read_bytes())
    cases = sampled(((name, head, each) for name, head in mutations(document) for each in OPERATIONS), 2500)
    unnamed = []
    for name, head, operation in cases:
        try:
            _run(original, tmp_path / "copy", head, operation)
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            unnamed.append(f"{operation}, {name}: {type(error).__name__}: {error}")
    print(f"{len(cases)} cases")
    assert not unnamed, "\n".join([f"{len(unnamed)} of {len(cases)}", *unnamed[:50]])
    assert len(cases) > (10_000 if SOAK else 5)


BEYOND = f"flights/table/month={2**70}/x.parquet"
DAMAGES: dict[str, tuple[tuple[str, ...], Any, str]] = {
    "partition column that the table lacks": (("partition_keys",), ["nope"], "heal"),
    "pending index of an unknown kind": (("metadata", "kubothek_index_pending"), {"delay": "x"}, "plan"),
    "partition value beyond 64 bits": (
        ("partitions", "*", "files", "table"),
        BEYOND,
        "scan",
    ),
    "horizon that is no number": (("metadata", "kubothek_horizon"), True, "health"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_head_damaged_as_reported_gives_result_or_named_error(original: Path, tmp_path: Path, damage: str) -> None:
    path, value, operation = DAMAGES[damage]
    document = json.loads((original / "mutable.json").read_bytes())
    label = next(iter(document["partitions"]))
    place = tuple(label if each == "*" else each for each in path)
    _run(original, tmp_path / "copy", changed(document, place, value), operation)


ELSEWHERE = (
    "../outside/x.parquet",
    "flights/../../outside/x.parquet",
    "/outside/x.parquet",
    "flights/table/%2e%2e/%2E%2e/x.parquet",
    "flights/table/..\\..\\x.parquet",
    "other/table/x.parquet",
)


@pytest.mark.parametrize(("operation", "key"), sampled(product(OPERATIONS, ELSEWHERE), 4))
def test_head_with_key_outside_dataset_is_unreadable(original: Path, tmp_path: Path, operation: str, key: str) -> None:
    document = json.loads((original / "store" / HEAD).read_bytes())
    label = next(iter(document["partitions"]))
    damaged = changed(document, ("partitions", label, "files", "table"), key)
    assert _run(original, tmp_path / "copy", damaged, operation) == "HeadUnreadable"


@pytest.mark.s3
@pytest.mark.parametrize("key", ["../secret/x.parquet", "other/table/x.parquet"])
def test_head_on_s3_with_key_outside_store_is_unreadable(
    original: Path, s3: S3Server, secret: Path, bucket: str, key: str
) -> None:
    """The store is a prefix of the bucket; beside it lies what it must not reach."""
    beside = open_store(StoreConfig(f"s3://{bucket}", s3.endpoint, s3.region, str(secret)))
    config = StoreConfig(f"s3://{bucket}/lake", s3.endpoint, s3.region, str(secret))
    store = open_store(config)
    for path in (original / "store").rglob("*"):
        if path.is_file() and not path.is_relative_to(original / "store/.kubothek/.file"):
            store.put(path.relative_to(original / "store").as_posix(), path.read_bytes())
    for place in (beside, store):
        place.put(key.removeprefix("../"), (original / "outside/x.parquet").read_bytes())
    document = json.loads((original / "store" / HEAD).read_bytes())
    label = next(iter(document["partitions"]))
    store.put(HEAD, json.dumps(changed(document, ("partitions", label, "files", "table"), key)).encode())
    lake = Lake(store)
    for operation in ("scan", "sql", "verify", "append"):
        with pytest.raises(HeadUnreadable, match="keys of this dataset"):
            OPERATIONS[operation](lake, lake.dataset("flights"))
