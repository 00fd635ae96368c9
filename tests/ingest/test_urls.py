from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kubothek.errors import SourceChanged, SourceNotFound, SourceRefused, SourceUnavailable
from kubothek.ingest import Format, Source, SourceReader, UrlPolicy
from kubothek.ingest.fetch import download
from kubothek.ingest.fetch.policy import is_public
from tests.ingest.conftest import columns
from tests.webserver import Web, web

__all__ = ["web"]

LOCAL = UrlPolicy(("localhost", "127.0.0.1"), allow_local=True)
SCHEMA = columns(a=pa.int64())


def rows(url: str, policy: UrlPolicy = LOCAL, **options: Any) -> list[dict[str, Any]]:
    with SourceReader(Source(Format.CSV, urls=(url,), policy=policy, **options)) as reader:
        return [row for split in reader.plan().splits for b in reader.read(split, SCHEMA) for row in b.to_pylist()]


def test_url_source_is_read(web: Web) -> None:
    assert rows(web.put("/x.csv?token=1", b"a\n1\n2\n")) == [{"a": 1}, {"a": 2}]
    assert web.visited == [f"127.0.0.1:{web.port}/x.csv?token=1"]


def test_url_redirects_are_followed_and_checked_individually(web: Web) -> None:
    web.put("/x.csv", b"a\n1\n")
    web.put("/1", b"", 302, Location="/2")
    web.put("/2", b"", 307, Location=web.url("/x.csv", "localhost"))
    assert rows(web.url("/1")) == [{"a": 1}]
    web.put("/away", b"", 302, Location="http://elsewhere.example/x.csv")
    with pytest.raises(SourceRefused, match=r"host 'elsewhere.example' is not on the operator's list .*127.0.0.1"):
        rows(web.url("/away"))
    web.put("/file", b"", 302, Location="file:///etc/passwd")
    with pytest.raises(SourceRefused, match=r"a redirect may not lead to a file"):
        rows(web.url("/file"))
    web.put("/loop", b"", 302, Location="/loop")
    with pytest.raises(SourceRefused, match=r"redirects more than 5 times"):
        rows(web.url("/loop"))


@pytest.mark.parametrize(
    ("status", "error"),
    [(404, SourceNotFound), (403, SourceNotFound), (429, SourceUnavailable), (503, SourceUnavailable)],
)
def test_url_error_status_is_reported(web: Web, status: int, error: type[Exception]) -> None:
    with pytest.raises(error, match=f"/x.csv'.*answers {status}"):
        rows(web.put("/x.csv", b"a\n", status))


def test_truncated_url_response_is_refused(web: Web) -> None:
    with pytest.raises(SourceUnavailable, match=r"broke off after 4 bytes"):
        rows(web.put("/x.csv", b"a\n1\n", promised=100))


def test_unreachable_server_of_url_source_raises_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(SourceUnavailable, match=r"cannot be reached"):
        rows(f"http://127.0.0.1:{port}/x.csv")


def test_download_above_size_limit_is_refused(web: Web) -> None:
    with pytest.raises(SourceRefused, match=r"larger than 10 bytes"):
        rows(web.put("/x.csv", b"a\n" * 100), UrlPolicy(("*",), allow_local=True, max_bytes=10))


def test_url_changed_between_driver_and_executor_raises_source_changed(web: Web) -> None:
    url = web.put("/x.csv", b"a\n1\n", ETag='"1"')
    source = Source(Format.CSV, urls=(url,), policy=LOCAL)
    with SourceReader(source) as reader:
        split = reader.plan().splits[0]
    web.put("/x.csv", b"a\n2\n", ETag='"2"')
    with SourceReader(source) as reader, pytest.raises(SourceChanged):
        list(reader.read(split, SCHEMA))


def test_downloads_use_unnamed_temporary_files(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with SourceReader(Source(Format.CSV, urls=(web.put("/x.csv", b"a\n1\n"),), policy=LOCAL)) as reader:
        reader.plan()
        assert list(tmp_path.iterdir()) == []


def test_file_urls_are_readable_outside_cluster_only(tmp_path: Path) -> None:
    (tmp_path / "x y.csv").write_text("a\n1\n")
    url = (tmp_path / "x y.csv").as_uri()
    assert rows(url) == [{"a": 1}]
    with pytest.raises(SourceRefused, match=r"outside a cluster only"):
        rows(url, UrlPolicy(("*",)))
    with pytest.raises(SourceNotFound, match=r"no such file"):
        rows(url + "z")


@pytest.mark.parametrize(
    "url",
    [
        "ftp://data.example/x",
        "s3://bucket/x",
        "http:///x",
        "http://user:secret@data.example/x",
        "http://data.example:port/x",
        "http://[::1/x",
        "gopher://data.example",
        "http://data.example.evil.example/x",
        "http://evildata.example/x",
    ],
)
def test_url_outside_allow_list_is_refused(url: str) -> None:
    with pytest.raises(SourceRefused) as caught:
        rows(url, UrlPolicy(("data.example", "*.data.example")))
    assert "secret" not in str(caught.value)


def test_allowed_host_patterns_match_complete_names() -> None:
    rules = UrlPolicy(("Data.Example", "*.open.example"))
    assert rules.allows_host("data.example")
    assert rules.allows_host("DATA.EXAMPLE.")
    assert rules.allows_host("a.open.example")
    assert not rules.allows_host("open.example")
    assert not rules.allows_host("xopen.example")
    assert not UrlPolicy().allows_host("data.example")


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "255.255.255.255", "::1", "::", "fe80::1%eth0", "fc00::1", "ff02::1", "::ffff:10.0.0.1",
        "::ffff:169.254.169.254", "64:ff9b::a00:1", "2002:a00:1::", "::7f00:1", "2001:db8::1", "fd00:ec2::254",
        "64:ff9b:1::a00:1", "64:ff9b:1::808:808", "fec0::1", "fec0::7f00:1", "::ffff:0:a9fe:a9fe", "::ffff:0:808:808",
        "::ffff:7f00:1", "4000::1", "5f00::1", "3fff::1", "192.88.99.1", "2002:c058:6301::", "64:ff9b::c058:6301",
    ],
)  # fmt: skip
def test_cluster_internal_address_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "::ffff:808:808"])
def test_internet_address_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", ["10.0.0.7", "169.254.169.254"])
def test_allowed_host_that_resolves_into_cluster_is_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    def resolve(*_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 80)) for ip in ("1.1.1.1", address)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(SourceRefused, match=f"resolves to {address}, which is not a public address"):
        rows("http://data.example/x.csv", UrlPolicy(("data.example",)))


def test_connection_uses_address_that_was_checked(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["127.0.0.1", "10.0.0.7"])  # a DNS that changes its mind
    real = socket.getaddrinfo

    def resolve(host: str, *rest: Any, **named: Any) -> list[Any]:
        return real(next(answers) if host == "data.example" else host, *rest, **named)

    web.put("/x.csv", b"a\n1\n")
    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", resolve)
        rules = UrlPolicy(("data.example",), allow_local=True)
        connected = download.fetch(web.url("/x.csv", "data.example"), rules)
    with connected.file, connected.open() as content:
        assert content.read() == b"a\n1\n"
    assert web.visited == [f"data.example:{web.port}/x.csv"]


def test_download_with_unreachable_first_address_uses_next(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    resolving_to(monkeypatch, "::1", "127.0.0.1")
    web.put("/x.csv", b"a\n1\n")
    assert rows(web.url("/x.csv", "data.example"), UrlPolicy(("data.example",), allow_local=True)) == [{"a": 1}]


def test_host_without_reachable_address_raises_unavailable(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    resolving_to(monkeypatch, "::1", "127.0.0.1")
    with pytest.raises(SourceUnavailable, match=r"127\.0\.0\.1 refuses the connection"):
        rows("http://data.example:1/x.csv", UrlPolicy(("data.example",), allow_local=True))


def resolving_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Have every name these addresses; the test server listens on 127.0.0.1 only."""

    def resolve(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        family = {True: socket.AF_INET6, False: socket.AF_INET}
        found = addresses if host not in addresses else (host,)
        return [(family[":" in each], socket.SOCK_STREAM, 6, "", (each, port)) for each in found]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def test_host_that_does_not_resolve_raises_unavailable() -> None:
    with pytest.raises(SourceUnavailable, match=r"does not resolve"):
        rows("http://nowhere.invalid/x.csv", UrlPolicy(("nowhere.invalid",)))
