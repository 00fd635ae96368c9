"""Rows with skipping are the rows without, whatever the table, the indices and the filter.

``KUBOTHEK_SOAK=1`` (``make soak``) tries many more, new ones each time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kubothek
from kubothek.catalog import Dataset, Lake
from kubothek.errors import SkippingInvalid
from kubothek.table.expressions import Op, Predicate, Term
from kubothek.table.skipping.collect import collectors
from kubothek.table.skipping.indexes import check
from kubothek.table.skipping.model import IndexDefinition
from tests.table.expressions.naive import naive
from tests.table.expressions.strategies import SCHEMA, predicates, rows

pytestmark = pytest.mark.slow

SOAK = "KUBOTHEK_SOAK" in os.environ
RUN = settings(
    max_examples=2000 if SOAK else 12,
    deadline=None,
    derandomize=not SOAK,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
STORED = pa.schema(
    [*(field for field in SCHEMA if field.name != "z"), pa.field("p", pa.int64()), pa.field("row", pa.int64())]
)
TYPES = ("MinMax", "ValueList", "BloomFilter")


def possible() -> list[IndexDefinition]:
    """Every index that a column of the table can have."""
    found = []
    for column in SCHEMA.names[:-1]:
        for kind in TYPES:
            definition = IndexDefinition(kind, (column,))
            try:
                check([definition], STORED)
            except SkippingInvalid:
                continue
            found.append(definition)
    return found


POSSIBLE = possible()
_NAMES = count()
_MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module")
def lake() -> Iterator[Lake]:
    """In memory, where there is such a place."""
    with TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as directory:
        yield kubothek.open(f"file://{directory}")


@st.composite
def files(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rows of up to three files."""
    found = draw(rows(min_size=1))
    return [
        {**{name: row[name] for name in SCHEMA.names[:-1]}, "p": draw(st.integers(0, 2)), "row": number}
        for number, row in enumerate(found)
    ]


def table_of(lake: Lake, data: Sequence[dict[str, Any]], indices: Sequence[IndexDefinition], **options: Any) -> Dataset:
    later = options.pop("later", False)
    wanted = () if later else indices
    table = lake.create_dataset(f"t{next(_NAMES)}", partition_on=["p"], schema=STORED, skipping=wanted, **options)
    table.append(pa.Table.from_pylist(list(data), STORED))
    if later:
        table.set_skipping(indices)
    return table


@RUN
@given(files(), st.lists(st.sampled_from(POSSIBLE), unique_by=lambda each: each.column, max_size=6), st.data())
def test_scan_with_skipping_equals_scan_without(
    lake: Lake, data: list[dict[str, Any]], indices: list[IndexDefinition], draw: st.DataObject
) -> None:
    later, groups = draw.draw(st.booleans()), draw.draw(st.integers(1, 3))
    with patch.object(collectors, "FEW_ROWS", draw.draw(st.sampled_from([0, 2, 100]))):
        table = table_of(lake, data, indices, row_group_rows=groups, later=later)
    ordered = table.scan(["row"]).read_all()["row"].to_pylist()
    by_row = {row["row"]: row for row in data}
    for _ in range(8):
        where = draw.draw(predicates().filter(lambda found: "z" not in found.columns))
        expected = [row for row in ordered if naive(where, by_row[row])]
        found = table.scan(["row"], where).read_all()["row"].to_pylist()
        assert found == expected, where.to_sql()
        planned = table.plan(where)
        partitions = {file.key.split("p=")[1].split("/")[0] for file in planned.files}
        assert partitions >= {str(by_row[row]["p"]) for row in expected}
        assert [step.files_left for step in planned.steps] == sorted(
            (step.files_left for step in planned.steps), reverse=True
        )


@RUN
@given(st.sampled_from(POSSIBLE), st.data())
def test_unique_value_opens_only_its_own_file(lake: Lake, definition: IndexDefinition, draw: st.DataObject) -> None:
    """Of three files with one value each, if the index can tell them apart."""
    (column,) = definition.columns
    values = draw.draw(rows(min_size=3, max_size=3))
    data = [{**row, "p": number, "row": number} for number, row in enumerate(values)]
    held = [row[column] for row in data]
    table = table_of(lake, [{k: v for k, v in row.items() if k != "z"} for row in data], [definition])
    for value in held:
        # Both hashes of the empty text are 0 (Spark's ``BloomFilterImpl`` and Murmur3_x86_32): it has one bit in a
        # filter, that others have too.
        if value is None or (value == "" and definition.type == "BloomFilter"):
            continue
        where = Predicate(((Term(column, Op.EQ, value),),))
        matching = sum(naive(where, row) for row in data)
        left = dict(table.plan(where).steps)["skipping metadata"]
        assert left == matching, (definition, value, held)
