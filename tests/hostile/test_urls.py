"""Hostile URLs and paths, given to a Commit as its source, to a Query as its destination."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kubothek.api.kinds import InvalidResource, parse
from kubothek.errors import SourceRefused
from kubothek.ingest import UrlPolicy
from tests.hostile.conftest import Site, cases

pytestmark = pytest.mark.slow

ALLOWED = ("data.example", "*.open.example")


@pytest.fixture(scope="session")
def redirecting() -> Iterator[dict[str, Any]]:
    """A web server that sends whoever comes to a Location that the test sets."""
    state: dict[str, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", state["location"])
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state["port"] = server.server_address[1]
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def internet(monkeypatch: pytest.MonkeyPatch, redirecting: dict[str, Any]) -> dict[str, Any]:
    """The address 198.41.0.4 is the redirecting server, and data.example has that address unless a test says other."""
    resolve, connect = socket.getaddrinfo, socket.create_connection
    state: dict[str, Any] = {"resolves": ["198.41.0.4"], "connected": []}

    def getaddrinfo(host: str, port: int, *rest: Any, **options: Any) -> list[Any]:
        if host == "data.example":
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in state["resolves"]]
        return resolve(host, port, *rest, **options)

    def create_connection(address: tuple[str, int], **options: Any) -> socket.socket:
        state["connected"].append(address[0])
        assert address[0] == "198.41.0.4", f"a connection to {address}"
        return connect(("127.0.0.1", redirecting["port"]), **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(socket, "create_connection", create_connection)
    return state


def source(url: str, case: dict[str, Any]) -> dict[str, Any]:
    hosts = ("*",) if case.get("any_host") else ALLOWED
    return {"format": "CSV", "urls": [url], "allowed_hosts": hosts, "allow_local": False}


def commit_manifest(**source: Any) -> dict[str, Any]:
    spec = {"datasetRef": {"name": "flights"}, "operation": "Append", "source": {"format": "CSV"} | source}
    return {"apiVersion": "kubothek.io/v1alpha1", "kind": "Commit", "metadata": {"name": "c"}, "spec": spec}


@cases("urls")
def test_hostile_url_in_job_is_refused_without_connection_to_inner_address(
    site: Site, case: dict[str, Any], internet: dict[str, Any], redirecting: dict[str, Any]
) -> None:
    internet["resolves"] = case.get("resolves", ["198.41.0.4"])
    redirecting["location"] = case.get("redirect")
    result = site.commit(operation="Append", source=source(case.get("url", "http://data.example/start"), case))
    assert result.reason == "SourceRefused", result
    assert re.search(case["job"], result.message), result.message
    assert bool(internet["connected"]) == ("redirect" in case)


@cases("urls")
def test_hostile_url_is_refused_by_cluster_when_detectable(case: dict[str, Any]) -> None:
    manifest = commit_manifest(urls=[case.get("url", "http://data.example/start")])
    if "cluster" not in case:
        assert parse(manifest).kind == "Commit"
        return
    with pytest.raises(InvalidResource, match=case["cluster"]):
        parse(manifest)


@cases("paths")
def test_source_path_outside_store_is_refused_by_job(site: Site, case: dict[str, Any]) -> None:
    result = site.commit(operation="Append", source={"format": "CSV", "paths": [case["path"]]})
    assert result.reason in ("InvalidKey", "SourceNotFound"), result
    assert re.search(case["job"], result.message), result.message


@cases("paths")
def test_source_path_outside_store_is_refused_by_cluster(case: dict[str, Any]) -> None:
    manifest = commit_manifest(paths=[case["path"]])
    if "cluster" not in case:
        assert parse(manifest).kind == "Commit"
        return
    with pytest.raises(InvalidResource, match=case["cluster"]):
        parse(manifest)


@cases("paths")
def test_result_path_outside_store_is_refused(site: Site, case: dict[str, Any]) -> None:
    """A name that is only strange is a name; anything else is no key."""
    if case["job"] != "no object key":
        return
    location = {"store": site.store, "path": case["path"], "format": "CSV"}
    result = site.query("SELECT 1 AS x", location=location)
    assert result.reason == "InvalidKey", result


@pytest.mark.parametrize("path", [".kubothek/flights/commits", "flights/table", "flights"])
def test_result_path_of_internal_object_is_refused(site: Site, path: str) -> None:
    result = site.query("SELECT 1 AS x", location={"store": site.store, "path": path, "format": "CSV"})
    assert result.reason == "InvalidInput", result


@pytest.mark.parametrize(
    ("rule", "url", "allowed"),
    [
        ("data.example", "https://data.example:443/x", True),
        ("data.example", "https://data.example:8443/x", False),
        ("data.example:8443", "https://data.example:8443/x", True),
        ("data.example:8443", "https://data.example:8444/x", False),
        ("*.example:8443", "https://data.example:8443/x", True),
        ("*", "https://data.example:8443/x", False),
        ("*:8443", "https://data.example:8443/x", True),
    ],
)
def test_url_port_is_scheme_default_or_allow_listed(rule: str, url: str, allowed: bool) -> None:
    rules = UrlPolicy((rule,))
    if allowed:
        assert rules.check(url).hostname == "data.example"
        return
    with pytest.raises(SourceRefused, match="port"):
        rules.check(url)
