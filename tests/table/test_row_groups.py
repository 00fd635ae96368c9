"""Small row groups on a local disk are decoded without a query: the rows are Arrow's, and large ones are left to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kubothek.errors import AccessDenied, StoreError, VersionIncomplete
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.expressions import parse
from kubothek.table.scan import local_filter, statistics
from kubothek.table.scan.local_filter import LocalFilter
from kubothek.table.scan.read import scan
from kubothek.table.scan.row_groups import VALUES_A_FILE, RowGroups
from tests.table.test_local_filter import NUMBERS, by_arrow, exactly, numbers
from tests.table.test_scan import dataset_of, schema_of


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(StoreConfig(tmp_path.as_uri()))


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[RowGroups]:
    """The row groups that are decoded."""
    found: list[RowGroups] = []
    original = RowGroups.select

    def select(self: RowGroups, schema: pa.Schema) -> pa.Table:
        found.append(self)
        return original(self, schema)

    monkeypatch.setattr(RowGroups, "select", select)
    return found


@pytest.fixture
def tested(decoded: list[RowGroups], monkeypatch: pytest.MonkeyPatch) -> list[RowGroups]:
    """Those of which rows are compared with the predicate."""
    found: list[RowGroups] = []
    original = RowGroups._matching

    def matching(self: RowGroups, fields: Any, where: Any) -> Any:
        found.append(self)
        return original(self, fields, where)

    monkeypatch.setattr(RowGroups, "_matching", matching)
    return found


@pytest.mark.parametrize(
    ("where", "groups", "is_tested"),
    [
        ("x = 317", [3], True),
        ("x >= 250 AND x < 420 AND text = '3'", [2, 3, 4], True),
        ("x >= 300 AND x < 400", [3], False),
        ("x IN (5, 995) AND text != '9'", [0, 9], True),
        ("text = '3' OR x >= 0", [*range(10)], False),
        ("y = 158.6", [0, 1, 2, 3], True),
    ],
)
def test_row_groups_outside_statistics_are_not_decoded(
    store: Store, decoded: list[RowGroups], tested: list[RowGroups], where: str, groups: list[int], is_tested: bool
) -> None:
    dataset = dataset_of(store, NUMBERS, numbers(1000, 1), row_group_size=100)
    found = scan(store, dataset, None, parse(where)).read_all()
    assert found.equals(by_arrow(store, dataset, None, parse(where)))
    assert [each.numbers for each in decoded] == [groups]
    assert bool(tested) is is_tested


def test_row_groups_of_several_files_are_in_order(store: Store, decoded: list[RowGroups]) -> None:
    dataset = dataset_of(store, NUMBERS, numbers(300, 3), row_group_size=100)
    where = parse("x >= 150 AND x < 850 AND text = '3'")
    assert scan(store, dataset, ["y"], where).read_all().equals(by_arrow(store, dataset, ["y"], where))
    assert [each.numbers for each in decoded] == [[1, 2], [0, 1, 2], [0, 1, 2]]


def test_row_groups_with_texts_in_dictionaries_return_texts(store: Store, decoded: list[RowGroups]) -> None:
    schema = schema_of(x=pa.int64(), text=pa.string(), raw=pa.binary(), many=pa.string())
    count = 20_000
    table = pa.table(
        {
            "x": range(count),
            "text": [None if number % 11 == 0 else f"t{number % 3}" for number in range(count)],
            "raw": [bytes([number % 5]) for number in range(count)],
            "many": [f"{number}" for number in range(count)],
        },
        schema,
    )
    dataset = dataset_of(store, schema, {"": table}, row_group_size=7_000)
    for text in ("x >= 6990 AND x < 7010", "x != 7", "x = 0 OR x = 19999"):
        found = scan(store, dataset, None, parse(text)).read_all()
        assert exactly(found) == exactly(by_arrow(store, dataset, None, parse(text)))
    assert {each._has_short_dictionary(schema.field("text")) for each in decoded} == {True}
    assert {each._has_short_dictionary(schema.field("many")) for each in decoded} == {False}


def test_row_groups_take_constants_of_paths_and_null_of_missing_columns(store: Store, decoded: list[RowGroups]) -> None:
    schema = schema_of(k=pa.int64(), x=pa.int64(), y=pa.float64(), text=pa.string())
    files = {"k=1": pa.table({"k": [7, 8], "x": [1, 2], "text": ["a", "b"]}), "k=2": pa.table({"x": [3, 4]})}
    dataset = dataset_of(store, schema, files)
    for text in ("x >= 2 AND k > 0", "x = 4 OR text = 'a'", "k = 1", "k = 7", "y IS NULL AND x = 3", "text = 'c'"):
        for columns in (None, ["y", "k"], ["text"]):
            found = scan(store, dataset, columns, parse(text)).read_all()
            assert exactly(found) == exactly(by_arrow(store, dataset, columns, parse(text)))
    assert decoded


@pytest.mark.parametrize(
    ("name", "fits", "too_few"),
    [
        ("MOST_FILES", 2, 1),
        ("MOST_ROW_GROUPS", 4, 3),
        ("MOST_VALUES", 2 * (VALUES_A_FILE + 300), 2 * (VALUES_A_FILE + 300) - 1),
        ("MOST_BYTES", 1 << 20, 1),
    ],
)
def test_row_groups_beyond_a_limit_are_not_decoded_by_hand(
    store: Store, decoded: list[RowGroups], monkeypatch: pytest.MonkeyPatch, name: str, fits: int, too_few: int
) -> None:
    """Of two files of two row groups each, one each may match."""
    dataset = dataset_of(store, NUMBERS, numbers(200, 2), row_group_size=100)
    where = parse("(x < 50 OR x > 350) AND text = '3'")
    for limit, count in ((fits, 2), (too_few, 0)):
        monkeypatch.setattr(local_filter, name, limit)
        decoded.clear()
        assert scan(store, dataset, None, where).read_all().equals(by_arrow(store, dataset, None, where))
        assert len(decoded) == count


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"x": pa.array([1, 2], pa.int32()), "y": [0.5, 1.5], "text": ["a", "b"]}),
        pa.table({"x": [1, 2], "y": [0.5, 1.5], "text": pa.array(["a", "b"], pa.large_string())}),
        pa.table({"x": [1, 2], "y": [0.5, 1.5], "text": pa.array(["a", "b"]).dictionary_encode()}),
        pa.table({"x": [1, 2], "X": [3, 4], "y": [0.5, 1.5], "text": ["a", "b"]}),
    ],
    ids=["narrower type", "large strings", "dictionary", "names that differ in case"],
)
def test_row_groups_of_foreign_columns_are_left_to_arrow(
    store: Store, decoded: list[RowGroups], table: pa.Table
) -> None:
    dataset = dataset_of(store, NUMBERS, {"0": table})
    assert scan(store, dataset, None, parse("x = 2")).read_all().to_pylist() == [{"x": 2, "y": 1.5, "text": "b"}]
    assert decoded == []


def test_row_groups_without_match_decode_no_other_column(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged page of another column is not noticed."""
    content = numbers(100, 1)
    dataset = dataset_of(store, NUMBERS, content, compression="NONE", use_dictionary=False)
    (footer,) = statistics.footers(store, ["ds/table/0/0.parquet"])
    assert footer is not None
    chunk = footer.row_group(0).column(1)
    data = bytearray(store.get("ds/table/0/0.parquet"))
    data[chunk.data_page_offset : chunk.data_page_offset + 30] = b"\xff" * 30
    store.put("ds/table/0/0.parquet", bytes(data))
    assert scan(store, dataset, ["x", "y"], parse("text = '33'")).read_all().num_rows == 0
    with pytest.raises(StoreError):
        scan(store, dataset, ["x", "y"], parse("text = '3'")).read_all()


# --- failures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["text = '3'", "x >= 0"])
def test_row_groups_of_missing_file_name_it(store: Store, decoded: list[RowGroups], where: str) -> None:
    dataset = dataset_of(store, NUMBERS, numbers(100, 3))
    assert scan(store, dataset, None, parse(where)).read_all().num_rows
    store.delete(["ds/table/2/2.parquet"])
    with pytest.raises(VersionIncomplete, match=r"no longer exists in file:.*ds/table/2/2\.parquet"):
        scan(store, dataset, None, parse(where)).read_all()
    assert decoded


@pytest.mark.parametrize("where", ["text = '3'", "x >= 0"])
def test_row_groups_of_damaged_file_name_it(store: Store, where: str) -> None:
    dataset = dataset_of(store, NUMBERS, numbers(100, 3))
    assert scan(store, dataset, None, parse(where)).read_all().num_rows
    content = store.get("ds/table/2/2.parquet")
    store.put("ds/table/2/2.parquet", b"PAR1" + bytes(len(content) - 4))
    with pytest.raises(StoreError, match=r"ds/table/2/2\.parquet"):
        scan(store, dataset, None, parse(where)).read_all()


@pytest.mark.parametrize("where", ["text = '3'", "x >= 0", "k = 1"])
def test_row_groups_of_link_are_refused(tmp_path: Path, store: Store, where: str) -> None:
    schema = pa.schema([pa.field("k", pa.int64()), *NUMBERS])
    dataset = dataset_of(store, schema, {"k=1": numbers(100, 1)["0"]})
    assert scan(store, dataset, None, parse(where)).read_all().num_rows  # its footer is cached
    file = tmp_path / "ds/table/k=1/0.parquet"
    file.rename(tmp_path / "outside.parquet")
    file.symlink_to(tmp_path / "outside.parquet")
    with pytest.raises(AccessDenied, match=r"0\.parquet"):
        scan(store, dataset, None, parse(where)).read_all()


def test_row_groups_that_arrow_fails_to_decode_are_scanned(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = dataset_of(store, NUMBERS, numbers(100, 2))
    where = parse("text = '3'")
    expected = by_arrow(store, dataset, None, where)
    monkeypatch.setattr(LocalFilter, "start", lambda self, part: None)
    assert scan(store, dataset, None, where).read_all().equals(expected)
