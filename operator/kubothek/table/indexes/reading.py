"""Index entries of existing data files: only the indexed columns are read, one row group at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.errors import IndexStale, ObjectNotFound
from kubothek.storage import Store
from kubothek.table.indexes.collect import IndexCollector
from kubothek.table.indexes.model import Collected
from kubothek.table.untrusted_parquet import DAMAGED, open_parquet_file

ReportProgress = Callable[[int, int], None]
"""Progress callback with the number of files read, and of all files."""


def collect_from_files(
    store: Store,
    uuid: str,
    columns: Mapping[str, pa.DataType],
    files: Mapping[str, str],
    report: ReportProgress = lambda _done, _total: None,
) -> Collected:
    """Return the entries of these data files (key by label) for these columns (stored type by name); bounded in memory.

    Raises IndexStale, naming the file, if one is missing or not a Parquet file.
    """
    collector = IndexCollector(store, uuid, columns)
    for number, (label, key) in enumerate(files.items(), 1):
        try:
            with store.open(key) as source:
                _observe(collector, label, open_parquet_file(pa.PythonFile(source, mode="r")), columns)
        except ObjectNotFound as error:
            raise IndexStale(f"{key} no longer exists: its rows cannot be indexed; restore it, or remove it") from error
        except DAMAGED as error:
            raise IndexStale(f"{key} cannot be indexed: {error}") from error
        report(number, len(files))
    return collector.finish()


def _observe(collector: IndexCollector, label: str, reader: pq.ParquetFile, columns: Mapping[str, pa.DataType]) -> None:
    """Collect the entries of one file; a column that is missing or all NULL has none."""
    present = [column for column in columns if column in reader.schema_arrow.names]
    collector.note(label)
    for number in range(reader.num_row_groups):
        table = reader.read_row_group(number, columns=present)
        for column in present:
            collector.observe_values(label, column, table.column(column))
