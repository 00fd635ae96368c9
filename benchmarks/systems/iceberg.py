"""pyiceberg, with its SQL catalog in SQLite: Iceberg without Spark."""

from __future__ import annotations

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, LongType, NestedField

from benchmarks.places import Root
from benchmarks.systems.table import NAME, PART, READABLE, ROWS, System, parquet, rows

_SCHEMA = Schema(
    NestedField(1, PART, LongType(), required=False),
    NestedField(2, "amount", DoubleType(), required=False),
    NestedField(3, "id", LongType(), required=False),
)


class Iceberg(System):
    """One Table object is kept; a read or plan refreshes it first, as an append does by itself."""

    def __init__(self, root: Root) -> None:
        self._root = root
        properties = {"uri": f"sqlite:///{root.scratch}/iceberg.sqlite", "warehouse": root.url}
        if root.endpoint:
            properties["s3.endpoint"] = root.endpoint
        self._catalog = SqlCatalog("bench", **properties)
        self._catalog.create_namespace_if_not_exists("bench")
        self._kept: Table | None = None

    def build(self, partitions: int) -> None:
        store = self._root.lake().store
        spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), PART))
        table = self._catalog.create_table(f"bench.{NAME}", _SCHEMA, f"{self._root.url}/{NAME}", spec)
        mapping = table.schema().name_mapping.model_dump_json()
        with table.transaction() as transaction:
            transaction.set_properties({"schema.name-mapping.default": mapping})
            with transaction.update_snapshot().fast_append() as append:
                for part in range(partitions):
                    data = parquet(part if part < READABLE else 0, with_part=True)
                    name = f"{NAME}/data/{PART}={part}/{part:032x}.parquet"
                    if part < READABLE:
                        store.put(name, data)
                    append.append_data_file(_data_file(f"{self._root.url}/{name}", part, len(data), spec.spec_id))

    @property
    def metadata_location(self) -> str:
        """The location of the table metadata."""
        return self._table().metadata_location

    def append(self) -> None:
        self._table().append(rows(0))

    def plan(self, part: int) -> int:
        return len(list(self._table().refresh().scan(f"{PART} = {part}").plan_files()))

    def read(self, part: int) -> int:
        return self._table().refresh().scan(f"{PART} = {part}").to_arrow().num_rows

    def _table(self) -> Table:
        self._kept = self._kept or self._catalog.load_table(f"bench.{NAME}")
        return self._kept


def _data_file(path: str, part: int, size: int, spec: int) -> DataFile:
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(part),
        file_size_in_bytes=size,
        record_count=ROWS,
        spec_id=spec,
        column_sizes={},
        value_counts={},
        null_value_counts={},
        nan_value_counts={},
        lower_bounds={},
        upper_bounds={},
        split_offsets=[],
        equality_ids=None,
        key_metadata=None,
        sort_order_id=None,
    )
