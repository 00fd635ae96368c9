"""The depth of JSON, whatever stands in its texts, is that of a simple scan."""

from __future__ import annotations

import random

import pytest

from kubothek.ingest.readers import nesting


@pytest.mark.parametrize("piece", [1, 3, 7, 4 << 20])
def test_json_depth_of_random_text_matches_naive_scan(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
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
