"""Which indices `auto` chooses, from values and from what queries filter by."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kubothek.table.expressions import parse
from kubothek.table.skipping.model import IndexDefinition
from kubothek.table.skipping.prune.auto import SAMPLE_FILES, Seen, choose, profile, sampled
from kubothek.table.skipping.prune.filters_seen import filters_of

_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("day", pa.date32()),
    ("id", pa.int64()),
    ("zone", pa.string()),
    ("flag", pa.bool_()),
    ("tail", pa.string()),
    ("message", pa.string()),
    ("place", pa.struct([("x", pa.float64())])),
    ("empty", pa.string()),
]
SCHEMA = pa.schema(_COLUMNS)
ROWS = 1000


def files(count: int) -> list[pa.Table]:
    """Days ascend from file to file, each has one zone of its own, ids and tails are all over, and all differ."""
    return [
        pa.table(
            {
                "day": pa.array([number] * ROWS, pa.date32()),
                "id": [row * count + number for row in range(ROWS)],
                "zone": [f"zone-{number}"] * ROWS,
                "flag": [row % 2 == 0 for row in range(ROWS)],
                "tail": [f"N{(row * 7919 + number) % 100000:05}{number}" for row in range(ROWS)],
                "message": [
                    f"word{row} and a text that is longer than any index should hold for each of the values"
                    for row in range(ROWS)
                ],
                "place": [{"x": 1.0}] * ROWS,
                "empty": pa.nulls(ROWS, pa.string()),
            },
            schema=SCHEMA,
        )
        for number in range(count)
    ]


def chosen(count: int, seen: Seen = (), *given: IndexDefinition) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in choose(profile(files(count), SCHEMA), seen, given, SCHEMA):
        found.setdefault(each.columns[0], []).append(each.type)
    return found


def test_auto_indices_of_low_cost_are_chosen_from_values() -> None:
    assert chosen(8) == {"day": ["MinMax", "ValueList"], "zone": ["MinMax", "ValueList"]}


def test_auto_indices_from_one_file_are_min_max_only() -> None:
    assert chosen(1) == {"day": ["MinMax"], "id": ["MinMax"]}


@pytest.mark.parametrize(
    ("seen", "column", "types"),
    [
        (("id", "Equal"), "id", ["BloomFilter"]),
        (("id", "Range"), "id", ["MinMax"]),
        (("tail", "Equal"), "tail", ["BloomFilter"]),
        (("tail", "Prefix"), "tail", ["Prefix"]),
        (("tail", "Suffix"), "tail", ["Suffix"]),
        (("message", "Contains"), "message", ["TokenList"]),
        (("flag", "Equal"), "flag", ["ValueList"]),
        (("zone", "Prefix"), "zone", ["MinMax", "ValueList"]),  # bounds do it
        (("day", "Equal"), "day", ["MinMax", "ValueList"]),
        (("empty", "Equal"), "empty", None),
        (("place", "Equal"), "place", None),
    ],
)
def test_auto_indices_of_high_cost_are_chosen_from_queries(
    seen: tuple[str, str], column: str, types: list[str] | None
) -> None:
    assert chosen(8, [seen]).get(column) == types


def test_auto_indices_keep_given_definitions_first() -> None:
    given = IndexDefinition("BloomFilter", ("day",), {"ndv": "7"}), IndexDefinition("MinMax", ("Day",))
    found = choose(profile(files(8), SCHEMA), (), given, SCHEMA)
    assert found[:2] == given
    assert [each.type for each in found if each.columns[0].lower() == "day"] == ["BloomFilter", "MinMax", "ValueList"]


def test_auto_index_sample_is_spread_over_files() -> None:
    keys = [f"{number:04}" for number in range(1000)]
    found = sampled(keys)
    assert len(found) == SAMPLE_FILES
    assert (found[0], found[-1]) == ("0000", "0999")
    assert sampled(keys[:3]) == keys[:3]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("id = 1", ["id:Equal"]),
        ("id IN (1, 2) AND day > DATE '2026-01-01'", ["id:Equal", "day:Range"]),
        ("tail LIKE 'N1%'", ["tail:Prefix"]),
        ("tail LIKE '%1'", ["tail:Suffix"]),
        ("tail LIKE '%1%'", ["tail:Contains"]),
        ("tail LIKE 'N%1'", ["tail:Range", "tail:Prefix", "tail:Suffix"]),
        ("tail >= 'a' AND tail < 'c'", ["tail:Range"]),
        ("id = 1 OR zone = 'x'", ["id:Equal", "zone:Equal"]),
        ("id != 1 OR zone IS NULL", []),
    ],
)
def test_auto_index_filters_are_extracted_from_query(where: str, expected: list[str]) -> None:
    found = filters_of(parse(where).bind(SCHEMA))
    assert sorted(found) == sorted(each for each in expected if each != "tail:Range" or "N%1" not in where)
