"""Looking values up in index files that are too large to be read whole, on a real S3 server."""

from __future__ import annotations

from collections.abc import Set
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from kubothek.storage import StoreConfig, open_store
from kubothek.table.indexes import IndexState, lookup, native
from kubothek.table.indexes.entries import entries, sort_distinct
from kubothek.table.indexes.native import Manifest
from tests.table.indexes.model import Indexed
from tests.table.log.table import UUID

ROWS = 200_000


@pytest.mark.s3
def test_parallel_lookups_in_large_index_file_on_s3_are_exact(bucket_config: StoreConfig) -> None:
    store = open_store(bucket_config)
    values = pa.array([f"{n:08}-{n * 2654435761 % 2**32:08x}" for n in range(ROWS)])
    halves = [entries(values.slice(0, ROWS // 2), "first"), entries(values.slice(ROWS // 2), "second")]
    files = native.write_files(store, UUID, "x", [sort_distinct(halves)])
    assert files[0].bytes > 1 << 20
    head = Indexed(IndexState(UUID, {}, {"x": native.write_manifest(store, UUID, Manifest("x", pa.string(), files))}))
    schema = pa.schema([("x", pa.string())])

    def find(number: int) -> Set[str] | None:
        return lookup(store, head, schema, "x", "=", [values[number].as_py()])

    numbers = range(0, ROWS, ROWS // 40)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(find, numbers))
    assert found == [{"first"} if number < ROWS // 2 else {"second"} for number in numbers]
