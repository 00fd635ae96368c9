"""GeoJSON features as flat records: their properties, and the geometry as GeoJSON text (RD-05, RD-06)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import orjson

from kubothek.errors import SchemaMismatch, SourceCorrupt
from kubothek.ingest.readers.nesting import require_shallow

GEOMETRY: Final = "geometry"
_SHOWN: Final = 60


def feature_lines(name: str) -> Callable[[Iterator[bytes]], Iterator[bytes]]:
    """Return a transformation of lines with one Feature each into lines with one record each.

    It raises SourceCorrupt and SchemaMismatch with the row, counted from 1.
    """

    def transform(blocks: Iterator[bytes]) -> Iterator[bytes]:
        row, held = 1, b""
        for block in blocks:
            whole, newline, held = (held + block).rpartition(b"\n")
            lines = [line for line in whole.split(b"\n") if line.strip()] if newline else []
            require_shallow(name, whole, row)
            yield b"".join(_record(name, number, line) for number, line in enumerate(lines, row))
            row += len(lines)
        require_shallow(name, held, row)
        if held.strip():
            yield _record(name, row, held)

    return transform


def geometry_text(geometry: Any) -> str | None:
    """Return a geometry as compact GeoJSON with sorted keys."""
    return None if geometry is None else orjson.dumps(geometry, option=orjson.OPT_SORT_KEYS).decode()


def _record(name: str, row: int, line: bytes) -> bytes:
    try:
        feature = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        shown = line[:_SHOWN].decode(errors="replace")
        raise SourceCorrupt(f"{name!r}, row {row} is no JSON ({error}): {shown!r}; correct the line") from None
    kind = feature.get("type") if isinstance(feature, dict) else None
    if kind != "Feature":
        found = f"its type is {kind!r}" if isinstance(feature, dict) else f"it is {line[:_SHOWN]!r}"
        raise SourceCorrupt(f"{name!r}, row {row} is no GeoJSON Feature: {found}")
    properties = feature.get("properties") or {}
    if not isinstance(properties, dict):
        raise SourceCorrupt(f"{name!r}, row {row}: the properties of a Feature are an object")
    if GEOMETRY in properties:
        raise SchemaMismatch(f"{name!r}, row {row}: a property {GEOMETRY!r} beside the geometry; rename it")
    return orjson.dumps(
        {**properties, GEOMETRY: geometry_text(feature.get(GEOMETRY))}, option=orjson.OPT_APPEND_NEWLINE
    )
