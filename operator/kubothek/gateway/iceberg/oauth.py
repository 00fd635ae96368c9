"""Tokens by the client-credentials flow of OAuth2 (RFC 6749, 4.4), as clients of a REST catalogue request them.

The client secret is a token that the gateway knows: the cluster, or the file of tokens, issued it. The answer is that
token, after its verification. The client id has no meaning.
"""

from __future__ import annotations

import base64
import binascii
import time
from typing import Final
from urllib.parse import parse_qsl

import orjson
from aiohttp import web

from kubothek.gateway.bodies import refused
from kubothek.gateway.gate import Gate
from kubothek.gateway.iceberg.errors import V1

_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - the name of a type
_BASIC: Final = "basic "
_SECONDS: Final = 3600
"""Stated lifetime of a token that is not a JSON web token."""


class OAuth2:
    """The handler of requests for a token."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def routes(self) -> list[web.RouteDef]:
        """Return the route."""
        return [web.post(f"{V1}/oauth/tokens", self.token)]

    async def token(self, request: web.Request) -> web.StreamResponse:
        """Return the client secret, or the token to be exchanged, as an access token if it is valid."""
        body = (await self._gate.small_body(request)).decode("latin-1")
        form = dict(parse_qsl(body))
        match form.get("grant_type"):
            case "client_credentials":
                secret = form.get("client_secret") or _password(request.headers.get("Authorization", ""))
            case str(grant) if grant == _EXCHANGE:
                secret = form.get("subject_token", "")
            case _:
                return _refuse(400, "unsupported_grant_type", f"grant_type must be client_credentials or {_EXCHANGE}")
        if not secret:
            return _refuse(400, "invalid_request", "the token is missing: send it as client_secret")
        if await self._gate.authenticate(request, secret):
            message = "rate limit exceeded for this client or address; retry after 2 s"
            raise refused(web.HTTPTooManyRequests, "TooManyRequests", message)
        if self._gate.authenticated(request) is None:
            return _refuse(401, "invalid_client", "the client secret is not a token that this gateway knows")
        answer = {
            "access_token": secret,
            "token_type": "bearer",
            "issued_token_type": _ACCESS_TOKEN,
            "expires_in": remaining(secret),
        }
        return _json(200, answer)


def _password(header: str) -> str:
    """Return the password of basic authentication (RFC 7617); empty for another header."""
    if header[: len(_BASIC)].lower() != _BASIC:
        return ""
    try:
        return base64.b64decode(header[len(_BASIC) :], validate=True).decode("latin-1").partition(":")[2]
    except binascii.Error:
        return ""


def remaining(token: str) -> int:
    """Return the seconds until a verified token expires, by its own claim (RFC 7519, 4.1.4)."""
    try:
        payload = token.split(".")[1]
        expiry = orjson.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["exp"]
        return max(0, int(expiry - time.time()))
    except (IndexError, KeyError, TypeError, ValueError, OverflowError):
        return _SECONDS


def _refuse(status: int, error: str, description: str) -> web.Response:
    return _json(status, {"error": error, "error_description": description})


def _json(status: int, content: object) -> web.Response:
    headers = {"Cache-Control": "no-store"}
    return web.Response(status=status, body=orjson.dumps(content), content_type="application/json", headers=headers)
