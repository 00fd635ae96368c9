"""Shapefile parsing in a worker process, which requests the bytes of the files: see :mod:`.shapefile_rows`."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import partial
from typing import Any, Final

import orjson
import shapefile

from kubothek.ingest.readers.decoding import decoding
from kubothek.odf.sources.readers.features import GEOMETRY, geometry_text
from kubothek.sandbox.limited import Ask
from kubothek.storage.ranges import RangeReader

_ROWS: Final = 1000
_BUFFER: Final = 1 << 20


def fields(ask: Ask, name: str, sizes: Mapping[str, int], encoding: str) -> Iterator[bytes]:
    """Yield the attributes as JSON: name, kind, length and decimals of each. Raises SourceCorrupt."""
    with decoding(name, "shapefile"), _opened(ask, sizes, encoding) as reader:
        found = [[str(field[0]), *field[1:4]] for field in reader.fields if field[0] != "DeletionFlag"]
        yield orjson.dumps(found)


def lines(ask: Ask, name: str, sizes: Mapping[str, int], encoding: str, names: Sequence[str]) -> Iterator[bytes]:
    """Yield the records as JSON lines. Raises SourceCorrupt, naming the row."""
    batch: list[bytes] = []
    row = 1
    with decoding(name, "shapefile", where=lambda: f"row {row}"), _opened(ask, sizes, encoding) as reader:
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


def _opened(ask: Ask, sizes: Mapping[str, int], encoding: str) -> shapefile.Reader:
    def fetch(suffix: str, start: int, stop: int) -> bytes:
        data: bytes = ask([suffix, start, stop])
        return data

    files = {
        suffix: io.BufferedReader(RangeReader(size, b"", partial(fetch, suffix)), _BUFFER)
        for suffix, size in sizes.items()
    }
    return shapefile.Reader(**files, encoding=encoding, encodingErrors="strict")


def _plain(value: Any) -> Any:
    """Return a value for JSON; an empty text is null, as in dBase."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode(errors="replace").strip() or None
    return (value.strip() or None) if isinstance(value, str) else value
