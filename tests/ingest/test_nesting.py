"""JSON nested too deep is refused before a parser sees it, whatever stands in its texts."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kubothek.errors import SourceCorrupt
from kubothek.ingest import Format
from tests.ingest.conftest import Files, Pack, columns

DEEP = b'{"a":' * 40 + b"[" * 40 + b"]" * 40 + b"}" * 40
ALLOWED = b'{"a":' + b"[" * 63 + b"]" * 63 + b"}"


def test_nested_json_above_limit_is_refused_in_inference(files: Files, pack: Pack) -> None:
    files.put(*pack("x.jsonl", b'{"a": []}\n\n' + DEEP + b"\n"))
    name = next(iter(path.name for path in files.root.iterdir()))
    with pytest.raises(SourceCorrupt, match=rf"'{name}', row 2: JSON is nested deeper than 64 levels"):
        files.rows(name, kind=Format.JSON_LINES)


def test_nested_json_above_limit_is_refused_with_schema(files: Files) -> None:
    files.put("x.jsonl", b'{"a": []}\n' * 3 + DEEP + b"\n")
    with pytest.raises(SourceCorrupt, match=r"row 4: JSON is nested deeper than 64 levels"):
        files.rows("x.jsonl", kind=Format.JSON_LINES, schema=columns(a=pa.list_(pa.int64())))


def test_nested_json_of_20000_levels_is_refused(files: Files) -> None:
    files.put("x.jsonl", b'{"a":' + b"[" * 20_000 + b"]" * 20_000 + b"}\n")
    with pytest.raises(SourceCorrupt, match="nested deeper"):
        files.rows("x.jsonl", kind=Format.JSON_LINES)


def test_nested_json_at_limit_is_read(files: Files) -> None:
    files.put("x.jsonl", ALLOWED + b"\n")
    assert files.rows("x.jsonl", kind=Format.JSON_LINES).num_rows == 1
