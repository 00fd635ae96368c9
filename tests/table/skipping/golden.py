"""Metadata that real Xskipper 1.7 wrote, the files it describes, and which of them it skipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.table.skipping.entries import Describer, EntrySchema, fields
from kubothek.table.skipping.files.encryption import MasterKeys
from kubothek.table.skipping.files.read_file import MetadataFile
from kubothek.table.skipping.model import IndexDefinition

GOLDEN = Path(__file__).parents[2] / "golden" / "xskipper"
EXPECTED: dict[str, Any] = json.loads((GOLDEN / "expected.json").read_text())["datasets"]
NO_KEYS = MasterKeys(None)
PARTITIONS: dict[str, dict[str, Any]] = {"flat": {}, "part": {"dt": pa.date32(), "k": pa.int32()}}


def metadata_path(name: str) -> Path:
    """The one file of metadata of a dataset, ``flat`` or ``part``."""
    (found,) = (GOLDEN / "md" / name).rglob("*.parquet")
    return found


def opened(name: str) -> MetadataFile:
    """The same, opened."""
    return MetadataFile(pa.BufferReader(metadata_path(name).read_bytes()), name, NO_KEYS)


def definitions(name: str) -> list[IndexDefinition]:
    """The indices of a dataset."""
    return list(opened(name).schema.definitions.values())


def data_schema(name: str) -> pa.Schema:
    """That of the dataset, partition columns at the end."""
    first = next(iter(sorted((GOLDEN / name).rglob("*.parquet"))))
    schema = pq.read_schema(first)
    for column, data_type in PARTITIONS[name].items():
        schema = schema.append(pa.field(column, data_type))
    return schema


def described(name: str) -> tuple[EntrySchema, pa.Table]:
    """Our own entries of the files of a dataset, keys relative to its root, in the order of keys."""
    schema = fields(definitions(name), data_schema(name), tuple(PARTITIONS[name]))
    rows = []
    for path in sorted((GOLDEN / name).rglob("*.parquet")):
        key = str(path.relative_to(GOLDEN / name))
        describer = Describer(schema)
        file = pq.ParquetFile(path)
        for batch in file.iter_batches(batch_size=30):
            describer.update(batch)
        entry = describer.finish()
        assert entry is not None
        values = dict(part.split("=") for part in key.split("/")[:-1])
        typed = {n: pa.scalar(values[n]).cast(t).as_py() for n, t in PARTITIONS[name].items()}
        rows.append(schema.row(key, EXPECTED[name]["mtime"][key], typed, entry))
    return schema, pa.concat_tables(rows)
