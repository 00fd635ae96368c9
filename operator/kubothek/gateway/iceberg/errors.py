"""Errors in the form that clients of an Iceberg REST catalogue read: REST specification, ``IcebergErrorResponse``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

import orjson
from aiohttp import web

V1: Final = "/iceberg/v1"
"""Path of all requests; clients get the part before the version as the catalogue's URI.

A dataset may have the name ``iceberg``: none of its paths begins like this.
"""
_TYPES: Final = {
    400: "BadRequestException",
    401: "NotAuthorizedException",
    403: "ForbiddenException",
    404: "NotFoundException",
    406: "UnsupportedOperationException",
    429: "TooManyRequestsException",
    500: "InternalServerError",
    503: "ServiceUnavailableException",
}
_NO_TABLE: Final = ("DatasetNotFound", "DatasetDeleted")
_JSON: Final = "application/json"
_KEPT_HEADERS: Final = ("Retry-After", "WWW-Authenticate")


def refuse(status: int, message: str, kind: str | None = None) -> web.Response:
    """Return an error response; ``kind``: the exception of the client, by default that of the status."""
    return web.Response(status=status, text=_body(status, message, kind), content_type=_JSON)


def not_found(message: str, kind: str) -> web.HTTPNotFound:
    """Return an error of status 404, to raise."""
    return web.HTTPNotFound(text=_body(404, message, kind), content_type=_JSON)


def _body(status: int, message: str, kind: str | None) -> str:
    error = {"message": message, "type": kind or _TYPES.get(status, "RESTException"), "code": status}
    return orjson.dumps({"error": error}).decode()


@web.middleware
async def translate(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Convert the errors of requests below :data:`V1` to the form of the specification."""
    if not request.path.startswith(f"{V1}/"):
        return await handler(request)
    try:
        answer = await handler(request)
    except web.HTTPException as error:
        if (translated := _translated(error)) is None:
            raise
        return translated
    return (_translated(answer) if isinstance(answer, web.Response) else None) or answer


def _translated(answer: web.Response) -> web.Response | None:
    """Return an error of the gateway or of aiohttp in that form; None for an answer that needs no conversion."""
    if answer.status < HTTPStatus.BAD_REQUEST:
        return None
    try:
        body = orjson.loads(answer.text or "")
    except orjson.JSONDecodeError:
        translated = refuse(answer.status, answer.text or HTTPStatus(answer.status).phrase)
    else:
        if "error" in body:
            return None
        kind = "NoSuchTableException" if body["reason"] in _NO_TABLE else None
        translated = refuse(answer.status, body["message"], kind)
    for name in _KEPT_HEADERS:
        if name in answer.headers:
            translated.headers[name] = answer.headers[name]
    return translated
