"""Changes of columns, and what plateau reads afterwards."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from plateau.io.eager import read_table, update_dataset_from_dataframes

import kubothek
from kubothek import AlreadyApplied, IndexDefinition, IndexKind
from kubothek.catalog import Dataset, Lake
from kubothek.errors import Conflict, IndexInvalid, InputError, LakeError, OwnedByAnother, SchemaMismatch
from kubothek.table.log import Operation

pytestmark = pytest.mark.filterwarnings("ignore")

AT = datetime(2025, 1, 1, tzinfo=UTC)
ROWS = pa.table(
    {
        "k": ["a", "b"],
        "x": [1, 2],
        "y": [1.5, None],
        "at": pa.array([AT, AT], pa.timestamp("us", tz="Europe/Berlin")),
    }
)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return kubothek.open(tmp_path)


@pytest.fixture
def table(lake: Lake) -> Dataset:
    dataset = lake.create_dataset("t", partition_on="k", indices="x", sort_by="x")
    dataset.append(ROWS)
    return dataset


@pytest.fixture
def plateau(tmp_path: Path) -> str:
    return f"hfs://{tmp_path}"


def test_add_columns_writes_no_file_and_plateau_reads_and_writes_on(table: Dataset, lake: Lake, plateau: str) -> None:
    files = table.snapshot().head.files()
    done = table.add_columns({"n": "int64", "seen": "timestamp[us, tz=UTC]"}, id="one")
    assert table.snapshot().head.files() == files
    assert table.to_arrow(["n", "seen"]).to_pylist() == [{"n": None, "seen": None}] * 2
    assert table.schema.field("seen").type == pa.timestamp("us", tz="UTC")
    assert table.scan(where="n IS NULL").read_all().num_rows == 2
    frame = read_table("t", store=plateau)
    assert sorted(frame.columns) == ["at", "k", "n", "seen", "x", "y"]
    assert frame["n"].isna().all()
    days = pd.to_datetime(["2025-01-02"]).astype("datetime64[ns]")
    new = pd.DataFrame({"k": ["c"], "x": [3], "y": [0.5], "n": [7], "at": days, "seen": days})
    update_dataset_from_dataframes([new], store=plateau, dataset_uuid="t", partition_on=["k"])
    assert sorted(table.to_arrow(["n"])["n"].to_pylist(), key=str) == [7, None, None]
    again = table.add_columns({"n": "int64", "seen": "timestamp[us, tz=UTC]"}, id="one")
    assert isinstance(again, AlreadyApplied)
    assert again.version == done.version


def test_add_columns_to_dataset_with_concurrent_append(table: Dataset) -> None:
    table.add_columns({"n": "int64"})
    table.append(ROWS, evolve=True)
    assert table.to_arrow(["n"])["n"].null_count == 4


def test_rename_columns_keeps_rows_zones_and_old_versions(table: Dataset, plateau: str) -> None:
    before = table.to_arrow()
    version = table.version
    table.rename_columns({"y": "at", "at": "y"})
    assert (
        table.to_arrow(["k", "x", "at", "y"]).to_pydict()
        == before.select(["k", "x", "y", "at"]).rename_columns(["k", "x", "at", "y"]).to_pydict()
    )
    assert table.schema.field("y").type == pa.timestamp("us", tz="Europe/Berlin")
    assert table.to_arrow(as_of=version) == before
    assert next(table.history()).operation is Operation.OVERWRITE
    assert read_table("t", store=plateau, columns=["at"])["at"].dropna().tolist() == [1.5]
    assert [step.files_left for step in table.plan("x = 1").steps][2] == 1, "the index is kept"
    assert table.verify().sound


def test_drop_columns_rewrites_files_and_old_values_do_not_return(table: Dataset, plateau: str) -> None:
    table.drop_columns(["y", "at"], id="drop")
    assert table.schema.names == ["k", "x"]
    assert list(read_table("t", store=plateau).columns) == ["k", "x"]
    assert isinstance(table.drop_columns(["y", "at"], id="drop"), AlreadyApplied)
    table.add_columns({"y": "string"})
    assert table.to_arrow("y")["y"].null_count == 2
    table.append(pa.table({"k": ["a"], "x": [3], "y": ["z"]}))
    assert table.rows == 3


def test_columns_of_dataset_without_rows_change_its_schema(lake: Lake) -> None:
    empty = lake.create_dataset("e", schema={"a": "int64", "b": "timestamp[us, tz=UTC]"})
    empty.rename_columns({"b": "c"})
    empty.drop_columns("a")
    empty.add_columns({"d": "int64"})
    assert empty.schema == pa.schema([("c", pa.timestamp("us", tz="UTC")), ("d", pa.int64())])


REFUSED: dict[str, tuple[Callable[[Dataset], Any], type[LakeError], str]] = {
    "partition": (lambda t: t.drop_columns("k"), InputError, "'k' of 't' cannot be dropped: it partitions the table"),
    "index": (lambda t: t.drop_columns("x"), InputError, "'x' of 't' cannot be dropped: it sorts the files"),
    "unknown": (lambda t: t.rename_columns({"q": "r"}), InputError, "no column 'q'; its columns are k, "),
    "taken": (lambda t: t.rename_columns({"y": "x"}), SchemaMismatch, "would have two columns 'x'"),
    "reserved": (lambda t: t.rename_columns({"y": "__y"}), SchemaMismatch, "Kartothek reserves this name"),
    "exists": (lambda t: t.add_columns({"y": "int64"}), SchemaMismatch, "has a column 'y' already"),
    "type": (lambda t: t.add_columns({"n": "int6"}), SchemaMismatch, "unknown type 'int6'"),
    "nothing": (lambda t: t.add_columns({}), InputError, "no columns to add"),
    "none": (lambda t: t.drop_columns([]), InputError, "no columns to be dropped"),
    "skipping": (lambda t: t.drop_columns("y"), InputError, "has skipping metadata; drop it first: kubothek skipping"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_change_of_columns_says_why_and_writes_nothing(table: Dataset, lake: Lake, case: str) -> None:
    if case == "skipping":
        table.set_skipping(IndexDefinition("MinMax", "y"))  # type: ignore[arg-type]
    before = {info.key for info in lake.store.list("t/")}
    act, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        act(table)
    assert {info.key for info in lake.store.list("t/")} == before


def test_all_columns_cannot_be_dropped(lake: Lake) -> None:
    single = lake.create_dataset("s", schema={"a": "int64"})
    with pytest.raises(InputError, match="no other columns; kubothek drop deletes"):
        single.drop_columns("a")


def test_change_of_columns_of_owned_dataset_or_cube_is_refused(table: Dataset, lake: Lake) -> None:
    lake.create_cube("c", dimension_columns="x", partition_columns="k").build(ROWS.drop_columns(["at"]))
    with pytest.raises(InputError, match=r"'c\+\+seed' belongs to a cube and cannot be given other columns alone"):
        lake.dataset("c++seed").drop_columns("y")
    lake.store.put(".kubothek/t/owner.json", b'{"owner": "here/default/t"}')
    keys = {info.key for info in lake.store.list("")}
    with pytest.raises(OwnedByAnother, match="here/default/t"):
        table.add_columns({"n": "int64"})
    with pytest.raises(OwnedByAnother, match="here/default/t"):
        table.rename_columns({"y": "z"})
    assert {info.key for info in lake.store.list("")} == keys


def test_rename_columns_beside_another_commit_is_conflict(table: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    written = type(table)._written

    def late(self: Dataset, *given: Any, **more: Any) -> Any:
        done = written(self, *given, **more)
        monkeypatch.undo()
        table.append(ROWS)
        return done

    monkeypatch.setattr(type(table), "_written", late)
    with pytest.raises(Conflict, match="run it again"):
        table.rename_columns({"y": "z"})
    assert table.schema.names == ["k", "at", "x", "y"]
    assert table.rows == 4


def test_set_indices_adds_drops_and_refuses(table: Dataset) -> None:
    assert table.indices == {"x": IndexKind.NATIVE}
    done = table.set_indices({"y": "Kartothek"})
    assert (done.built, done.dropped) == (("y",), ("x",))
    assert table.indices == {"y": IndexKind.KARTOTHEK}
    assert table.set_indices(table.indices).version is None
    with pytest.raises(InputError, match="index on 'y': 'Foo' is none of"):
        table.set_indices({"y": "Foo"})
    with pytest.raises(IndexInvalid):
        table.set_indices("nope")
