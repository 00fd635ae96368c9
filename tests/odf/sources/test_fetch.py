"""Fetching from URLs (FE-01, FE-04 … FE-08, SS-02, SS-03) and event times of sources (ET-10 … ET-12)."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from email.utils import format_datetime
from gc import collect
from gzip import compress
from pathlib import Path
from typing import Any

import pytest

from kubothek.errors import (
    DataTypeMismatch,
    InputError,
    LakeError,
    SourceCorrupt,
    SourceNotFound,
    SourceRefused,
    SourceUnavailable,
)
from kubothek.ingest import UrlPolicy
from kubothek.odf.sources.fetch import SOURCE_NAME, UpToDate, in_stores, poll
from kubothek.odf.spec.events import SourceState
from kubothek.odf.spec.sources import (
    CompressionFormat,
    EventTimeSourceFromMetadata,
    EventTimeSourceFromPath,
    EventTimeSourceFromSystemTime,
    FetchStepEthereumLogs,
    FetchStepFilesGlob,
    FetchStepUrl,
    PrepStepDecompress,
    RequestHeader,
    SourceCachingForever,
    SqlQueryStep,
    TransformSql,
)
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.spec.unknown import Unknown
from kubothek.storage import StoreConfig, open_store
from tests.odf.sources.conftest import NOW_MS, all_rows, context, is_up_to_date, polled, source
from tests.webserver import Answer, Web

DATA = b"1,x\n2,y\n"
ROWS = [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
MODIFIED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MODIFIED_TEXT = "2026-01-02T03:04:05Z"
HTTP_DATE = format_datetime(MODIFIED, usegmt=True)


def etag(value: str) -> SourceState:
    return SourceState(source_name=SOURCE_NAME, kind="odf/etag", value=value)


def modified(value: str) -> SourceState:
    return SourceState(source_name=SOURCE_NAME, kind="odf/last-modified", value=value)


@pytest.mark.requirement("FE-01", "SS-03")
def test_url_fetch_sends_headers_and_returns_etag_as_state(web: Web) -> None:
    step = FetchStepUrl(url=web.put("/x?q=1", DATA, ETag='"1"'), headers=(RequestHeader(name="X-Key", value="k"),))
    found = polled(step)
    assert all_rows(found) == ROWS
    assert (found.state, found.has_more, found.name) == (etag('"1"'), False, step.url)
    assert found.state is not None
    assert found.state.source_name == "default"
    assert web.asked[0][1]["x-key"] == "k"


@pytest.mark.requirement("FE-01")
@pytest.mark.parametrize("name", ["Host", "If-None-Match", "x y", "x:y", ""])
def test_url_fetch_with_invalid_headers_is_refused(web: Web, name: str) -> None:
    with pytest.raises(InputError, match=r"fetch.headers"):
        polled(FetchStepUrl(url=web.put("/x", DATA), headers=(RequestHeader(name=name, value="k"),)))
    with pytest.raises(InputError, match=r"characters that no header has"):
        polled(FetchStepUrl(url=web.url("/x"), headers=(RequestHeader(name="X", value="a\r\nB: c"),)))
    assert web.asked == []


@pytest.mark.requirement("FE-01")
def test_url_fetch_headers_are_dropped_on_redirect_to_other_origin(web: Web) -> None:
    web.put("/x", DATA)
    web.put("/same", b"", 302, Location="/x")
    web.put("/other", b"", 302, Location=web.url("/x", "localhost"))
    headers = (RequestHeader(name="Authorization", value="Bearer secret"),)
    for path in ("/same", "/other"):
        assert all_rows(polled(FetchStepUrl(url=web.url(path), headers=headers))) == ROWS
    assert ["authorization" in asked for _, asked in web.asked] == [True, True, True, False]


@pytest.mark.requirement("FE-04")
@pytest.mark.parametrize(
    ("answer", "error", "problem"),
    [
        (Answer(status=404), SourceNotFound, "the server answers 404"),
        (Answer(status=401), SourceNotFound, "the server answers 401"),
        (Answer(status=503), SourceUnavailable, "the server answers 503"),
        (Answer(status=429), SourceUnavailable, "the server answers 429"),
        (Answer(DATA, promised=100), SourceUnavailable, "broke off after 8 bytes"),
        (Answer(status=304), SourceNotFound, "the server answers 304"),
        (Answer(status=302, headers={"Location": "/x"}), SourceRefused, "redirects more than 10 times"),
        (Answer(status=302, headers={"Location": "file:///etc/passwd"}), SourceRefused, "may not lead to a file"),
        (
            Answer(status=302, headers={"Location": "http://other.example/"}),
            SourceRefused,
            "not on the operator's list",
        ),
        (Answer(b"1,2\nx,3\n"), DataTypeMismatch, r"column 'a', row 2 \(line 2\): 'x' is no int64"),
        (Answer(b"1,2\n3\n"), LakeError, r"row 2 \(line 2\) has 1 values"),
    ],
)
def test_url_fetch_errors_are_classified_as_transient_or_permanent(
    web: Web, answer: Answer, error: type[LakeError], problem: str
) -> None:
    web.answers["/x"] = answer
    with pytest.raises(error, match=problem) as caught:
        all_rows(polled(FetchStepUrl(url=web.url("/x"))))
    assert caught.value.transient == (error is SourceUnavailable)


@pytest.mark.requirement("FE-04")
def test_url_fetch_follows_ten_redirects_and_waits_for_slow_response(web: Web) -> None:
    web.answers["/0"] = Answer(DATA, slowly=0.02)
    for number in range(1, 11):
        web.put(f"/{number}", b"", 302, Location=f"/{number - 1}")
    assert all_rows(polled(FetchStepUrl(url=web.url("/10")))) == ROWS


@pytest.mark.requirement("FE-04")
def test_url_fetch_from_unreachable_server_raises_unavailable() -> None:
    with pytest.raises(SourceUnavailable, match=r"cannot be reached"):
        polled(FetchStepUrl(url="http://127.0.0.1:9/x"))


@pytest.mark.requirement("FE-04")
@pytest.mark.parametrize("url", ["gopher://127.0.0.1/x", "x", "javascript:alert(1)", "", "http://u:p@127.0.0.1/x"])
def test_url_fetch_with_unsupported_scheme_is_refused(url: str) -> None:
    with pytest.raises(SourceRefused):
        polled(FetchStepUrl(url=url))


@pytest.mark.requirement("FE-04")
def test_url_fetch_outside_policy_is_refused(web: Web, tmp_path: Path) -> None:
    strict = context(policy=UrlPolicy(("127.0.0.1",)))
    with pytest.raises(SourceRefused, match=r"not a public address|port .* is not"):
        polled(FetchStepUrl(url=web.put("/x", DATA)), ctx=strict)
    with pytest.raises(SourceRefused, match=r"outside a cluster only"):
        polled(FetchStepUrl(url=(tmp_path / "x").as_uri()), ctx=strict)
    with pytest.raises(SourceRefused, match=r"outside a cluster only"):
        polled(FetchStepFilesGlob(path=str(tmp_path / "*")), ctx=strict)
    with pytest.raises(SourceRefused, match=r"larger than 5 bytes"):
        polled(FetchStepUrl(url=web.url("/x")), ctx=context(policy=UrlPolicy(("*",), allow_local=True, max_bytes=5)))
    assert [path for path, _ in web.asked] == ["/x"]


@pytest.mark.requirement("FE-05")
def test_url_fetch_expands_variables_in_url_and_headers(web: Web) -> None:
    url = web.url("/${{ env.KEY }}?t=${{env.KEY}}")
    step = FetchStepUrl(url=url, headers=(RequestHeader(name="X", value="Bearer ${{ env.TOKEN }}"),))
    web.put("/s3cret?t=s3cret", DATA)
    found = polled(step, ctx=context(env={"KEY": "s3cret", "TOKEN": "t0ken", "OTHER": "x"}))
    assert (all_rows(found), found.name) == (ROWS, url)
    assert web.asked[0][1]["x"] == "Bearer t0ken"


@pytest.mark.requirement("FE-05")
@pytest.mark.parametrize("text", ["${{ env.HOME }}", "${{ secrets.KEY }}", "${{ KEY }}", "${{ env.KEY + 1 }}", "${{}}"])
def test_url_fetch_with_undefined_variable_is_refused(text: str) -> None:
    with pytest.raises(
        InputError, match=r"needs variable 'HOME', which is not set; variables that are set: KEY|is not understood"
    ):
        polled(FetchStepUrl(url=f"http://127.0.0.1/{text}"), ctx=context(env={"KEY": "x"}))


@pytest.mark.requirement("FE-05")
def test_url_fetch_errors_never_show_variable_values(web: Web) -> None:
    ctx = context(env={"KEY": "s3cret/é".replace("é", "x")})
    url = web.url("/${{ env.KEY }}")
    for body, status in ((b"", 404), (b"1\n", 200), (b"x,1\n", 200), (b"\x1f\x8b", 200)):
        web.put("/s3cret/x", body, status)
        with pytest.raises(LakeError) as caught:
            all_rows(polled(FetchStepUrl(url=url), ctx=ctx))
        assert "s3cret" not in str(caught.value)
        assert "${{ env.KEY }}" in str(caught.value)
    assert "s3cret" not in repr(ctx)
    for value in ("s3cret\n", "S3CRET.example"):  # as files end, as hosts are folded
        with pytest.raises(SourceRefused) as refused:
            polled(FetchStepUrl(url="http://${{ env.KEY }}/x"), ctx=context(env={"KEY": value}))
        assert "s3cret" not in str(refused.value).lower()


@pytest.mark.requirement("FE-06")
def test_url_cached_forever_is_fetched_once(web: Web) -> None:
    step = FetchStepUrl(url=web.put("/x", DATA), cache=SourceCachingForever())
    assert polled(step).state is None
    assert is_up_to_date(step, None, context(ingested=True, fetch_uncacheable=True))
    assert is_up_to_date(step, etag("1"))
    assert len(web.asked) == 1


@pytest.mark.requirement("FE-07")
def test_url_fetch_uses_http_conditional_requests(web: Web) -> None:
    step = FetchStepUrl(url=web.put("/x", DATA, ETag='W/"1"', Last_Modified=HTTP_DATE))
    first = polled(step)
    assert first.state == etag('W/"1"')  # rather than the date
    assert is_up_to_date(step, first.state)
    assert web.asked[1][1]["if-none-match"] == 'W/"1"'
    web.put("/x", DATA, ETag='W/"2"')
    assert polled(step, first.state).state == etag('W/"2"')
    web.put("/x", DATA, Last_Modified=HTTP_DATE)
    found = polled(step, first.state)
    assert (found.state, found.event_time) == (modified(MODIFIED_TEXT), Timestamp.parse(MODIFIED_TEXT))
    assert is_up_to_date(step, found.state)
    assert web.asked[-1][1]["if-modified-since"] == HTTP_DATE
    web.conditions = False  # a server that sends all of it again
    assert is_up_to_date(step, found.state)


@pytest.mark.requirement("FE-07")
def test_url_fetch_keeps_conditional_headers_across_redirects(web: Web) -> None:
    web.put("/x", DATA, ETag="1")
    step = FetchStepUrl(url=web.put("/r", b"", 302, Location="/x"))
    assert is_up_to_date(step, polled(step).state)


@pytest.mark.requirement("FE-07")
def test_uncacheable_url_is_fetched_only_on_request(web: Web) -> None:
    step = FetchStepUrl(url=web.put("/x", DATA))
    assert polled(step).state is None
    assert poll(source(step), None, context(ingested=True)) == UpToDate(uncacheable=True)
    assert all_rows(polled(step, None, ctx=context(ingested=True, fetch_uncacheable=True))) == ROWS
    assert len(web.asked) == 2


@pytest.mark.requirement("SS-02")
@pytest.mark.parametrize("state", [("x/y", "1"), ("odf/last-modified", "yesterday"), ("odf/etag", "a\nb")])
def test_unknown_source_state_is_ignored(web: Web, state: tuple[str, str]) -> None:
    step = FetchStepUrl(url=web.put("/x", DATA, ETag="1"))
    unknown = SourceState(source_name=SOURCE_NAME, kind=state[0], value=state[1])
    assert all_rows(polled(step, unknown, ctx=context(ingested=True))) == ROWS


@pytest.mark.requirement("FE-08")
def test_file_fetch_uses_modification_time_as_state(tmp_path: Path) -> None:
    path = tmp_path / "a b.csv"
    path.write_bytes(DATA)
    os.utime(path, ns=(0, 1_700_000_000_123_456_789))
    step = FetchStepUrl(url=path.as_uri())
    found = polled(step)
    assert all_rows(found) == ROWS
    assert found.state == modified("2023-11-14T22:13:20.123Z")
    assert found.event_time == Timestamp.parse("2023-11-14T22:13:20.123Z")
    assert is_up_to_date(step, found.state)
    os.utime(path, ns=(0, 1_700_000_000_124_000_000))
    assert polled(step, found.state).state == modified("2023-11-14T22:13:20.124Z")
    with pytest.raises(SourceNotFound, match=r"there is no such file"):
        polled(FetchStepUrl(url=(tmp_path / "b").as_uri()))


@pytest.mark.requirement("FE-01")
def test_url_fetch_reads_object_from_store(tmp_path: Path) -> None:
    config = StoreConfig(tmp_path.as_uri())
    open_store(config).put("in/x.csv", DATA)
    store = open_store(config)
    locate: Any = lambda url: (store, url.removeprefix("s3://bucket/"))  # noqa: E731
    step, ctx = FetchStepUrl(url="s3://bucket/in/x.csv"), context(locate=locate)
    found = polled(step, ctx=ctx)
    assert found.state == etag(store.stat("in/x.csv").etag)
    assert is_up_to_date(step, found.state, ctx)
    store.put("in/x.csv", DATA + DATA)
    with pytest.raises(LakeError, match=r"was replaced while it was being read"):
        all_rows(found)
    assert all_rows(polled(step, found.state, ctx=ctx)) == ROWS * 2
    with pytest.raises(SourceNotFound, match=r"there is no 's3://bucket/y'"):
        polled(FetchStepUrl(url="s3://bucket/y"), ctx=ctx)
    with pytest.raises(SourceRefused, match=r"may read no object store"):
        polled(step)


@pytest.mark.requirement("FE-04")
def test_url_fetch_outside_configured_stores_is_refused(tmp_path: Path) -> None:
    locate = in_stores([StoreConfig("s3://bucket/a"), StoreConfig(tmp_path.as_uri())])
    assert locate(f"{tmp_path.as_uri()}/x/y")[1] == "x/y"
    for url in ("s3://bucket/ab/x", "s3://bucket/b", "s3://other/a/x"):
        with pytest.raises(SourceRefused, match=r"is in no store that this source may read"):
            locate(url)


@pytest.mark.requirement("ET-10", "ET-12")
def test_url_event_time_comes_from_metadata_or_system_time(web: Web) -> None:
    url, since = web.put("/x", DATA, Last_Modified=HTTP_DATE), Timestamp.parse(MODIFIED_TEXT)
    for given, found in (
        (None, since),
        (EventTimeSourceFromMetadata(), since),
        (EventTimeSourceFromSystemTime(), NOW_MS),
    ):
        assert polled(FetchStepUrl(url=url, event_time=given)).event_time == found
    web.put("/x", DATA)
    assert polled(FetchStepUrl(url=url, event_time=EventTimeSourceFromMetadata())).event_time == NOW_MS
    web.put("/x", DATA, Last_Modified="yesterday")
    assert polled(FetchStepUrl(url=url)).event_time == NOW_MS
    with pytest.raises(InputError, match=r"FromPath is for FilesGlob"):
        polled(FetchStepUrl(url=url, event_time=EventTimeSourceFromPath(pattern="(x)")))


@pytest.mark.requirement("ET-10", "ET-11")
@pytest.mark.parametrize(
    ("pattern", "form", "name", "found"),
    [
        (r"(\d+-\d+-\d+)", None, "x-2020-01-31.csv", "2020-01-31T00:00:00Z"),
        (r"^x-(\d+)", "%Y%m%d%H", "x-2020013110.csv", "2020-01-31T10:00:00Z"),
        (r"(\d+)", "yyyyMMdd", "20200131.csv", "2020-01-31T00:00:00Z"),
        (r"(.*)\.csv", "%Y-%m-%dT%H%M%S%z", "2020-01-31T100000+0100.csv", "2020-01-31T09:00:00Z"),
        (r"(.*)\.csv", "rfc3339", "2020-01-31T10:00:00.5Z.csv", "2020-01-31T10:00:00.500Z"),
        (r"/(\d{4})/", "%Y", "2020/x.csv", "2020-01-01T00:00:00Z"),
    ],
)
def test_file_event_time_is_parsed_from_path(
    tmp_path: Path, pattern: str, form: str | None, name: str, found: str
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(DATA)
    given = EventTimeSourceFromPath(pattern=pattern, timestamp_format=form)
    assert polled(FetchStepFilesGlob(path=f"{tmp_path}/**", event_time=given)).event_time == Timestamp.parse(found)


@pytest.mark.requirement("ET-12")
@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (EventTimeSourceFromMetadata(), "FromMetadata is for URLs"),
        (EventTimeSourceFromPath(pattern="(x)z$"), r"has no time that fetch.eventTime.pattern '\(x\)z\$' matches"),
        (EventTimeSourceFromPath(pattern="x"), "has no group"),
        (EventTimeSourceFromPath(pattern="("), "is no regular expression"),
        (EventTimeSourceFromPath(pattern="(x)"), "'x' is no time of the format '%Y-%m-%d'"),
        (EventTimeSourceFromPath(pattern="(x)", timestamp_format="Q"), "is no time of the format 'Q'"),
        (Unknown(tag=9), "of a later version"),
    ],
)
def test_event_time_source_that_does_not_fit_fetch_step_is_refused(tmp_path: Path, given: Any, problem: str) -> None:
    (tmp_path / "x.csv").write_bytes(DATA)
    with pytest.raises(InputError, match=problem):
        polled(FetchStepFilesGlob(path=f"{tmp_path}/*.csv", event_time=given))


def test_failed_source_leaves_no_temporary_files(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    query = TransformSql(engine="datafusion", queries=(SqlQueryStep(query="SELECT * FROM input a, input b"),))
    gzip = PrepStepDecompress(format=CompressionFormat.GZIP)
    data = compress(b"1,x\n" * 100_000)
    step = FetchStepUrl(url=web.put("/x", data[:-300]))
    for transform in (None, query):
        with pytest.raises(SourceCorrupt, match=r"is not a sound Gzip file"):
            all_rows(polled(step, prepare=(gzip,), preprocess=transform))
    step = FetchStepUrl(url=web.put("/y", compress(b"1,x\n" * 1_000)))
    given_up = polled(step, prepare=(gzip,), preprocess=query)
    assert given_up.rows is not None
    given_up.rows.read_next_batch()
    given_up.rows.close()
    del given_up
    collect()
    assert list(tmp_path.iterdir()) == []


def test_source_of_newer_version_is_refused(web: Web) -> None:
    step = FetchStepUrl(url=web.put("/x", DATA))
    for each in (source(Unknown(tag=4)), source(step, Unknown(tag=8)), source(step, prepare=(Unknown(tag=3),))):
        with pytest.raises(InputError, match=r"(later|newer) version of Open Data Fabric"):
            poll(each, None, context())


@pytest.mark.requirement("RD-10")
def test_empty_response_yields_no_data_but_new_state(web: Web) -> None:
    found = polled(FetchStepUrl(url=web.put("/x", b"", ETag="1")))
    assert (found.rows, found.state) == (None, etag("1"))


@pytest.mark.requirement("PP-01")
def test_poll_applies_preprocess_query(web: Web) -> None:
    query = TransformSql(engine="datafusion", queries=(SqlQueryStep(query="SELECT a + 1 AS n FROM input"),))
    assert all_rows(polled(FetchStepUrl(url=web.put("/x", DATA)), preprocess=query)) == [{"n": 2}, {"n": 3}]
    web.put("/x", b"1,x\ny,2\n")
    with pytest.raises(DataTypeMismatch, match=r"row 2 \(line 2\): 'y' is no int64"):
        all_rows(polled(FetchStepUrl(url=web.url("/x")), preprocess=query))


def test_ethereum_logs_are_named_unsupported_with_a_remedy() -> None:
    with pytest.raises(InputError, match=r"EthereumLogs cannot be ingested.*: write the logs to files"):
        polled(FetchStepEthereumLogs())
