"""JSON nested too deep is refused before a parser sees it, whatever stands in its texts."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from kubothek.lake.errors import SourceCorrupt
from kubothek.lake.sources import Format, nesting
from tests.sources.conftest import Files, Pack, columns

DEEP = b'{"a":' * 40 + b"[" * 40 + b"]" * 40 + b"}" * 40
ALLOWED = b'{"a":' + b"[" * 63 + b"]" * 63 + b"}"


def test_nested_json_above_limit_is_refused_in_inference(files: Files, pack: Pack) -> None:
    files.put(*pack("x.jsonl", b'{"a": []}\n\n' + DEEP + b"\n"))
    name = next(iter(path.name for path in files.root.iterdir()))
    with pytest.raises(SourceCorrupt, match=rf"'{name}', row 2: JSON is nested deeper than 64 levels"):
        files.rows(name, kind=Format.JSON_LINES)


def test_nested_json_above_limit_is_refused_with_a_schema(files: Files) -> None:
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


@pytest.mark.parametrize("piece", [1, 3, 7, 4 << 20])
def test_depth_of_random_texts_is_that_of_a_simple_scan(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nesting, "_PIECE", piece)
    draw = random.Random(piece)
    for _ in range(120):
        text = _json(draw, 4)
        assert nesting._depth(text) == _simple(text), text


def _json(draw: random.Random, levels: int) -> bytes:
    word = b"".join(draw.choices((b"[", b"}", b"\\\\", b'\\"', b"x", b"\\u005b"), k=draw.randrange(6)))
    kind = draw.randrange(4) if levels else 0
    if kind == 0:
        return b'"' + word + b'"'
    inner = b",".join(
        (b'"' + word + b'":' if kind == 1 else b"") + _json(draw, levels - 1) for _ in range(draw.randrange(4))
    )
    return b"{" + inner + b"}" if kind == 1 else b"[" + inner + b"]"


def _simple(text: bytes) -> int:
    deepest = depth = at = 0
    inside = False
    while at < len(text):
        sign = text[at : at + 1]
        if inside:
            at += sign == b"\\"
            inside = text[at : at + 1] != b'"' or sign == b"\\"
        elif sign == b'"':
            inside = True
        else:
            depth += (sign in b"[{") - (sign in b"]}")
            deepest = max(deepest, depth)
        at += 1
    return deepest
