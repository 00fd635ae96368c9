"""Engines of other parties that do not do what they should: nothing is committed, and it is said what was wrong."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kubothek.errors import EngineFailed, EngineMisbehaved, LakeError, SchemaMismatch, TransformInvalid
from kubothek.odf import Timestamp
from kubothek.odf.spec.engine_messages import (
    TransformRequest,
    TransformResponseInternalError,
    TransformResponseInvalidQuery,
    TransformResponseProgress,
    TransformResponseRoot,
    TransformResponseSuccess,
    decode_message,
    encode_message,
)
from kubothek.odf.spec.engine_wire import enveloped, unwrapped
from kubothek.odf.spec.events import OffsetInterval
from kubothek.storage import Store
from tests.odf.derived.world import APPEND, LATE, opened, push, root, runs, sound, table
from tests.odf.engines.world import declared, driven, pull

pytestmark = pytest.mark.slow

TWO = OffsetInterval(start=0, end=1)
PROGRESS = TransformResponseProgress()
COLUMNS = ("id", "carrier", "delay")


@dataclass
class Script:
    """What the engine does with a request: writes files, then gives these answers."""

    answers: Callable[[TransformRequest], Iterator[Any]] = lambda request: iter(())
    seen: list[TransformRequest] = field(default_factory=list)


@contextmanager
def scripted(script: Script) -> Iterator[str]:
    """An engine that does as it is told; its address."""

    def handle(message: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        request = decode_message(TransformRequest, unwrapped(message))
        script.seen.append(request)
        for answer in script.answers(request):
            if isinstance(answer, grpc.StatusCode):
                context.abort(answer, "as it was told")
            yield answer if isinstance(answer, bytes) else wrapped(answer)

    server = grpc.server(ThreadPoolExecutor(4))
    handlers: dict[str, Any] = {"ExecuteTransform": grpc.unary_stream_rpc_method_handler(handle)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("engine.Engine", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


def wrapped(value: Any) -> bytes:
    return enveloped(encode_message(TransformResponseRoot(value=value)))


@dataclass(frozen=True)
class Made:
    """The records that an engine leaves; the default is what was asked for: two records."""

    offsets: tuple[int, ...] = (0, 1)
    ops: tuple[Any, ...] = (0, 0)
    ahead: int = 0
    told: OffsetInterval | None = TWO
    mark: Callable[[TransformRequest], Timestamp | None] = lambda request: watermark(request)
    change: Callable[[pa.Table], pa.Table] = lambda rows: rows
    state: bytes | None = b"what it knows"

    def __call__(self, request: TransformRequest) -> Iterator[Any]:
        moment = request.system_time.nanoseconds // 10**6 + self.ahead
        number = len(self.offsets)
        rows = pa.table(
            {
                "offset": pa.array(self.offsets, pa.int64()),
                "op": pa.array(self.ops, pa.int32()),
                "system_time": pa.array([moment] * number, pa.timestamp("ms", "UTC")),
                "event_time": pa.array([moment] * number, pa.timestamp("ms", "UTC")),
                "id": pa.array(range(number), pa.int32()),
                "carrier": pa.array(["AA"] * number),
                "delay": pa.array([50] * number, pa.int32()),
            }
        )
        pq.write_table(self.change(rows), request.new_data_path)
        if self.state is not None:
            Path(request.new_checkpoint_path).write_bytes(self.state)
        yield PROGRESS
        yield TransformResponseSuccess(new_offset_interval=self.told, new_watermark=self.mark(request))


def watermark(request: TransformRequest) -> Timestamp | None:
    marks = request.query_inputs[0].explicit_watermarks
    return marks[-1].event_time if marks else None


def _later(moment: Timestamp | None) -> Timestamp:
    assert moment is not None
    return Timestamp(moment.nanoseconds + 10**9)


def without(*names: str) -> Callable[[pa.Table], pa.Table]:
    return lambda rows: rows.drop_columns(list(names))


def _text(name: str) -> Callable[[pa.Table], pa.Table]:
    def change(rows: pa.Table) -> pa.Table:
        values = rows.column(name).cast(pa.int64()).cast(pa.string())
        return rows.set_column(rows.column_names.index(name), name, values)

    return change


def _junk(request: TransformRequest) -> Iterator[Any]:
    Path(request.new_data_path).write_bytes(b"PAR1 and nothing more PAR1")
    yield TransformResponseSuccess(new_offset_interval=TWO, new_watermark=watermark(request))


def _link(request: TransformRequest) -> Iterator[Any]:
    Path(request.new_data_path).symlink_to(request.query_inputs[0].data_paths[0])
    yield TransformResponseSuccess(new_offset_interval=TWO, new_watermark=watermark(request))


def _pipe(request: TransformRequest) -> Iterator[Any]:
    os.mkfifo(request.new_data_path)
    yield TransformResponseSuccess(new_offset_interval=TWO, new_watermark=watermark(request))


def _directory(request: TransformRequest) -> Iterator[Any]:
    Path(request.new_checkpoint_path).mkdir()
    yield from Made(state=None)(request)


def says(*answers: Any) -> Callable[[TransformRequest], Iterator[Any]]:
    return lambda request: iter(answers)


WRONG: dict[str, tuple[Callable[[TransformRequest], Iterator[Any]], type[LakeError], str]] = {
    "other offsets": (Made(offsets=(1, 2)), EngineMisbehaved, "offset 1"),
    "a gap": (Made(offsets=(0, 2)), EngineMisbehaved, "offset 2"),
    "an interval elsewhere": (Made(told=OffsetInterval(start=5, end=6)), EngineMisbehaved, "do not begin with 0"),
    "more than it says": (Made(told=OffsetInterval(start=0, end=0)), EngineMisbehaved, "has 2 records"),
    "a file of nothing": (Made(told=None), EngineMisbehaved, "does not say which"),
    "half a correction": (Made(ops=(0, 2)), EngineMisbehaved, "without the second"),
    "an operation of its own": (Made(ops=(0, 7)), EngineMisbehaved, "operation 7"),
    "no operation": (Made(ops=(0, None)), EngineMisbehaved, "has none"),
    "another system time": (Made(ahead=1), EngineMisbehaved, "system time"),
    "no system time": (Made(change=without("system_time")), EngineMisbehaved, "system_time"),
    "no event time": (Made(change=without("event_time")), EngineMisbehaved, "event_time"),
    "offsets as text": (Made(change=_text("offset")), EngineMisbehaved, "offset"),
    "a watermark beyond": (Made(mark=lambda request: _later(watermark(request))), EngineMisbehaved, "beyond"),
    "a file that is none": (_junk, EngineMisbehaved, "cannot be read"),
    "no file": (
        says(TransformResponseSuccess(new_offset_interval=TWO)),
        EngineMisbehaved,
        "left no file",
    ),
    "a link": (_link, EngineMisbehaved, "cannot be read"),
    "a pipe": (_pipe, EngineMisbehaved, "no plain file"),
    "a directory": (_directory, EngineMisbehaved, "no plain file"),
    "a query that it does not take": (
        says(PROGRESS, TransformResponseInvalidQuery(message="no such\x1b[2J column")),
        TransformInvalid,
        r"no such \[2J column",
    ),
    "an error": (says(PROGRESS, TransformResponseInternalError(message="x" * 5000)), EngineFailed, "x…$"),
    "no answer": (says(PROGRESS), EngineFailed, "ended without an answer"),
    "bytes": (says(b"\x0a\x03abc"), EngineMisbehaved, "no answer"),
    "too many bytes": (says(b"\x0a" * (5 << 20)), EngineFailed, "RESOURCE_EXHAUSTED"),
    "it dies": (says(PROGRESS, grpc.StatusCode.UNAVAILABLE), EngineFailed, "UNAVAILABLE"),
    "it refuses": (says(grpc.StatusCode.INVALID_ARGUMENT), EngineMisbehaved, "refuses the request"),
}


def test_engine_that_violates_contract_commits_nothing(store: Store, volume: Path) -> None:
    root(store, merge=APPEND)
    push(store, {1: ("AA", 20), 2: ("BB", 5)})
    declared(store, LATE)
    before = opened(store).state.head
    script = Script()
    with scripted(script) as address:
        for name, (answers, error, what) in WRONG.items():
            script.answers = answers
            with pytest.raises(error, match=what) as caught:
                pull(store, driven(address, volume))
            assert type(caught.value) is error, name
            assert opened(store).state.head == before, name
        script.answers = Made()
        assert pull(store, driven(address, volume)).done.records == 2, "it is taken when it behaves"
        assert sum(table(store).values()) == 2
        (request,) = script.seen[-1:]
        assert request.new_data_path == str(volume / "out" / "data")
        assert [each.offset_interval for each in request.query_inputs] == [TWO]

        push(store, {3: ("AA", 20)})
        after = opened(store).state.head
        two = OffsetInterval(start=2, end=3)
        for answers, error, what in (
            (Made((2, 3), told=two, mark=lambda request: None), EngineMisbehaved, "does not go back"),
            (Made((2, 3), told=two, change=_text("delay")), SchemaMismatch, "delay"),
            (Made((2, 3), told=two, change=without("carrier")), SchemaMismatch, "carrier"),
        ):
            script.answers = answers
            with pytest.raises(error, match=what):
                pull(store, driven(address, volume))
        assert opened(store).state.head == after
        script.answers = lambda request: iter([TransformResponseSuccess(new_watermark=watermark(request))])
        assert pull(store, driven(address, volume)).done.records == 0, "a run may make nothing"
        push(store, {4: ("AA", 20)})
        script.answers = says(TransformResponseSuccess())
        assert pull(store, driven(address, volume)).done.records == 0, "without a state it knows no watermark of before"
        *_, two_ago, last = runs(store)
        assert (last.new_data, last.new_checkpoint) == (None, None)
        assert last.new_watermark == two_ago.new_watermark
        assert last.new_watermark is not None
    sound(store)


def test_engine_that_is_absent_or_never_finishes_is_abandoned(store: Store, volume: Path) -> None:
    root(store)
    push(store, {1: ("AA", 20)})
    declared(store, LATE)
    before = opened(store).state.head
    told = threading.Event()

    def for_ever(_: TransformRequest) -> Iterator[Any]:
        while not told.wait(0.001):
            yield PROGRESS

    def silent(_: TransformRequest) -> Iterator[Any]:
        told.wait(60)
        yield PROGRESS

    with scripted(Script(for_ever)) as address:
        with pytest.raises(EngineFailed, match="did not answer within 1 s"):
            pull(store, driven(address, volume, timeout=1))
        told.set()
    told.clear()
    with scripted(Script(silent)) as address:
        with pytest.raises(EngineFailed, match="did not answer within 1 s"):
            pull(store, driven(address, volume, timeout=1))
        told.set()
    with pytest.raises(EngineFailed, match=f"no engine listens on {address}"):
        pull(store, driven(address, volume, patience=0.5))
    assert EngineFailed.transient
    assert not EngineMisbehaved.transient
    assert opened(store).state.head == before
