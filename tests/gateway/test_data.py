"""Data in and questions out by HTTP: ingest, tail, query, tokens, search (ODF 0.34.1, RFC-008)."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kubothek.catalog import Lake
from kubothek.gateway.limits import Limits
from kubothek.storage import Store
from tests.gateway.running import READER, WRITER, Running, running
from tests.gateway.test_objects import Answered, ask
from tests.odf.dataset.planes import LEDGER, UUID, made, push, sound, table

pytestmark = pytest.mark.slow

AS_WRITER = {"Authorization": f"Bearer {WRITER}"}
AS_READER = {"Authorization": f"Bearer {READER}"}
INGEST = f"/{UUID}/ingest"


@pytest.fixture
def gateway(store: Store) -> Iterator[Running]:
    made(store, LEDGER)
    with running(store, limits=Limits(ingest_bytes=1 << 20, query_rows=1000)) as gateway:
        yield gateway


def post(gateway: Running, body: bytes, kind: str = "application/x-ndjson", **headers: str) -> Answered:
    return ask(gateway, INGEST, "POST", body, **{"Content-Type": kind, **AS_WRITER, **headers})


def test_ingest_accepts_every_format(store: Store, gateway: Running) -> None:
    parquet = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array([3], pa.int32()), "model": ["C"]}), parquet)
    for kind, body in (
        ("application/x-ndjson", b'{"id": 1, "model": "A"}\n'),
        ("text/csv", b"2,B\n"),
        ("application/vnd.apache.parquet", parquet.getvalue()),
        ("application/json", b'[{"id": 4, "model": "D"}]'),
    ):
        found = post(gateway, body, kind)
        assert (found.status, found.body) == (200, b""), found.body
    assert ask(gateway, INGEST, "POST", b'{"id": 5, "model": "E"}\n', **AS_WRITER).status == 200
    assert table(store) == {1: "A", 2: "B", 3: "C", 4: "D", 5: "E"}
    sound(store)


def test_ingest_repeated_under_one_key_adds_rows_once(store: Store, gateway: Running) -> None:
    body = b'{"id": 1, "model": "A"}\n'
    said = [post(gateway, body, Idempotency_Key="k1", Accept="application/json") for _ in range(3)]
    answers = [orjson.loads(each.body) for each in said]
    assert [each["repeated"] for each in answers] == [False, True, True]
    assert {each["version"] for each in answers} == {answers[0]["version"]}
    another = post(gateway, b'{"id": 2, "model": "B"}\n', Idempotency_Key="k1")
    assert (another.status, orjson.loads(another.body)["reason"]) == (409, "IdReused")
    assert table(store) == {1: "A"}


def test_concurrent_ingests_lose_and_duplicate_no_rows(store: Store, gateway: Running) -> None:
    statuses: list[int] = []

    def send(number: int) -> None:
        for _ in range(2):
            while (
                found := post(gateway, b'{"id": %d, "model": "x"}' % number, Idempotency_Key=str(number))
            ).status == 503:
                pass
            statuses.append(found.status)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 12
    assert table(store) == dict.fromkeys(range(6), "x")
    sound(store)


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        (INGEST, b"{", {}, 400),
        (INGEST, b'{"id": "no number"}', {}, 400),
        (INGEST, b"", {}, 400),
        (f"{INGEST}?sourceName=other", b"{}", {}, 400),
        (INGEST, b"{}", {"Content-Type": "image/png"}, 415),
        (INGEST, b"{}", {"odf-event-time": "yesterday"}, 400),
        (INGEST, b"{}", {"Idempotency-Key": "x" * 300}, 400),
        (INGEST, b" " * ((1 << 20) + 1), {}, 413),
        (INGEST, b"{}", AS_READER, 403),
        (INGEST, b"{}", {"Authorization": ""}, 401),
        ("/copy/ingest", b"{}", {}, 404),
    ],
)
def test_ingest_with_invalid_request_is_refused_with_status(
    store: Store, gateway: Running, path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    given = {"Content-Type": "application/x-ndjson", **AS_WRITER, **headers}
    found = ask(gateway, path, "POST", body, **given)
    assert found.status == status, found.body
    assert not table_or_nothing(store)


def table_or_nothing(store: Store) -> Any:
    return Lake(store).dataset(UUID).snapshot().head.partitions


# --- questions -------------------------------------------------------------------------------------------------------


def rows(found: Answered) -> Any:
    assert found.status == 200, found.body
    return orjson.loads(found.body)["data"]


def test_tail_returns_last_records(store: Store, gateway: Running) -> None:
    assert rows(ask(gateway, f"/{UUID}/tail", **AS_READER)) == []
    push(store, {number: f"m{number}" for number in range(5)})
    found = rows(ask(gateway, f"/{UUID}/tail?limit=2&skip=1", **AS_READER))
    assert [(row["offset"], row["op"], row["id"]) for row in found] == [(2, 0, 2), (3, 0, 3)]
    assert ask(gateway, f"/{UUID}/tail?limit=x", **AS_READER).status == 400
    assert ask(gateway, f"/{UUID}/tail").status == 401


def test_query_returns_json_and_arrow(store: Store, gateway: Running) -> None:
    push(store, {number: f"m{number}" for number in range(5)})
    sql = f"SELECT id, model FROM {UUID} ORDER BY id"
    found = rows(ask(gateway, f"/query?query={quote(sql)}&limit=2&skip=1", **AS_READER))
    assert found == [{"id": 1, "model": "m1"}, {"id": 2, "model": "m2"}]
    body = orjson.dumps({"query": sql, "limit": 3})
    arrow = ask(gateway, "/query", "POST", body, Accept="application/vnd.apache.arrow.stream", **AS_READER)
    assert pa.ipc.open_stream(arrow.body).read_all().to_pydict() == {"id": [0, 1, 2], "model": ["m0", "m1", "m2"]}
    empty = f"SELECT id FROM {UUID} WHERE id > 99"
    assert rows(ask(gateway, f"/query?query={quote(empty)}", **AS_READER)) == []


def test_query_of_changes_needs_the_right_to_query_the_dataset(store: Store, gateway: Running) -> None:
    push(store, {0: "m0"})
    before = Lake(store).dataset(UUID).version
    push(store, {1: "m1"})
    sql = f"SELECT id, _change_type AS t FROM table_changes('{UUID}', {before})"
    assert rows(ask(gateway, f"/query?query={quote(sql)}", **AS_READER)) == [{"id": 1, "t": "insert"}]
    assert ask(gateway, f"/query?query={quote(sql)}").status == 400


def test_query_reads_permitted_datasets_only_and_no_local_files(store: Store, gateway: Running) -> None:
    Lake(store).create_dataset("private", schema={"x": "int64"})
    for sql in (
        "SELECT * FROM private",
        f"SELECT * FROM {UUID}, private",
        f"WITH t AS (SELECT * FROM private) SELECT * FROM t, {UUID}",
        "SELECT * FROM table_changes('private', 0)",
        f"SELECT * FROM {UUID}, table_changes('private', 0, 1)",
        f"WITH private AS (SELECT 1) SELECT * FROM table_changes('private', 0), {UUID}",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT getenv('HOME')",
        "COPY (SELECT 1) TO '/tmp/x'",
        "ATTACH '/tmp/x.db'",
        "SET memory_limit='1TB'",
        "SELECT 1; SELECT 2",
        "no sql",
        "SELECT " + "(" * 5000,
    ):
        found = ask(gateway, f"/query?query={quote(sql)}", **AS_READER)
        assert found.status == 400, sql
        assert b"root:" not in found.body
    assert ask(gateway, f"/query?query={quote(f'SELECT * FROM {UUID}')}").status == 400
    constant = f"/query?query={quote('WITH t AS (SELECT 1 AS x) SELECT x FROM t')}"
    assert rows(ask(gateway, constant, **AS_READER)) == [{"x": 1}]
    assert ask(gateway, constant).status == 401
    for body in (b"", b"[]", b"{", b'{"query": 1}', b'{"query": "SELECT 1", "limit": 1e9}'):
        assert ask(gateway, "/query", "POST", body).status == 400


def test_query_beyond_time_limit_fails(store: Store) -> None:
    made(store, LEDGER)
    with running(store, limits=Limits(query_seconds=0.5)) as gateway:
        sql = "SELECT count(*) AS n FROM range(10000000) a, range(10000000) b"
        found = ask(gateway, f"/query?query={quote(sql)}", **AS_READER)
        assert (found.status, "longer than" in found.body.decode()) == (400, True), found.body


def test_token_validation_and_dataset_search_succeed(store: Store, gateway: Running) -> None:
    path = "/platform/token/validate"
    assert [ask(gateway, path, **each).status for each in ({}, AS_READER, {"Authorization": "Bearer x"})] == [
        400,
        200,
        401,
    ]
    found = orjson.loads(ask(gateway, "/search?query=PLANES", **AS_READER).body)["datasets"]
    assert [each["name"] for each in found] == [UUID]
    assert orjson.loads(ask(gateway, "/search?query=PLANES").body)["datasets"] == []
    assert orjson.loads(ask(gateway, "/search?query=other", **AS_READER).body)["datasets"] == []
