"""The read step for ESRI shapefiles (RD-07): one record per shape, its attributes as columns, its geometry as GeoJSON.

pyshp reads them in a worker process, shape by shape, because it holds whole shapes and indexes of any size in memory.
The worker returns JSON lines, so that schemas, types and errors are those of other text formats.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import PurePosixPath
from typing import Any, Final, cast

import orjson
import pyarrow as pa

from kubothek.errors import LakeError, SchemaMismatch, SourceCorrupt, SourceRefused
from kubothek.in_memory_database import quoted
from kubothek.ingest.model import UNPACKING
from kubothek.odf.sources.readers import shapes
from kubothek.odf.sources.readers.archives import members, opened_member, the_one
from kubothek.odf.sources.readers.content import Content, FileContent
from kubothek.odf.sources.readers.ddl import parse_ddl
from kubothek.odf.sources.readers.declared import declared_schema
from kubothek.odf.sources.readers.features import GEOMETRY
from kubothek.odf.sources.readers.filters import Filtered
from kubothek.odf.sources.readers.json_rows import read_lines
from kubothek.odf.spec.sources import ReadStepEsriShapefile
from kubothek.sandbox import limited

_MEMORY: Final = 1 << 30
_SECONDS: Final = 2 * 3600.0

limited.preload(shapes.__name__)


def read_shapefile(step: ReadStepEsriShapefile, content: Content, limit: int) -> pa.RecordBatchReader:
    """Return the records of the shapefile in an archive; ``limit``: largest size of each of its files, in bytes.

    Without a schema the columns are the attributes in their order, in lower case, then ``geometry``. Raises
    SchemaMismatch, SourceCorrupt, SourceRefused (a limit); the reader also raises DataTypeMismatch.
    """
    parts = _Parts(content.name, _extracted(step, content, limit))
    fields = orjson.loads(b"".join(parts.run(shapes.fields)))
    names = _names(content.name, fields)
    declared = declared_schema(step)
    schema = parse_ddl((*_ddl(fields, names), GEOMETRY + " STRING")) if declared is None else declared

    def lines() -> io.BufferedIOBase:
        rows = parts.run(shapes.lines, names)
        return io.BufferedReader(Filtered(cast("io.IOBase", rows), rows))  # closing it closes the worker

    return read_lines(content.name, lines, schema)


class _Parts:
    """The files of a shapefile on disk, for a worker to read."""

    def __init__(self, name: str, files: dict[str, FileContent]) -> None:
        self._name = name
        self._files = files
        self._encoding = "utf-8"
        if (page := files.pop(".cpg", None)) is not None:
            with page.open() as file:
                self._encoding = _encoding(file.read(100).decode("ascii", "replace").strip())

    def run(self, function: Any, *arguments: Any) -> Iterator[bytes]:
        """Yield what a function of :mod:`.shapes` yields in a worker."""
        with closing(_Opened(self._files)) as opened:
            work = limited.run(
                function,
                self._name,
                opened.sizes,
                self._encoding,
                *arguments,
                memory=_MEMORY,
                seconds=_SECONDS,
                named=self._ended,
                answer=opened.answer,
            )
            with closing(work):
                yield from work

    def _ended(self, cause: limited.Cause) -> LakeError:
        if cause is limited.Cause.CRASH:
            return SourceCorrupt(f"{self._name!r} is not a sound shapefile: its parser crashed; upload it again")
        limit = f"{_MEMORY >> 20} MiB of memory" if cause is limited.Cause.MEMORY else f"{_SECONDS / 3600:.0f} hours"
        return SourceRefused(f"{self._name!r} needs more than {limit} to be read as a shapefile; split it")


class _Opened:
    """The files of a shapefile, open while a worker reads them."""

    def __init__(self, files: dict[str, FileContent]) -> None:
        self._files = {suffix[1:]: content.open() for suffix, content in files.items()}
        self.sizes = {suffix: file.seek(0, io.SEEK_END) for suffix, file in self._files.items()}

    def answer(self, question: Sequence[Any]) -> bytes:
        """Return the bytes that a worker requests."""
        suffix, start, stop = question
        self._files[suffix].seek(start)
        return self._files[suffix].read(stop - start)

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def _extracted(step: ReadStepEsriShapefile, content: Content, limit: int) -> dict[str, FileContent]:
    """Return the files of the selected shapefile by suffix."""
    with content.file() as file:
        limit = min(limit, UNPACKING.limit(file.seek(0, io.SEEK_END)))
        found = members(content.name, file)
        named = [name for name in found if name.lower().endswith(".shp")]
        chosen = PurePosixPath(the_one(content.name, named, step.sub_path, "read.subPath", "shapefile"))
        parts: dict[str, FileContent] = {}
        for name in found:
            path = PurePosixPath(name)
            suffix = path.suffix.lower()
            if path.with_suffix("") == chosen.with_suffix("") and suffix in (".shp", ".shx", ".dbf", ".cpg"):
                with opened_member(content.name, file, name) as member:
                    parts[suffix] = FileContent.filled(f"{content.name}/{name}", member, limit)
    if ".dbf" not in parts:
        raise SourceCorrupt(f"{content.name!r}: there is no {chosen.with_suffix('.dbf')} beside {chosen}")
    return parts


def _encoding(text: str) -> str:
    """Return the codec that a .cpg file names, often by the number of a code page only."""
    known = text.upper().replace("ANSI", "").replace("OEM", "").strip(" -")
    return f"cp{known}" if known.isdigit() and not known.startswith("8859") else known.lower() or "utf-8"


def _names(name: str, fields: Sequence[Sequence[Any]]) -> list[str]:
    names = [field[0].lower() for field in fields]
    if twice := sorted({each for each in (*names, GEOMETRY) if [*names, GEOMETRY].count(each) > 1}):
        raise SchemaMismatch(f"{name!r} has more than one attribute {twice[0]!r}; rename it")
    return names


def _ddl(fields: Sequence[Sequence[Any]], names: list[str]) -> Iterator[str]:
    for name, (_, kind, size, decimals) in zip(names, fields, strict=True):
        whole = kind == "N" and not decimals and size <= 18  # more digits do not fit into BIGINT
        number = "BIGINT" if whole else "DOUBLE"
        yield f"{quoted(name)} {number if kind in 'NF' else _TYPES.get(kind, 'STRING')}"


_TYPES: Final = {"D": "DATE", "L": "BOOLEAN"}
