from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kubothek.ingest import Format, Source, SourceReader
from kubothek.storage import StoreConfig


class Files:
    """A directory of source files, and readers of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = StoreConfig(root.as_uri())

    def put(self, name: str, data: bytes | str | pa.Table) -> str:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(data, pa.Table):
            pq.write_table(data, path)
        else:
            path.write_bytes(data.encode() if isinstance(data, str) else data)
        return name

    def source(self, *names: str, kind: Format = Format.CSV, **options: Any) -> Source:
        return Source(kind, store=self.config, paths=names, **options)

    def rows(self, *names: str, schema: pa.Schema | None = None, kind: Format = Format.CSV, **options: Any) -> pa.Table:
        """All rows, in ``schema`` or the inferred one."""
        with SourceReader(self.source(*names, kind=kind, **options)) as reader:
            plan = reader.plan()
            schema = schema or reader.infer_schema(plan)
            return pa.Table.from_batches((b for split in plan.splits for b in reader.read(split, schema)), schema)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def columns(**types: pa.DataType) -> pa.Schema:
    """A schema by its columns' names."""
    return pa.schema([pa.field(name, data_type) for name, data_type in types.items()])


Pack = Callable[[str, bytes], tuple[str, bytes]]


def plain(name: str, data: bytes) -> tuple[str, bytes]:
    return name, data


def gzipped(name: str, data: bytes) -> tuple[str, bytes]:
    return f"{name}.gz", gzip.compress(data)


def zipped(name: str, data: bytes) -> tuple[str, bytes]:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(name, data)
    return f"{name}.zip", archive.getvalue()


@pytest.fixture(params=[plain, gzipped, zipped])
def pack(request: pytest.FixtureRequest) -> Pack:
    chosen: Pack = request.param
    return chosen
