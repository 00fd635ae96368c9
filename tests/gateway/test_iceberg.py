"""The Iceberg REST catalogue over directories, read by pyiceberg: what it lists, loads and refuses."""

from __future__ import annotations

import base64
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Semaphore
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.rest import TOKEN_EXCHANGE, Capability, ConfigResponse, RestCatalog, TableResponse
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, OAuthError, UnauthorizedError

from kubothek.catalog import Lake
from kubothek.dataset import Dataset
from kubothek.gateway.access import Tokens
from kubothek.gateway.catalogue import Place
from kubothek.gateway.iceberg import tables
from kubothek.gateway.iceberg.oauth import remaining
from kubothek.gateway.iceberg.tables import Tables
from kubothek.gateway.limits import Limits
from kubothek.sandbox.limited import Ask
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys
from kubothek.table.log.multi.head import head_key
from tests.cube import small as cube
from tests.documented import blocks
from tests.faultstore import Crash, Fault, FaultStore
from tests.gateway.running import READER, WRITER, Running, running
from tests.gateway.test_catalogue import Shelf
from tests.gateway.test_objects import Answered, ask

pytestmark = pytest.mark.slow

AS_READER = {"Authorization": f"Bearer {READER}"}
V1 = "/iceberg/v1"
TABLES = f"{V1}/namespaces/default/tables"
PLANES = f"{TABLES}/planes"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(StoreConfig(tmp_path.as_uri()))


@pytest.fixture
def planes(store: Store) -> Dataset:
    return dataset(store, "planes")


@pytest.fixture
def gateway(store: Store, planes: Dataset) -> Iterator[Running]:
    with running(store) as gateway:
        yield gateway


def dataset(store: Store, name: str) -> Dataset:
    found = Lake(store).create_dataset(name, partition_on=["month"])
    found.append(rows(1))
    return found


def rows(*months: int) -> pa.Table:
    return pa.table({"month": list(months), "seats": [month * 10 for month in months]})


def catalogue(gateway: Running, token: str = READER, **properties: str) -> RestCatalog:
    return RestCatalog("gateway", uri=f"{gateway.root}/iceberg", token=token, **properties)


def load(gateway: Running, path: str = PLANES, /, **headers: str) -> Answered:
    return ask(gateway, path, **AS_READER, **headers)


def error(answer: Answered) -> tuple[int, str]:
    """Status and exception; the body is an IcebergErrorResponse of the REST specification."""
    (body,) = orjson.loads(answer.body).values()
    assert isinstance(body["message"], str)
    assert body["code"] == answer.status
    return answer.status, body["type"]


def months(catalogue: RestCatalog, name: str = "planes", **scan: Any) -> list[int]:
    return sorted(catalogue.load_table(("default", name)).scan(**scan).to_arrow()["month"].to_pylist())


def test_tokens_of_the_documentation_are_accepted() -> None:
    found = [entries for block in blocks() if block.mark == "tokens" for entries in block.documents]
    assert found
    for entries in found:
        Tokens(entries)


def test_pyiceberg_reads_every_version_through_catalogue(planes: Dataset, gateway: Running) -> None:
    found = catalogue(gateway)
    assert found.list_namespaces() == [("default",)]
    assert found.list_tables("default") == [("default", "planes")]
    assert months(found) == [1]
    planes.append(rows(2))
    assert months(found) == [1, 2]  # the load exports the commit
    assert months(found, snapshot_id=2) == [1]  # the dataset was created as version 1
    assert months(found, row_filter="month > 1") == [2]
    assert found.table_exists("default.planes")
    assert found.namespace_exists("default")


def test_catalogue_loads_current_version_while_commits_go_on(planes: Dataset, gateway: Running) -> None:
    found = catalogue(gateway)

    def read(_: int) -> tuple[int, list[int]]:
        committed = planes.version
        table = found.load_table("default.planes")
        snapshot = table.current_snapshot()
        assert snapshot is not None
        assert snapshot.snapshot_id >= committed
        return snapshot.snapshot_id, sorted(table.scan().to_arrow()["month"].to_pylist())

    with ThreadPoolExecutor(4) as pool:
        reads = pool.map(read, range(12))
        for month in range(2, 8):
            planes.append(rows(month))
        assert all(seen == list(range(1, version)) for version, seen in reads)


def test_token_without_rights_lists_and_loads_nothing(store: Store, gateway: Running) -> None:
    dataset(store, "copy")
    assert catalogue(gateway, WRITER).list_tables("default") == [("default", "copy"), ("default", "planes")]
    found = catalogue(gateway)
    assert found.list_tables("default") == [("default", "planes")]
    for name in ("copy", "absent"):
        with pytest.raises(NoSuchTableError, match=f"no table '{name}' that you may pull"):
            found.load_table(("default", name))
        assert not found.table_exists(("default", name))
    with pytest.raises(UnauthorizedError):
        catalogue(gateway, "a-token-of-nobody-1")
    for path in (TABLES, PLANES):
        assert error(ask(gateway, path)) == (401, "NotAuthorizedException")


def test_public_table_is_loaded_without_token(store: Store, planes: Dataset) -> None:
    dataset(store, "copy")
    with running(store, public=("planes",)) as gateway:
        no_token: Any = {"type": "noop"}  # without it, pyiceberg sends "Bearer None"
        found = RestCatalog("gateway", uri=f"{gateway.root}/iceberg", auth=no_token)
        assert found.list_tables("default") == [("default", "planes")]
        assert months(found) == [1]
        assert error(ask(gateway, f"{TABLES}/copy")) == (401, "NotAuthorizedException")


def test_load_honours_etag_and_snapshots(planes: Dataset, gateway: Running) -> None:
    planes.append(rows(2))
    planes.tag("first", 2)
    planes.append(rows(3))
    whole, refs = load(gateway), load(gateway, f"{PLANES}?snapshots=refs")
    assert (whole.status, refs.status) == (200, 200)

    def snapshots(answer: Answered) -> set[int]:
        metadata = orjson.loads(answer.body)["metadata"]
        assert metadata["current-snapshot-id"] == 5
        return {each["snapshot-id"] for each in metadata["snapshots"]}

    assert snapshots(whole) == {1, 2, 3, 4, 5}  # a tag is a version, too
    assert snapshots(refs) == {2, 5}
    etag = whole.headers["ETag"]
    assert etag != refs.headers["ETag"]
    assert load(gateway, If_None_Match=f'"x", {etag}').status == 304
    assert load(gateway, f"{PLANES}?snapshots=refs", If_None_Match=etag).status == 200
    planes.append(rows(4))
    assert load(gateway, If_None_Match=etag).status == 200
    assert b'"snapshot-id":6' in load(gateway, f"{PLANES}?snapshots=refs").body
    assert error(load(gateway, f"{PLANES}?snapshots=some")) == (400, "BadRequestException")


def test_dataset_named_iceberg_keeps_its_paths(gateway: Running) -> None:
    for path in ("/iceberg/refs/head", "/iceberg/tail", "/iceberg/data/f1620"):
        assert orjson.loads(load(gateway, path).body)["reason"] == "Forbidden"


def test_tables_are_listed_in_pages(store: Store, planes: Dataset) -> None:
    names = [f"t{number}" for number in range(5)]
    for name in names:
        dataset(store, name)
    with running(store, public=tuple(names)) as gateway:
        paged = catalogue(gateway, **{"rest-page-size": "2"}).list_tables("default")
        assert paged == [("default", name) for name in ("planes", *names)]

        def listed(after: str) -> int:
            return len(orjson.loads(load(gateway, f"{TABLES}?pageToken={after}&pageSize=4").body)["identifiers"])

        assert [listed(after) for after in ("", "t2")] == [4, 2]
        for size in ("0", "-1", "x", "٣", "1.5"):
            assert error(load(gateway, f"{TABLES}?pageSize={quote(size)}")) == (400, "BadRequestException")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/namespaces", 406),
        ("POST", "/namespaces/default/properties", 406),
        ("POST", "/tables/rename", 406),
        ("POST", "/namespaces/default/tables/planes/plan", 406),
        ("DELETE", "/namespaces/default", 403),
        ("POST", "/namespaces/default/tables", 403),
        ("POST", "/namespaces/default/register", 403),
        ("POST", "/namespaces/default/tables/planes", 403),
        ("DELETE", "/namespaces/default/tables/planes?purgeRequested=true", 403),
        ("POST", "/transactions/commit", 403),
        ("POST", "/namespaces/default/views", 403),
        ("DELETE", "/namespaces/default/views/x", 403),
    ],
)
def test_write_is_refused_as_specified(gateway: Running, method: str, path: str, status: int) -> None:
    kinds = {403: "ForbiddenException", 406: "UnsupportedOperationException"}
    assert error(ask(gateway, f"{V1}{path}", method, b"{}", **AS_READER)) == (status, kinds[status])


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/namespaces/other", "NoSuchNamespaceException"),
        ("/namespaces/default%1Fx", "NoSuchNamespaceException"),
        ("/namespaces?parent=other", "NoSuchNamespaceException"),
        ("/namespaces/other/tables", "NoSuchNamespaceException"),
        ("/namespaces/other/tables/planes", "NoSuchNamespaceException"),
        ("/namespaces/default/tables/absent", "NoSuchTableException"),
        ("/namespaces/default/tables/a%2Fb", "NoSuchTableException"),
        ("/namespaces/default/views/planes", "NoSuchViewException"),
        ("/namespaces/default/tables/planes/credentials", "NotFoundException"),
        ("/functions", "NotFoundException"),
    ],
)
def test_unknown_name_is_404_with_its_exception(gateway: Running, path: str, kind: str) -> None:
    answer = load(gateway, f"{V1}{path}")
    assert error(answer) == (404, kind)


def test_answers_have_the_fields_of_specification(planes: Dataset, gateway: Running) -> None:
    """REST specification: CatalogConfig, GetNamespaceResponse, ListTablesResponse, LoadTableResult."""
    config = ConfigResponse.model_validate_json(load(gateway, f"{V1}/config?warehouse=x").body)
    assert config.endpoints is not None
    assert Capability.V1_LOAD_TABLE in config.endpoints
    assert not any("properties" in str(each) or str(each).startswith("DELETE") for each in config.endpoints)
    found = orjson.loads(load(gateway, f"{V1}/namespaces/default").body)
    assert found == {"namespace": ["default"], "properties": {}}
    for path in ("/namespaces?parent=default", "/namespaces/default/views"):
        assert not next(iter(orjson.loads(load(gateway, f"{V1}{path}").body).values()))
    table = TableResponse.model_validate_json(load(gateway).body)
    assert table.metadata_location == planes.export_iceberg().metadata_location
    assert table.config == {}
    report = ask(gateway, f"{PLANES}/metrics", "POST", b"{}", **AS_READER)
    assert (report.status, report.body) == (204, b"")
    for path in (PLANES, f"{V1}/namespaces/default"):
        there = ask(gateway, path, "HEAD", **AS_READER)
        assert (there.status, there.body) == (204, b"")


def test_secret_is_exchanged_for_token(planes: Dataset, gateway: Running) -> None:
    server = {"uri": f"{gateway.root}/iceberg", "oauth2-server-uri": f"{gateway.root}{V1}/oauth/tokens"}
    found = RestCatalog("gateway", credential=f"anyone:{READER}", **server)
    assert months(found) == [1]
    basic: Any = {
        "type": "oauth2",
        "oauth2": {
            "client_id": "anyone",
            "client_secret": READER,
            "token_url": server["oauth2-server-uri"],
        },
    }
    assert months(RestCatalog("gateway", auth=basic, **server)) == [1]
    with pytest.raises(OAuthError, match="invalid_client"):
        RestCatalog("gateway", credential="anyone:false-false-false", **server)
    exchanged = tokens(gateway, f"grant_type={quote(TOKEN_EXCHANGE)}&subject_token={READER}")
    assert orjson.loads(exchanged.body)["access_token"] == READER
    assert exchanged.headers["Cache-Control"] == "no-store"
    for form, status, reason in (
        ("grant_type=password&username=x&password=y", 400, "unsupported_grant_type"),
        ("grant_type=client_credentials&client_id=x", 400, "invalid_request"),
        ("", 400, "unsupported_grant_type"),
    ):
        refused = tokens(gateway, form)
        assert (refused.status, orjson.loads(refused.body)["error"]) == (status, reason)
    unknown = tokens(gateway, "grant_type=client_credentials&client_secret=wrong", **AS_READER)
    assert (unknown.status, orjson.loads(unknown.body)["error"]) == (401, "invalid_client")
    assert READER not in orjson.dumps(gateway.lines).decode()


def tokens(gateway: Running, form: str, **headers: str) -> Answered:
    headers["Content_Type"] = "application/x-www-form-urlencoded"
    return ask(gateway, f"{V1}/oauth/tokens", "POST", form.encode(), **headers)


def test_guessed_secrets_are_limited(gateway: Running, store: Store) -> None:
    with running(store, limits=Limits(per_second=0.01, burst=4)) as limited:
        answers = [tokens(limited, "grant_type=client_credentials&client_secret=wrong").status for _ in range(6)]
        assert answers == [401, 401, 401, 401, 429, 429]


def test_expiry_of_web_token_is_that_of_its_claim() -> None:
    def token(payload: bytes) -> str:
        return f"x.{base64.urlsafe_b64encode(payload).decode().rstrip('=')}.y"

    assert 90 < remaining(token(b'{"exp": %d}' % (time.time() + 100))) <= 100
    assert remaining(token(b'{"exp": 1}')) == 0
    for other in ("opaque", "a.b.c", token(b'{"exp": "x"}'), token(b"[]"), token(b'{"exp": 1e400}'), "x.é.y"):
        assert remaining(other) == 3600


def test_load_repairs_export_whose_files_are_lost(store: Store, planes: Dataset, gateway: Running) -> None:
    found = catalogue(gateway)
    assert months(found) == [1]
    store.delete([info.key for info in store.list(keys.iceberg("planes"))])
    assert months(found) == [1]
    assert months(found) == [1]


def killed(ask: Ask, *arguments: object) -> Iterator[bytes]:
    os.kill(os.getpid(), signal.SIGKILL)
    yield b""


def test_export_that_was_stopped_is_tried_again_later(
    planes: Dataset, gateway: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(tables, "_exported", killed)
        first = load(gateway)
    assert error(first) == (404, "NoSuchTableException")
    assert b"needs more than 3GB of memory" in first.body
    assert error(load(gateway)) == (404, "NoSuchTableException")
    monkeypatch.setattr(tables, "_RECENT_SECONDS", 0.0)
    assert load(gateway).status == 200


def test_loads_that_wait_for_a_failing_export_do_not_repeat_it(
    planes: Dataset, gateway: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    observed, exports, obstacle, later = Semaphore(0), list[str](), Tables._obstacle, time.monotonic() + 1000

    def observing(self: Tables, *arguments: Any) -> Any:
        observed.release()
        return obstacle(self, *arguments)

    def stopped(self: Tables, name: str, place: Place) -> None:
        exports.append(name)
        for _ in range(4):  # before each of three requests waits, and again before this export
            assert observed.acquire(timeout=60)
        monkeypatch.setattr(
            tables, "time", SimpleNamespace(monotonic=lambda: later)
        )  # the export takes more than a minute
        raise tables._StoppedError("the Iceberg export was stopped")

    monkeypatch.setattr(Tables, "_obstacle", observing)
    monkeypatch.setattr(Tables, "_export", stopped)
    with ThreadPoolExecutor(3) as pool:
        assert [each.status for each in pool.map(lambda _: load(gateway), range(3))] == [404] * 3
    assert exports == ["planes"]


def test_table_of_unsupported_columns_follows_choice(store: Store) -> None:
    Lake(store).create_dataset("planes").append(pa.table({"seats": [1], "span": pa.array([1], pa.uint64())}))
    dataset(store, "copy")
    places = {
        "planes": Place(store, "planes", iceberg="Refuse"),
        "omitted": Place(store, "planes"),
        "copy": Place(store, "copy", iceberg="Off"),
        "fresh": Place(store, "fresh"),
    }
    with running(
        store, catalogue=Shelf(**places), access=Tokens([{"name": "all", "token": READER, "pull": ["*"]}])
    ) as gateway:
        found = catalogue(gateway)
        assert found.list_tables("default") == [("default", "omitted"), ("default", "planes")]
        assert ask(gateway, f"{TABLES}/copy/metrics", "POST", b"{}", **AS_READER).status == 404
        for name, why in (("planes", "uint64"), ("copy", "spec.export.iceberg.enabled"), ("fresh", "no dataset")):
            with pytest.raises(NoSuchTableError, match=why):
                found.load_table(("default", name))
        assert found.list_tables("default") == [("default", "omitted")]
        assert found.load_table("default.omitted").schema().column_names == ["seats"]
        assert found.list_tables("default") == [("default", "omitted"), ("default", "planes")]  # now there is an export


GEO = ("default", "geo")
MEMBERS = ["geo++seed", "geo++extra"]


def test_cube_is_read_at_one_version_during_transaction(store: Store) -> None:
    cube.build(store)

    def cells(catalogue: RestCatalog, name: str, **scan: Any) -> list[int]:
        return sorted(catalogue.load_table(("default", name)).scan(**scan).to_arrow()["x"].to_pylist())

    with running(store, access=Tokens([{"name": "all", "token": READER, "pull": ["*"]}])) as gateway:
        found = catalogue(gateway)
        assert found.list_namespaces("default") == [GEO]
        assert found.list_tables("default") == [("default", name) for name in sorted(MEMBERS)]
        with pytest.raises(Crash):  # after the first member's commit
            cube.append(FaultStore(store, Fault(("put_if_match",), 2, after=True)))
        raw = {name: DatasetLog(store, name).snapshot(raw=True).version for name in MEMBERS}
        before = found.load_namespace_properties(GEO)
        named = {name: int(before[f"snapshot-id.{name}"]) for name in MEMBERS}
        assert sorted(raw[name] - named[name] for name in MEMBERS) == [0, 1]
        assert [cells(found, name) for name in MEMBERS] == [[1, 2], [1]]
        cube.append(store)
        assert [cells(found, name) for name in MEMBERS] == [[1, 2, 3], [1, 3]]  # though no head of a member moved
        assert [cells(found, name, snapshot_id=named[name]) for name in MEMBERS] == [[1, 2], [1]]
        after = found.load_namespace_properties(GEO)
        assert int(after["cube-version"]) == int(before["cube-version"]) + 1
        cube.cube_in(store).delete()
        assert found.list_namespaces("default") == []


def test_namespace_of_cube_needs_right_to_each_dataset(store: Store) -> None:
    cube.build(store)
    tokens = [{"name": "one", "token": READER, "pull": MEMBERS[:1]}, {"name": "all", "token": WRITER, "pull": MEMBERS}]
    with running(store, access=Tokens(tokens)) as gateway:
        allowed, denied = catalogue(gateway, WRITER), catalogue(gateway)
        assert allowed.list_namespaces("default") == [GEO]
        assert allowed.namespace_exists(GEO)
        assert allowed.list_tables(GEO) == []
        with pytest.raises(NoSuchTableError, match="load its datasets from 'default'"):
            allowed.load_table((*GEO, "seed"))
        assert denied.list_tables("default") == [("default", MEMBERS[0])]
        assert denied.list_namespaces("default") == []
        assert not denied.namespace_exists(GEO)
        with pytest.raises(NoSuchNamespaceError, match=r"no namespace 'default\.geo'"):
            denied.load_namespace_properties(GEO)
        store.put(head_key("geo"), b"{}")
        assert allowed.list_namespaces("default") == []
        assert not allowed.namespace_exists(GEO)


TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["planes", "default", "default\x1fx", "default\x1f", "..", ".", "all", "refs", "", "null", "*"]),
    st.just("a" * 300),
)
BODIES = st.one_of(
    st.binary(max_size=50),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.floats(allow_nan=False), TEXTS),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.one_of(st.sampled_from(["method", "uri", "headers", "region"]), TEXTS), inner, max_size=4
            ),
        ),
        max_leaves=8,
    ).map(lambda found: orjson.dumps(found, option=orjson.OPT_NON_STR_KEYS)),
    st.builds("grant_type={}&client_secret={}&subject_token={}".format, TEXTS, TEXTS, TEXTS).map(str.encode),
)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    store = open_store(StoreConfig(tmp_path_factory.mktemp("fuzzed").as_uri()))
    dataset(store, "planes")
    with running(store, public=("planes",), limits=Limits(burst=10**6)) as gateway:
        yield gateway


@settings(max_examples=150)
@given(
    method=st.sampled_from(["GET", "HEAD", "POST", "DELETE", "PUT"]),
    path=st.sampled_from(
        [
            "/config?warehouse={0}",
            "/oauth/tokens",
            "/namespaces?parent={0}&pageToken={1}",
            "/namespaces/{0}",
            "/namespaces/default/tables?pageToken={0}&pageSize={1}",
            "/namespaces/default/tables/{0}?snapshots={1}",
            "/namespaces/{0}/tables/planes",
            "/namespaces/default/tables/planes/{0}",
            "/namespaces/default/tables/planes/sign",
            "/namespaces/default/tables/planes/metrics",
            "/namespaces/default/views/{0}",
            "/{0}/{1}",
        ]
    ),
    texts=st.tuples(TEXTS, TEXTS),
    body=BODIES,
    etag=st.sampled_from(["", "*", '"x"', 'W/"x', "\xff", '"' + "x" * 300 + '"']),
)
def test_no_request_makes_catalogue_fail(
    fuzzed: Running, method: str, path: str, texts: tuple[str, str], body: bytes, etag: str
) -> None:
    asked = f"{V1}{path}".format(*(quote(text.encode("utf-8", "replace"), safe="") for text in texts))
    answer = ask(fuzzed, asked, method, body, **AS_READER, If_None_Match=etag)
    assert answer.status < 500
    if answer.status >= 400 and method != "HEAD" and not asked.startswith(f"{V1}/oauth"):
        error(answer)
