"""How far a pull reaches: no token and no request goes where they must not."""

from __future__ import annotations

from io import BytesIO

import pytest

from kubothek.errors import AccessDenied, InvalidCredentials, ObjectNotFound, StoreUnavailable
from kubothek.ingest.fetch.policy import UrlPolicy
from kubothek.odf import Multihash
from kubothek.odf.sync import Reach, WebRepository
from kubothek.odf.sync import Web as Client
from kubothek.odf.sync.smart.client import Conversation
from kubothek.storage.retry import RetryPolicy
from tests.ingest.test_urls import resolving_to
from tests.webserver import Web, web

pytestmark = pytest.mark.slow

__all__ = ["web"]

HASTY = RetryPolicy(unreachable=0.1, troubled=0.1, silence=5.0)
BLOCK = Multihash.sha3(b"block")
HERE = UrlPolicy(("127.0.0.1", "localhost"), allow_local=True)
STRICT = UrlPolicy(("*",))


@pytest.mark.parametrize("policy", [None, HERE])
def test_redirect_to_other_host_drops_token(web: Web, policy: UrlPolicy | None) -> None:
    path = f"/ds/blocks/{BLOCK}"
    web.put("/there", b"block")
    web.put(path, b"", status=302, Location=web.url("/there", host="localhost"))
    found = WebRepository(Client(web.url("/ds"), Reach(token="t0ken", policy=policy), HASTY)).block(BLOCK)
    assert found == b"block"
    tokens = [(asked_path, headers.get("authorization")) for asked_path, headers in web.asked]
    assert tokens == [(path, "Bearer t0ken"), ("/there", None)]


@pytest.mark.parametrize("policy", [None, HERE])
def test_upload_after_redirect_sends_complete_body(web: Web, policy: UrlPolicy | None) -> None:
    web.put("/here", b"", status=307, Location=web.url("/there"))
    client = Client(web.url("/ds"), Reach(policy=policy), HASTY)
    source = BytesIO(b"a slice")
    with client.ask("PUT", web.url("/here"), "it", {"Content-Length": "7"}, source) as answer:
        assert answer.status == 201
    assert web.posted == [("/here", b"a slice"), ("/there", b"a slice")]


def test_pull_with_unreachable_first_address_uses_next(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    resolving_to(monkeypatch, "::1", "127.0.0.1")
    path = f"/ds/blocks/{BLOCK}"
    web.put(path, b"block")
    policy = UrlPolicy(("data.example",), allow_local=True)
    client = Client(web.url("/ds", host="data.example"), Reach(policy=policy), HASTY)
    for _ in range(2):
        assert WebRepository(client).block(BLOCK) == b"block"
    assert web.visited == [f"data.example:{web.port}{path}"] * 2
    nowhere = Client("http://data.example:1/ds", Reach(policy=policy), HASTY)
    with pytest.raises(StoreUnavailable, match=r"cannot be reached: .*127\.0\.0\.1 refuses the connection"):
        WebRepository(nowhere).head()


def test_url_policy_checks_every_url_and_address(web: Web) -> None:
    path = f"/ds/blocks/{BLOCK}"
    for target in ("http://169.254.169.254/latest", "file:///etc/passwd", "ftp://localhost/x"):
        web.put(path, b"", status=302, Location=target)
        with pytest.raises(AccessDenied):
            WebRepository(Client(web.url("/ds"), Reach(policy=HERE), HASTY)).block(BLOCK)
    web.put(path, b"", status=302, Location=web.url(path))
    with pytest.raises(AccessDenied, match="redirects"):
        WebRepository(Client(web.url("/ds"), Reach(policy=HERE), HASTY)).block(BLOCK)
    web.asked.clear()
    for host in ("127.0.0.1", "localhost"):
        client = Client(web.url("/ds", host=host), Reach(policy=STRICT), HASTY)
        with pytest.raises(AccessDenied):
            WebRepository(client).head()
        with pytest.raises(AccessDenied), Conversation(client, "pull"):
            pass
    assert not web.asked


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, InvalidCredentials),
        (403, AccessDenied),
        (404, ObjectNotFound),
        (429, StoreUnavailable),
        (503, StoreUnavailable),
    ],
)
def test_server_error_status_maps_to_matching_error(web: Web, status: int, error: type[Exception]) -> None:
    web.put(f"/ds/blocks/{BLOCK}", b"", status=status)
    with pytest.raises(error):
        WebRepository(Client(web.url("/ds"), Reach(), HASTY)).block(BLOCK)


def test_unreachable_server_raises_store_unavailable() -> None:
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        WebRepository(Client("http://127.0.0.1:9/ds", Reach(), HASTY)).head()
