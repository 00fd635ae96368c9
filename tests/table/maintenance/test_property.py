"""Random tables of random layouts: compaction changes no row, in no version, and a second one has nothing to do."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubothek.catalog import Dataset, Lake
from kubothek.storage import StoreConfig, open_store
from kubothek.table.maintenance import decoding
from tests.properties.values import POOLS, Shape, shapes

pytestmark = pytest.mark.slow


@st.composite
def tables(draw: st.DrawFn) -> tuple[Shape, list[list[dict[str, Any]]]]:
    """A shape, and rows in several appends; values are NULL now and then, but not where they decide on a path."""
    shape = draw(shapes())
    row = st.fixed_dictionaries(
        {
            name: st.sampled_from(POOLS[data_type] if name in shape.partition_on else [*POOLS[data_type], None])
            for name, data_type in shape.columns.items()
        }
    )
    appends = draw(st.lists(st.lists(row, min_size=1, max_size=6), min_size=1, max_size=5))
    numbers = iter(range(1000))
    return shape, [[{**each, "id": next(numbers)} for each in rows] for rows in appends]


def contents(dataset: Dataset, as_of: int | None = None) -> list[dict[str, Any]]:
    return sorted(dataset.scan(as_of=as_of).read_all().to_pylist(), key=lambda row: int(row["id"]))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(given=tables(), fewest=st.sampled_from([1, decoding.FEWEST]))
def test_compaction_of_random_table_keeps_rows_of_every_version(
    given: tuple[Shape, list[list[dict[str, Any]]]], fewest: int
) -> None:
    shape, appends = given
    with tempfile.TemporaryDirectory() as scratch:
        lake = Lake(open_store(StoreConfig(Path(scratch).as_uri())))
        schema = shape.schema
        dataset = lake.create_dataset("t", shape.partition_on, schema, indices=shape.payload[:2], **shape.layout)
        for rows in appends:
            dataset.append(pa.Table.from_pylist(rows, schema=schema))
        before, files = contents(dataset), len(dataset.snapshot().head.partitions)
        with patch.object(decoding, "FEWEST", fewest):
            done = dataset.compact(target_file_size=1 << 20)
        assert repr(contents(dataset)) == repr(before)
        assert dataset.rows == len(before)
        head = dataset.snapshot().head
        assert len(head.partitions) == files - done.removed.files + done.added.files
        assert dataset.compact(target_file_size=1 << 20).version is None
        most = max(1, dataset.layout.num_buckets)
        assert all(count <= most for count in head.directories.values())
        assert repr(
            sorted(dataset.scan(as_of=1 + len(appends)).read_all().to_pylist(), key=lambda r: int(r["id"]))
        ) == repr(before)
