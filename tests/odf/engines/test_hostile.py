"""What other coordinators send: files within and without the volume, and bytes that are no requests."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import gettempprefix
from typing import Any

import grpc
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kubothek.odf import DatasetId, OwnerKey, Timestamp
from kubothek.odf.engines.server.service import EngineServer
from kubothek.odf.engines.server.transforming import Marks, join
from kubothek.odf.engines.server.volume import Volume
from kubothek.odf.spec.engine_messages import (
    DatasetVocabulary,
    RawQueryRequest,
    RawQueryResponseInvalidQuery,
    RawQueryResponseRoot,
    RawQueryResponseSuccess,
    TransformRequest,
    TransformRequestInput,
    TransformResponseInvalidQuery,
    TransformResponseProgress,
    TransformResponseRoot,
    TransformResponseSuccess,
    Watermark,
    decode_message,
    encode_message,
)
from kubothek.odf.spec.engine_wire import MOST_REQUEST_BYTES, enveloped, unwrapped
from kubothek.odf.spec.events import OffsetInterval
from kubothek.odf.spec.sources import SqlQueryStep, TransformSql
from tests.odf.engines.world import LONG

NAMES = DatasetVocabulary(
    offset_column="offset",
    operation_type_column="op",
    system_time_column="system_time",
    event_time_column="event_time",
)
NOON = Timestamp.parse("2026-11-22T12:00:00Z")
ROUNDS = 5000 if os.environ.get("KUBOTHEK_SOAK") else 40


def dataset(name: str) -> DatasetId:
    return OwnerKey(name.encode().ljust(32, b".")).dataset_id


def records(first: int, count: int) -> pa.Table:
    time = pa.array([NOON.nanoseconds // 10**6] * count, pa.timestamp("ms", "UTC"))
    return pa.table(
        {
            "offset": pa.array(range(first, first + count), pa.int64()),
            "op": pa.array([0] * count, pa.int32()),
            "system_time": time,
            "event_time": time,
            "x": pa.array(range(count), pa.int64()),
        }
    )


def sql(query: str, engine: str = "spark") -> TransformSql:
    return TransformSql(engine=engine, queries=(SqlQueryStep(query=query),))


@pytest.fixture
def request_(volume: Path) -> TransformRequest:
    """One that is well: of ten records in two files the middle six, four of which pass."""
    for directory in ("in", "out"):
        (volume / directory).mkdir(exist_ok=True)
    pq.write_table(records(0, 5), volume / "in" / "a")
    pq.write_table(records(5, 5), volume / "in" / "b")
    given = TransformRequestInput(
        dataset_id=dataset("flights"),
        dataset_alias="flights",
        query_alias="flights",
        vocab=NAMES,
        offset_interval=OffsetInterval(start=2, end=7),
        data_paths=(str(volume / "in" / "a"), str(volume / "in" / "b")),
        schema_file=str(volume / "in" / "b"),
        explicit_watermarks=(Watermark(system_time=NOON, event_time=NOON),),
    )
    return TransformRequest(
        dataset_id=dataset("late"),
        dataset_alias="late",
        system_time=NOON,
        vocab=NAMES,
        transform=sql("SELECT event_time, x FROM flights WHERE x < 4"),
        query_inputs=(given,),
        next_offset=100,
        new_checkpoint_path=str(volume / "out" / "checkpoint"),
        new_data_path=str(volume / "out" / "data"),
    )


@pytest.fixture
def channel(address: str) -> Iterator[grpc.Channel]:
    options = [("grpc.max_send_message_length", 2 * MOST_REQUEST_BYTES)]
    with grpc.insecure_channel(address, options=options) as made:
        yield made


def call(channel: grpc.Channel, message: bytes, method: str = "ExecuteTransform") -> list[Any]:
    """All answers. Raises RpcError."""
    root: Any = TransformResponseRoot if method == "ExecuteTransform" else RawQueryResponseRoot
    ask: Any = channel.unary_stream(f"/engine.Engine/{method}")
    return [decode_message(root, unwrapped(answer)).value for answer in ask(message, timeout=LONG)]


def run(channel: grpc.Channel, request: TransformRequest | RawQueryRequest) -> Any:
    method = "ExecuteTransform" if isinstance(request, TransformRequest) else "ExecuteRawQuery"
    return call(channel, enveloped(encode_message(request)), method)[-1]


def refused(channel: grpc.Channel, message: bytes) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as caught:
        call(channel, message)
    return caught.value


@pytest.mark.requirement("EN-14", "EN-15", "EN-16", "EN-17")
def test_engine_reads_only_interval_of_files_with_more_records(
    channel: grpc.Channel, request_: TransformRequest
) -> None:
    message = enveloped(encode_message(request_))
    first, *more = call(channel, message)
    assert isinstance(first, TransformResponseProgress)
    assert more[-1] == TransformResponseSuccess(
        new_offset_interval=OffsetInterval(start=100, end=104), new_watermark=NOON
    )
    data = Path(request_.new_data_path)
    made, before = pq.read_table(data), data.read_bytes()
    assert made.column_names == ["offset", "op", "system_time", "event_time", "x"]
    assert made.column("offset").to_pylist() == [100, 101, 102, 103, 104]
    assert made.column("x").to_pylist() == [2, 3, 0, 1, 2]
    assert set(made.column("system_time").to_pylist()) == set(made.column("event_time").to_pylist())
    assert run(channel, request_) == more[-1], "once more it is the same (EN-07)"
    assert data.read_bytes() == before
    (given,) = request_.query_inputs
    again = replace(given, offset_interval=None, data_paths=(), explicit_watermarks=())
    checkpoint = Path(request_.new_checkpoint_path)
    moved = checkpoint.rename(checkpoint.with_name("before"))
    nothing = replace(request_, query_inputs=(again,), prev_checkpoint_path=str(moved), next_offset=105)
    assert run(channel, nothing) == TransformResponseSuccess(new_watermark=NOON), "it repeats the watermark (DT-07)"
    assert not data.exists()


@pytest.mark.requirement("EN-15")
def test_engine_answers_invalid_query_for_invalid_sql(channel: grpc.Channel, request_: TransformRequest) -> None:
    for query in ("SELECT nothing FROM flights", "SELECT now() AS event_time FROM flights", "COPY flights TO '/tmp/x'"):
        answer = run(channel, replace(request_, transform=sql(query)))
        assert isinstance(answer, TransformResponseInvalidQuery), answer
    assert not Path(request_.new_data_path).exists()
    stranger = Path(request_.new_checkpoint_path).with_name("stranger")
    stranger.write_bytes(b"the state of another engine")
    answer = run(channel, replace(request_, prev_checkpoint_path=str(stranger)))
    assert isinstance(answer, TransformResponseInvalidQuery)
    assert "not a state of this engine" in answer.message


GROUPED = "SELECT max(event_time) AS event_time, x % 2 AS odd, count(*) AS n FROM flights GROUP BY odd"
PLAIN = "SELECT event_time, x FROM flights"


@pytest.mark.parametrize("marked", [True, False], ids=["watermarks", "no watermarks"])
@pytest.mark.parametrize(
    ("before", "after", "accepted"),
    [
        (PLAIN, GROUPED, False),
        (GROUPED, PLAIN, False),
        (GROUPED, GROUPED, True),
        (PLAIN, PLAIN, True),
        (PLAIN, PLAIN + " WHERE x < 4", True),  # as nothing is remembered
    ],
)
def test_engine_refuses_checkpoint_of_other_query(
    channel: grpc.Channel, request_: TransformRequest, before: str, after: str, *, accepted: bool, marked: bool
) -> None:
    if not marked:
        (given,) = request_.query_inputs
        request_ = replace(request_, query_inputs=(replace(given, explicit_watermarks=()),))
    assert isinstance(run(channel, replace(request_, transform=sql(before))), TransformResponseSuccess)
    checkpoint = Path(request_.new_checkpoint_path)
    moved = checkpoint.rename(checkpoint.with_name("before"))
    answer = run(channel, replace(request_, transform=sql(after), prev_checkpoint_path=str(moved)))
    if accepted:
        assert isinstance(answer, TransformResponseSuccess)
    else:
        assert isinstance(answer, TransformResponseInvalidQuery)
        assert "of another query" in answer.message
        assert not checkpoint.exists()


def test_engine_reads_checkpoint_without_fingerprint_if_query_is_stateless(
    channel: grpc.Channel, request_: TransformRequest
) -> None:
    """As earlier versions of the engine left them, with watermarks only."""
    for query, accepted in ((PLAIN, True), (GROUPED, False)):
        assert isinstance(run(channel, replace(request_, transform=sql(PLAIN))), TransformResponseSuccess)
        old = Path(request_.new_checkpoint_path).with_name("old")
        with old.open("wb") as file:
            join(None, Marks({str(request_.query_inputs[0].dataset_id): NOON}, NOON), file)
        answer = run(channel, replace(request_, transform=sql(query), prev_checkpoint_path=str(old)))
        assert isinstance(answer, TransformResponseSuccess if accepted else TransformResponseInvalidQuery), answer


@pytest.mark.requirement("EN-18")
def test_engine_raw_query_returns_records_or_invalid_query(channel: grpc.Channel, request_: TransformRequest) -> None:
    (given,) = request_.query_inputs
    output = Path(request_.new_data_path)
    query = RawQueryRequest(
        input_data_paths=given.data_paths,
        transform=sql("SELECT x, count(*) AS n FROM input GROUP BY x HAVING x > 2 ORDER BY x"),
        output_data_path=str(output),
    )
    assert run(channel, query) == RawQueryResponseSuccess(num_records=2)
    assert pq.read_table(output).to_pylist() == [{"x": 3, "n": 2}, {"x": 4, "n": 2}]
    assert run(channel, replace(query, transform=sql("SELECT x FROM input WHERE x > 9"))).num_records == 0
    assert not output.exists()
    for wrong in ("SELECT * FROM read_parquet('/etc/passwd')", "SELECT y FROM input", "DROP TABLE input"):
        assert isinstance(run(channel, replace(query, transform=sql(wrong))), RawQueryResponseInvalidQuery)
    assert isinstance(run(channel, replace(query, input_data_paths=())), RawQueryResponseInvalidQuery)


def _link(volume: Path) -> str:
    (volume / "in" / "link").symlink_to(volume.parent / "secret")
    return str(volume / "in" / "link")


def _linked_directory(volume: Path) -> str:
    (volume / "in" / "dir").symlink_to(volume.parent)
    return str(volume / "in" / "dir" / "secret")


def _pipe(volume: Path) -> str:
    os.mkfifo(volume / "in" / "pipe")
    return str(volume / "in" / "pipe")


OUTSIDE: dict[str, Callable[[Path], str]] = {
    "outside": lambda volume: str(volume.parent / "secret"),
    "above": lambda volume: f"{volume}/in/../../secret",
    "beside": lambda volume: f"{volume}-more/secret",
    "relative": lambda volume: "secret",
    "the root": str,
    "a zero": lambda volume: f"{volume}/in/\0a",
    "a directory": lambda volume: str(volume / "in"),
    "a link": _link,
    "a linked directory": _linked_directory,
    "a pipe": _pipe,
}


@pytest.mark.requirement("EN-20")
def test_engine_never_reads_or_writes_outside_volume(
    channel: grpc.Channel, request_: TransformRequest, volume: Path
) -> None:
    secret = volume.parent / "secret"
    pq.write_table(records(0, 5), secret)
    before = secret.read_bytes()
    (given,) = request_.query_inputs
    for name, made in OUTSIDE.items():
        path = made(volume)
        for wrong in (
            replace(request_, query_inputs=(replace(given, data_paths=(path,)),)),
            replace(request_, query_inputs=(replace(given, schema_file=path),)),
            replace(request_, prev_checkpoint_path=path),
            replace(request_, new_data_path=path),
            replace(request_, new_checkpoint_path=path),
        ):
            error: Any = refused(channel, enveloped(encode_message(wrong)))
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, (name, error)
    assert secret.read_bytes() == before
    assert not [*(volume / "out").iterdir()]
    assert sorted(each.name for each in volume.parent.iterdir()) == ["secret", "volume"]


def test_engine_refuses_malformed_request_and_answers_next(
    channel: grpc.Channel, request_: TransformRequest, volume: Path
) -> None:
    good = encode_message(request_)
    (volume / "in" / "c").write_bytes(b"PAR1 is not enough PAR1")
    (given,) = request_.query_inputs
    unreadable = replace(request_, query_inputs=(replace(given, data_paths=(str(volume / "in" / "c"),)),))
    for message in (b"", b"\x00", b"\x0a\x05abc", good, enveloped(b""), enveloped(b"\xff" * 64), enveloped(good[:99])):
        error: Any = refused(channel, message)
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, message[:20]
    error = refused(channel, enveloped(encode_message(unreadable)))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    error = refused(channel, b"\x0a" * (MOST_REQUEST_BYTES + 1))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    with pytest.raises(grpc.RpcError) as caught:
        call(channel, enveloped(good), "ExecuteAnything")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    draw = random.Random(10)
    seen = set[Any]()
    for _ in range(ROUNDS):
        broken = bytearray(good)
        for _ in range(draw.choice((1, 1, 3))):
            broken[draw.randrange(len(broken))] = draw.choice((0, 1, 0x7F, 0xFF, draw.randrange(256)))
        try:
            seen.add(type(call(channel, enveloped(bytes(broken)))[-1]).__name__)
        except grpc.RpcError as strange:
            seen.add(strange.code())
    assert seen <= {
        "TransformResponseSuccess",
        "TransformResponseInvalidQuery",
        "TransformResponseInternalError",
        grpc.StatusCode.INVALID_ARGUMENT,
    }
    assert isinstance(run(channel, request_), TransformResponseSuccess)
    assert sorted(each.name for each in volume.parent.iterdir()) == ["volume"]


HUNGRY = "damerau_levenshtein(repeat('x', 12000 + x), repeat('y', 12000 + x))"
"""576 MB in one call of a function, which nothing interrupts."""
ENDLESS = "levenshtein(repeat('x', 400000 + x), repeat('y', 400000 + x))"


@contextmanager
def serving(volume: Path, limits: Any) -> Iterator[grpc.Channel]:
    with (
        EngineServer("127.0.0.1:0", str(volume), limits) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        yield channel


def test_engine_stops_greedy_request_and_keeps_serving(volume: Path, request_: TransformRequest) -> None:
    from kubothek.odf.engines.server.working import Limits

    raw = RawQueryRequest(
        input_data_paths=request_.query_inputs[0].data_paths,
        transform=sql(f"SELECT {ENDLESS} AS x FROM input", "duckdb"),
        output_data_path=str(volume / "out" / "data"),
    )
    hungry = replace(request_, transform=sql(f"SELECT event_time, {HUNGRY} AS x FROM flights"))
    before = psutil.Process().memory_info().rss
    with serving(volume, Limits("4GB", 1.5)) as channel:
        assert "longer than 1.5 s" in run(channel, raw).message
    with serving(volume, Limits("300MB", 300)) as channel:
        assert "memory" in run(channel, hungry).message
        assert psutil.Process().memory_info().rss < before + (32 << 20)
        assert not [*(volume / "out").iterdir()]
        assert isinstance(run(channel, request_), TransformResponseSuccess)


def test_volume_tidy_removes_files_of_killed_writer_only(volume: Path) -> None:
    (volume / f".{gettempprefix()}-77-left").touch()
    (volume / f".{gettempprefix()}-78-under-way").touch()
    Volume(str(volume)).tidy(str(volume / "data"), 77)
    assert [each.name for each in volume.glob(".*")] == [f".{gettempprefix()}-78-under-way"]
