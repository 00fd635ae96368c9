"""ExecuteTransform: from the message to a run of our engine, and from its rows to a file (EN-06, EN-12 … EN-17)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import BinaryIO, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import FormatInvalid, TransformInvalid
from kubothek.odf.dataset.slicing import Types, numbered, slice_file, slice_schema
from kubothek.odf.engines.server import files
from kubothek.odf.engines.server.volume import PathRefused, Volume
from kubothek.odf.spec import engine_messages as messages
from kubothek.odf.spec.events import OffsetInterval
from kubothek.odf.spec.sources import TransformSql
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.transform import TransformInput, TransformRequest, TransformResult, execute
from kubothek.odf.transform.checkpoint import MAGIC
from kubothek.odf.transform.queries import fingerprint
from kubothek.odf.transform.state import require_query
from kubothek.odf.validation.state import Vocabulary

_MILLISECOND: Final = 10**6
_OFFSET: Final = pa.int64()
_OP: Final = pa.int32()


def transform(volume: Volume, request: messages.TransformRequest) -> messages.TransformResponseSuccess:
    """Run the transformation and write its output files.

    Raises TransformInvalid and FormatInvalid for an unsupported query, or a checkpoint of another engine; PathRefused;
    TransformTooLarge.
    """
    if not isinstance(request.transform, TransformSql):
        raise TransformInvalid("the transformation is of a later version of Open Data Fabric")
    for path in (request.new_data_path, request.new_checkpoint_path):
        volume.check(path)
    names = _vocabulary(request.vocab)
    with TemporaryDirectory(prefix="kubothek-engine-", ignore_cleanup_errors=True) as directory:
        room = Path(directory)
        marks, state = _state(volume, request.prev_checkpoint_path, room / "before")
        query = fingerprint(request.transform)
        inputs = tuple(_input(volume, each, marks) for each in request.query_inputs)
        result = execute(
            TransformRequest(
                transform=request.transform,
                vocabulary=names,
                inputs=inputs,
                system_time=request.system_time,
                previous_watermark=marks.output,
                checkpoint=state,
                new_checkpoint=room / "after",
                scratch=room,
            )
        )
        if result.checkpoint and state is None and request.prev_checkpoint_path is not None:
            require_query(marks.query, query)
        table = _records(result, request, names)
        if table is None:
            volume.remove(request.new_data_path)
        else:
            content = slice_file(table, names)
            volume.write(request.new_data_path, lambda file: _fill(file.write, content))
        after = room / "after" if result.checkpoint else None
        seen = {str(each.id): mark for each in inputs if (mark := _mark(each)) is not None}
        volume.write(request.new_checkpoint_path, partial(join, after, Marks(seen, result.watermark, query)))
    first, rows = request.next_offset, 0 if table is None else table.num_rows
    interval = OffsetInterval(start=first, end=first + rows - 1) if rows else None
    return messages.TransformResponseSuccess(new_offset_interval=interval, new_watermark=result.watermark)


def _state(volume: Volume, path: str | None, into: Path) -> tuple[Marks, Path | None]:
    if path is None:
        return Marks(), None
    with volume.open(path) as file:
        return split(file, into)


def _records(result: TransformResult, request: messages.TransformRequest, names: Vocabulary) -> pa.Table | None:
    """Return the rows as in a slice; None if there are none."""
    rows, first = result.rows, request.next_offset
    schema = slice_schema(rows.schema, names, Types.KAMU)
    made = list[pa.RecordBatch]()
    for batch in rows:
        if batch.num_rows:
            made.append(numbered(batch, schema, names, first, request.system_time))
            first += batch.num_rows
    return pa.Table.from_batches(made) if made else None


def _fill(write: Callable[[bytes], int], content: pa.Buffer) -> None:
    write(memoryview(content))  # type: ignore[arg-type]  # a file accepts any buffer


# --- the inputs ------------------------------------------------------------------------------------------------------


def _input(volume: Volume, each: messages.TransformRequestInput, marks: Marks) -> TransformInput:
    names = _vocabulary(each.vocab)
    schema = files.schema_of(volume, each.schema_file)
    if lacking := [name for name in names.names if name not in schema.names]:
        raise PathRefused(f"{each.schema_file} is no slice of {each.query_alias}: it has no column {lacking[0]!r}")
    types = {names.offset: _OFFSET, names.op: _OP}
    schema = pa.schema([pa.field(field.name, types.get(field.name) or field.type) for field in schema])
    interval = each.offset_interval
    there = interval is not None and bool(each.data_paths)
    watermarks = tuple((mark.system_time, mark.event_time) for mark in each.explicit_watermarks)

    def rows() -> pa.RecordBatchReader:
        assert interval is not None, "there are rows"
        offset = pc.field(names.offset)
        where = (offset >= interval.start) & (offset <= interval.end)
        return pa.RecordBatchReader.from_batches(schema, files.records(volume, each.data_paths, schema, where))

    return TransformInput(
        id=each.dataset_id,
        alias=each.dataset_alias,
        query_alias=each.query_alias,
        vocabulary=names,
        schema=schema,
        rows=rows if there else None,
        watermarks=watermarks,
        blocks=tuple(_blocks(volume, each.data_paths, names, interval, watermarks)) if interval is not None else (),
        previous_watermark=marks.inputs.get(str(each.dataset_id)),
    )


def _blocks(
    volume: Volume,
    paths: Sequence[str],
    names: Vocabulary,
    interval: OffsetInterval,
    watermarks: Sequence[tuple[Timestamp, Timestamp]],
) -> Iterator[tuple[Timestamp, int, int]]:
    """Yield the blocks of the records: each slice is one, with its system time. Records have that in milliseconds, a
    watermark of the same block in nanoseconds.
    """
    exact = {moment.nanoseconds // _MILLISECOND: moment for moment, _ in watermarks}
    for path in paths:
        found = files.extent(volume, path, names.offset, names.system_time)
        if found is None:
            continue
        first, last, time = found
        if last >= interval.start and first <= interval.end:
            moment = exact.get(time, Timestamp(time * _MILLISECOND))
            yield moment, max(first, interval.start), min(last, interval.end)


def _mark(each: TransformInput) -> Timestamp | None:
    """Return the current watermark of an input."""
    return each.watermarks[-1][1] if each.watermarks else each.previous_watermark


def _vocabulary(vocab: messages.DatasetVocabulary) -> Vocabulary:
    return Vocabulary(
        offset=vocab.offset_column,
        op=vocab.operation_type_column,
        system_time=vocab.system_time_column,
        event_time=vocab.event_time_column,
    )


# The checkpoint for a coordinator: the engine's state, followed by the watermarks that the next run needs (EN-08).
#
# Each has the fingerprint of its query, even without a state: a query with a state cannot continue after one without,
# which kept nothing of the records that it consumed.
#
# A request has only new watermarks. The output's must repeat its last value if it does not advance (DT-07), and is the
# least of all inputs', including inputs with nothing new: so the engine has to store them. The state is byte-identical
# to that of a run in our own jobs, whose coordinator knows the watermarks.


MARKS_MAGIC: Final = b"KUBOTHEK-MARKS-1"
_LENGTH: Final = struct.Struct("<Q")
_END: Final = _LENGTH.size + len(MARKS_MAGIC)
_MOST: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Marks:
    """The watermark of each input, by dataset id, and that of the output.

    ``query``  fingerprint of the query; None in checkpoints of earlier versions
    """

    inputs: Mapping[str, Timestamp] = field(default_factory=dict)
    output: Timestamp | None = None
    query: str | None = None


def split(checkpoint: BinaryIO, state: Path) -> tuple[Marks, Path | None]:
    """Split a checkpoint into watermarks and state. The state is copied to ``state``; None if it has none.

    Raises FormatInvalid if it is from another engine. A checkpoint without watermarks is one of our jobs.
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
        raise FormatInvalid("the checkpoint is not a state of this engine; reset the dataset to rebuild its data")
    checkpoint.seek(0)
    with state.open("wb") as file:
        copyfileobj(checkpoint, file)
        file.truncate(end)
    return marks, state


def join(state: Path | None, marks: Marks, checkpoint: BinaryIO) -> None:
    """Write state and watermarks as one file."""
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
