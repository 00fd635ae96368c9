"""Pruning of external files by the values in their directory names, against each file's own values."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubothek.external.files import PlainFiles, PlainTable
from kubothek.external.location import PlainLocation
from kubothek.external.matching import Matched
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.expressions import from_dnf, parse

TYPES: dict[str, pa.DataType] = {"id": pa.int64(), "month": pa.int32(), "zone": pa.string()}
SCHEMA = pa.schema(TYPES)
NULL = "__HIVE_DEFAULT_PARTITION__"
MONTHS = [NULL, "-1", "0", "1", "2", "12"]
ZONES = [NULL, "a", "a%20b", "%C3%BC", "%25"]
KEYS = [f"in/month={month}/zone={zone}/{n}.parquet" for month in MONTHS for zone in ZONES for n in range(2)]
LISTED = pa.table({"key": KEYS, "size": [1] * len(KEYS)})
TABLE = PlainTable(PlainFiles("in"), SCHEMA, ("month", "zone"))

TERMS = st.one_of(
    st.tuples(st.just("month"), st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), st.integers(-2, 13)),
    st.tuples(st.just("zone"), st.sampled_from(["==", "!=", "<", ">="]), st.sampled_from(["", "a", "a b", "ü", "%"])),
    st.tuples(st.just("month"), st.sampled_from(["in", "not in"]), st.lists(st.integers(-1, 3), min_size=1)),
    st.tuples(st.just("id"), st.sampled_from(["==", ">"]), st.integers(0, 3)),
)


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> PlainLocation:
    store: Store = open_store(StoreConfig(tmp_path_factory.mktemp("files").as_uri()))
    return PlainLocation(store, TABLE, LISTED, Matched((), len(KEYS)))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(TERMS, min_size=1, max_size=3), min_size=1, max_size=3))
def test_location_keeps_each_file_whose_partition_may_match(
    location: PlainLocation, triples: list[list[tuple[str, str, object]]]
) -> None:
    where = from_dnf(triples)
    verdicts = {key: where.bind(SCHEMA).verdict(TABLE.partition_of(key)) for key in KEYS}
    kept = location.plan(where).keys
    assert {key for key, verdict in verdicts.items() if verdict is True} <= {*kept}
    assert {*kept} <= {key for key, verdict in verdicts.items() if verdict is not False}


@pytest.mark.parametrize(
    ("where", "count"),
    [("month IS NULL", 10), ("month IS NOT NULL AND zone IS NULL", 10), ("zone LIKE 'a%'", 24), ("id = 1", 60)],
)
def test_location_prunes_by_null_and_pattern(location: PlainLocation, where: str, count: int) -> None:
    assert len(location.plan(parse(where)).keys) == count


@pytest.mark.parametrize("where", ["id > 3 AND id < 2", "month > 3 AND month < 2", "id = NULL"])
def test_location_with_a_contradiction_opens_no_file(location: PlainLocation, where: str) -> None:
    assert location.plan(parse(where)).keys == ()
