"""Ledgers through the Python door."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import kubothek
from kubothek.catalog import Lake
from kubothek.dataset import Dataset
from kubothek.errors import DatasetExists, InputError, LedgerOnly, NotALedger, QueryInvalid, VersionNotFound
from kubothek.odf.dataset import Table, again, export, import_chain, owner_key_file
from kubothek.odf.spec.events import AddData
from kubothek.odf.spec.manifests import read_snapshot
from kubothek.storage import StoreConfig, open_store
from kubothek.table.log import DatasetLog

SNAPSHOT = """
kind: DatasetSnapshot
version: 1
content:
  name: planes
  kind: Root
  metadata:
    - kind: AddPushSource
      sourceName: default
      read: {kind: Parquet, schema: ["id BIGINT", "name STRING"]}
      merge: {kind: Snapshot, primaryKey: [id]}
"""


def rows(*pairs: tuple[int, str]) -> pa.Table:
    return pa.table({"id": pa.array([number for number, _ in pairs], pa.int64()), "name": [name for _, name in pairs]})


def test_ledger_created_in_python_answers_as_of_and_as_at_queries(tmp_path: Path) -> None:
    lake = kubothek.open(tmp_path.as_uri())
    planes = lake.create_ledger("planes", read_snapshot(SNAPSHOT), owner_key_file(tmp_path / "key"))
    with pytest.raises(DatasetExists):
        lake.create_ledger("planes", read_snapshot(SNAPSHOT), owner_key_file(tmp_path / "key"))
    first = planes.ledger.push(again(rows((1, "Airbus"), (2, "Boing"))))
    second = planes.ledger.push(again(rows((1, "Airbus"), (2, "Boeing"))))
    assert (first.records, second.records, planes.rows) == (2, 2, 2)
    asked = "SELECT name FROM planes ORDER BY id"
    assert lake.sql(asked).read_all().column("name").to_pylist() == ["Airbus", "Boeing"]
    assert lake.sql(asked, as_of=str(first.head)).read_all().column("name").to_pylist() == ["Airbus", "Boing"]
    _as_of_any_block(lake, planes, asked)
    long_ago = datetime(2000, 1, 1, tzinfo=UTC)
    assert lake.sql(asked, as_at=long_ago).read_all().num_rows == 0
    with pytest.raises(LedgerOnly):
        planes.append(rows((3, "Cessna")))


def _as_of_any_block(lake: Lake, planes: Dataset, asked: str) -> None:
    """Also of one in the middle of a commit: what was known then, or an error, and never what came later."""
    schema, seed = (
        next(str(block.hash) for block in planes.ledger.blocks() if block.content.event.kind == kind)
        for kind in ("SetDataSchema", "Seed")
    )
    for block in (schema, seed):
        with pytest.raises(QueryInvalid, match=r"has no columns|no schema|Referenced column"):
            lake.sql(asked, as_of=block).read_all()
    assert planes.ledger.compact(slice_records=2).blocks == 0, "each slice has two records"
    directory = Path(lake.store.url.removeprefix("file://")) / "out"
    directory.mkdir()
    out = open_store(StoreConfig(directory.as_uri()))
    export(planes.ledger, out)
    import_chain(lake.store, DatasetLog(lake.store, "copy"), out, table=Table())
    copied = asked.replace("planes", "copy")
    first, last = [str(b.hash) for b in planes.ledger.blocks() if isinstance(b.content.event, AddData)][::-1]
    assert lake.sql(copied, as_of=last).read_all().column("name").to_pylist() == ["Airbus", "Boeing"]
    with pytest.raises(VersionNotFound, match=f"no version ends with that block.* is {last}"):
        lake.sql(copied, as_of=first)


def test_ledger_is_written_in_the_version_that_is_asked_for(tmp_path: Path) -> None:
    lake, key = kubothek.open(tmp_path.as_uri()), owner_key_file(tmp_path / "key")
    planes = lake.create_ledger("planes", read_snapshot(SNAPSHOT), key, spec_version="0.39")
    assert planes.ledger.state.version == "0.39"
    assert planes.ledger.push(again(rows((1, "Airbus")))).records == 1
    assert planes.ledger.state.data_schema is not None
    assert planes.ledger.state.data_schema.raw_arrow_schema is None
    with pytest.raises(InputError, match=r"spec_version: '1' is none of 0\.34"):
        lake.create_ledger("other", read_snapshot(SNAPSHOT), key, spec_version="1")


def test_table_without_ledger_refuses_ledger_access_and_as_at_query(tmp_path: Path) -> None:
    lake = kubothek.open(tmp_path.as_uri())
    table = lake.create_dataset("planes")
    table.append(rows((1, "Airbus")))
    with pytest.raises(NotALedger):
        _ = table.ledger
    with pytest.raises(QueryInvalid, match="has no ledger"):
        lake.sql("SELECT * FROM planes", as_at=datetime(2000, 1, 1, tzinfo=UTC))
