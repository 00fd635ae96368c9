"""The read step for ESRI shapefiles (RD-07): a record per shape, its attributes in columns, its geometry as GeoJSON.

pyshp reads them, shape by shape; what comes out is JSON lines, so that schemas, types and errors are those of every
other text.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import date
from pathlib import PurePosixPath
from typing import Any, Final

import orjson
import pyarrow as pa
import shapefile

from kubothek.lake.errors import SchemaMismatch, SourceCorrupt
from kubothek.lake.ledger.formats.sources import ReadStepEsriShapefile
from kubothek.lake.ledger.readers.archives import members, opened_member, the_one
from kubothek.lake.ledger.readers.content import Content, FileContent
from kubothek.lake.ledger.readers.features import GEOMETRY, geometry_text
from kubothek.lake.ledger.readers.filters import Filtered
from kubothek.lake.ledger.readers.json_rows import read_lines
from kubothek.lake.sources.decoding import decoding

_ROWS: Final = 1000


def read_shapefile(step: ReadStepEsriShapefile, content: Content, limit: int) -> pa.RecordBatchReader:
    """The records of the shapefile in an archive; ``limit``: bytes that any of its files may have.

    Without a schema the columns are the attributes in their order, named in lower case, then ``geometry``. Raises
    SchemaMismatch, SourceCorrupt, SourceRefused (the limit), also from the reader: DataTypeMismatch.
    """
    parts = _parts(step, content, limit)
    with _opened(content.name, parts) as reader:
        names = _names(content.name, reader)
        ddl = step.schema or (*_ddl(reader, names), GEOMETRY + " STRING")

    def lines() -> io.BufferedIOBase:
        found = _opened(content.name, parts)
        return io.BufferedReader(Filtered(_Closing(found), _lines(content.name, found, names)))

    return read_lines(content.name, lines, ddl)


def _parts(step: ReadStepEsriShapefile, content: Content, limit: int) -> dict[str, FileContent]:
    """The files of the one shapefile that is meant, by their suffixes."""
    with content.file() as file:
        found = members(content.name, file)
        shapes = [name for name in found if name.lower().endswith(".shp")]
        chosen = PurePosixPath(the_one(content.name, shapes, step.sub_path, "read.subPath", "shapefile"))
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


def _opened(name: str, parts: dict[str, FileContent]) -> shapefile.Reader:
    options: dict[str, Any] = {suffix[1:]: parts[suffix].open() for suffix in parts if suffix != ".cpg"}
    encoding = "utf-8"
    if ".cpg" in parts:
        with parts[".cpg"].open() as file:
            encoding = _encoding(file.read(100).decode("ascii", "replace").strip())
    with decoding(name, "shapefile"):
        return shapefile.Reader(**options, encoding=encoding, encodingErrors="strict")


def _encoding(text: str) -> str:
    """The codec that a .cpg file names: often by the number of a code page only."""
    known = text.upper().replace("ANSI", "").replace("OEM", "").strip(" -")
    return f"cp{known}" if known.isdigit() and not known.startswith("8859") else known.lower() or "utf-8"


def _names(name: str, reader: shapefile.Reader) -> list[str]:
    names = [str(field[0]).lower() for field in reader.fields if field[0] != "DeletionFlag"]
    if twice := sorted({each for each in (*names, GEOMETRY) if [*names, GEOMETRY].count(each) > 1}):
        raise SchemaMismatch(f"{name!r} has more than one attribute {twice[0]!r}; rename it")
    return names


def _ddl(reader: shapefile.Reader, names: list[str]) -> Iterator[str]:
    fields = [field for field in reader.fields if field[0] != "DeletionFlag"]
    for name, (_, kind, size, decimals) in zip(names, fields, strict=True):
        quoted = '"' + name.replace('"', '""') + '"'
        whole = kind == "N" and not decimals and size <= 18  # more digits than an integer has
        number = "BIGINT" if whole else "DOUBLE"
        yield f"{quoted} {number if kind in 'NF' else _TYPES.get(kind, 'STRING')}"


_TYPES: Final = {"D": "DATE", "L": "BOOLEAN"}


def _lines(name: str, reader: shapefile.Reader, names: list[str]) -> Iterator[bytes]:
    batch: list[bytes] = []
    row = 1
    with decoding(name, "shapefile", where=lambda: f"row {row}"):
        for each in reader.iterShapeRecords():
            geometry = None if each.shape.shapeType == shapefile.NULL else each.shape.__geo_interface__
            record = dict(zip(names, map(_plain, each.record), strict=True))
            record[GEOMETRY] = geometry_text(geometry)
            batch.append(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
            row += 1
            if len(batch) == _ROWS:
                yield b"".join(batch)
                batch.clear()
    yield b"".join(batch)


def _plain(value: Any) -> Any:
    """A value as JSON has it; an empty text is none, which is how dBase spells it."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode(errors="replace").strip() or None
    return (value.strip() or None) if isinstance(value, str) else value


class _Closing(io.RawIOBase):
    """Closes a shapefile with the stream that is made of it."""

    def __init__(self, reader: shapefile.Reader) -> None:
        self._reader = reader

    def close(self) -> None:
        if not self.closed:
            self._reader.close()
        super().close()
