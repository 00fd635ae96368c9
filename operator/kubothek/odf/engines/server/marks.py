"""The checkpoint that the engine hands to a coordinator: its state, and behind it the watermarks it goes by (EN-08).

Each has the fingerprint of its query, also one without a state: a query with a state cannot go on from what a query
without one has passed over.

A request tells the watermarks that are new. The output's must repeat what it was where it does not advance (DT-07), and
is the least of all inputs', those that have nothing new among them: so the engine has to remember them. The state is
byte for byte that of a run in our own jobs, whose coordinator knows the watermarks.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copyfileobj
from typing import BinaryIO, Final

import orjson

from kubothek.errors import FormatInvalid
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.transform.checkpoint import MAGIC

MARKS_MAGIC: Final = b"KUBOTHEK-MARKS-1"
_LENGTH: Final = struct.Struct("<Q")
_END: Final = _LENGTH.size + len(MARKS_MAGIC)
_MOST: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Marks:
    """The watermark of each input, by its identity, and that of the output.

    ``query``  the fingerprint of the query that left them; None in checkpoints of earlier versions
    """

    inputs: Mapping[str, Timestamp] = field(default_factory=dict)
    output: Timestamp | None = None
    query: str | None = None


def split(checkpoint: BinaryIO, state: Path) -> tuple[Marks, Path | None]:
    """Take a checkpoint apart: the watermarks, and its state, copied to ``state``; None if it has none.

    Raises FormatInvalid if it is not ours. One without watermarks is that of a job.
    """
    size = checkpoint.seek(0, 2)
    marks, end = Marks(), size
    if size >= _END:
        checkpoint.seek(size - _END)
        tail = checkpoint.read(_END)
        if tail.endswith(MARKS_MAGIC):
            (length,) = _LENGTH.unpack_from(tail)
            end = size - _END - length
            if end < 0 or length > _MOST:
                raise FormatInvalid("the checkpoint is damaged: its watermarks have no beginning")
            checkpoint.seek(end)
            marks = _read(checkpoint.read(length))
    if end == 0:
        return marks, None
    checkpoint.seek(0)
    if checkpoint.read(len(MAGIC)) != MAGIC:
        raise FormatInvalid("the checkpoint is no state of this engine: derive the dataset anew")
    checkpoint.seek(0)
    with state.open("wb") as file:
        copyfileobj(checkpoint, file)
        file.truncate(end)
    return marks, state


def join(state: Path | None, marks: Marks, checkpoint: BinaryIO) -> None:
    """Write both as one file."""
    if state is not None:
        with state.open("rb") as source:
            copyfileobj(source, checkpoint)
    told = {
        "inputs": {name: mark.nanoseconds for name, mark in marks.inputs.items()},
        "output": None if marks.output is None else marks.output.nanoseconds,
        **({} if marks.query is None else {"query": marks.query}),
    }
    text = orjson.dumps(told, option=orjson.OPT_SORT_KEYS)
    checkpoint.write(text + _LENGTH.pack(len(text)) + MARKS_MAGIC)


def _read(text: bytes) -> Marks:
    try:
        told = orjson.loads(text)
        inputs = {str(name): Timestamp(int(mark)) for name, mark in told["inputs"].items()}
        output, query = told["output"], told.get("query")
        return Marks(inputs, None if output is None else Timestamp(int(output)), None if query is None else str(query))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise FormatInvalid(f"the checkpoint's watermarks cannot be read: {error}") from error
