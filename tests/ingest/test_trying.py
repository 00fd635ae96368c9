"""Downloads that break off, stall, or are put off: asked for again, gone on with where that is safe, and in bounds."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from kubothek.errors import LakeError, SourceNotFound, SourceRefused, SourceUnavailable
from kubothek.ingest import UrlPolicy
from kubothek.ingest.fetch import download as fetch
from kubothek.ingest.fetch import retries
from kubothek.ingest.fetch.download import Download, download
from tests.webserver import Answer, Fault, Web, web

__all__ = ["web"]

LOCAL = UrlPolicy(("localhost", "127.0.0.1"), allow_local=True)
DATA = bytes(range(256)) * 4096
BROKEN = Fault(after=500_000)


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made, which are none."""
    made: list[float] = []
    monkeypatch.setattr(retries, "sleep", made.append)
    return made


def content(found: Download | None) -> bytes:
    assert found is not None
    with found.file, found.open() as reader:
        return reader.read()


@pytest.mark.parametrize(
    ("etag", "ranges", "asked"),
    [('"1"', True, ["", "bytes=500000-", "bytes=700000-"]), ('"1"', False, ["", "bytes=500000-", "bytes=200000-"]),
     ('W/"1"', True, ["", "", ""]), (None, True, ["", "", ""])],
)  # fmt: skip
def test_broken_download_resumes_with_range_if_safe(web: Web, etag: str | None, ranges: bool, asked: list[str]) -> None:
    given = {"Last-Modified": "Fri, 02 Jan 2026 03:04:05 GMT"} | ({} if etag is None else {"ETag": etag})
    web.answers["/x"] = Answer(DATA, headers=given)
    web.ranges = ranges
    web.faults["/x"] = [BROKEN, Fault(after=200_000)]
    found = download(web.url("/x"), LOCAL)
    assert found is not None
    assert (found.etag, found.modified) == (etag, given["Last-Modified"]), "what a part does not say, the whole did"
    assert found.size == len(DATA)
    assert content(found) == DATA
    assert [headers.get("range", "") for _, headers in web.asked] == asked


def test_download_after_connection_reset_is_retried(web: Web) -> None:
    for given in ({"ETag": '"1"'}, {}):
        web.answers["/x"] = Answer(DATA, headers=given)
        web.faults["/x"] = [Fault(after=900_000, resets=True), Fault(after=0, resets=True)]
        assert content(download(web.url("/x"), LOCAL)) == DATA


def test_download_of_file_changed_during_transfer_restarts(web: Web) -> None:
    url = web.put("/x", DATA, ETag='"1"')
    web.faults["/x"] = [BROKEN]
    before = web.answers["/x"]

    class Changing(list[Fault]):
        def __delitem__(self, place: object) -> None:
            web.put("/x", before.body[::-1], ETag='"2"')
            super().__delitem__(0)

    web.faults["/x"] = Changing([BROKEN])
    found = download(url, LOCAL)
    assert found is not None
    assert found.etag == '"2"'
    assert content(found) == DATA[::-1]


def test_download_waits_for_retry_after_of_server(web: Web, pauses: list[float]) -> None:
    url = web.put("/x", DATA)
    web.faults["/x"] = [Fault(503, {"Retry-After": "7"}), Fault(429), Fault(500, {"Retry-After": "soon"})]
    assert content(download(url, LOCAL)) == DATA
    assert (len(pauses), pauses[0]) == (3, 7.0)
    assert max(pauses[1:]) <= max(retries.PAUSES)
    web.faults["/x"] = [Fault(429, {"Retry-After": "3600"})]
    with pytest.raises(SourceUnavailable, match="answers 429") as caught:
        download(url, LOCAL)
    assert caught.value.after == 3600
    web.faults["/x"] = [Fault(503, {"Retry-After": "Fri, 02 Jan 2026 03:04:05 GMT"})]
    assert content(download(url, LOCAL)) == DATA, "a time that has passed"


def test_stalled_download_is_resumed(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "_TIMEOUT", 0.2)
    url = web.put("/x", DATA, ETag='"1"')
    web.faults["/x"] = [Fault(after=1000, stalls=1.0)]
    assert content(download(url, LOCAL)) == DATA
    assert web.asked[1][1]["range"] == "bytes=1000-"


def test_download_below_minimum_rate_fails(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "_SLOW_FOR", 0.05)
    url = web.put("/x", DATA[:50])
    web.answers["/x"].slowly = 0.02
    with pytest.raises(SourceUnavailable, match=r"comes too slowly, .* bytes in"):
        download(url, LOCAL)


def test_download_retries_are_bounded_and_only_for_transient_errors(web: Web, pauses: list[float]) -> None:
    trying_again = len(retries.PAUSES)
    url = web.put("/x", DATA, ETag='"1"')
    web.faults["/x"] = [Fault(after=number) for number in range(9)]
    with pytest.raises(SourceUnavailable, match="broke off"):
        download(url, LOCAL)
    assert (len(web.asked), len(pauses)) == (1 + trying_again, trying_again)
    pauses.clear()
    for status, error in ((404, SourceNotFound), (206, SourceNotFound), (416, SourceNotFound)):
        web.asked.clear()
        web.faults["/x"] = [Fault(status)]
        with pytest.raises(error):
            download(url, LOCAL)
        assert len(web.asked) == 1
    web.faults["/x"] = [BROKEN]
    with pytest.raises(SourceRefused, match="larger than"):
        download(url, UrlPolicy(("*",), allow_local=True, max_bytes=600_000))


def test_download_with_wrong_range_response_restarts(web: Web) -> None:
    url = web.put("/x", DATA, ETag='"1"')
    for second in (Fault(206, {"Content-Range": "bytes 0-9/10"}), Fault(416), Fault(206)):
        web.asked.clear()
        web.faults["/x"] = [BROKEN, second]
        assert content(download(url, LOCAL)) == DATA
        assert [headers.get("range", "") for _, headers in web.asked] == ["", "bytes=500000-", ""]


def test_failed_download_leaves_no_files_or_connections(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    url = web.put("/x", DATA)
    opened = len(list(Path("/proc/self/fd").iterdir()))
    web.faults["/x"] = [BROKEN] * 4
    with pytest.raises(LakeError):
        download(url, LOCAL)
    gc.collect()
    assert not list(tmp_path.iterdir())
    assert len(list(Path("/proc/self/fd").iterdir())) <= opened + 1, "the server's own connection"


def test_retry_pauses_grow_and_are_bounded(pauses: list[float]) -> None:
    assert list(retries.PAUSES) == sorted(retries.PAUSES)
    assert sum(retries.PAUSES) < retries.LONGEST_PAUSE
    tries: list[int] = []

    def act() -> None:
        tries.append(1)
        raise SourceUnavailable("away")

    with pytest.raises(SourceUnavailable):
        retries.tried(act)
    assert len(tries) == 1 + len(retries.PAUSES)
    assert all(planned / 2 <= made <= planned for planned, made in zip(retries.PAUSES, pauses, strict=True))
