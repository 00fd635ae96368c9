"""Errors in the form that clients of an Iceberg REST catalogue read: REST specification, ``IcebergErrorResponse``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

import orjson
from aiohttp import web

ROOT: Final = "/iceberg"
"""Path of the catalogue below the gateway's URL."""
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
_KEPT_HEADERS: Final = ("Retry-After", "WWW-Authenticate")


def refuse(status: int, message: str, kind: str | None = None) -> web.Response:
    """Return an error response; ``kind``: the exception of the client, by default that of the status."""
    error = {"message": message, "type": kind or _TYPES.get(status, "RESTException"), "code": status}
    return web.Response(status=status, body=orjson.dumps({"error": error}), content_type="application/json")


@web.middleware
async def translate(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Give errors of the gateway that a request below :data:`ROOT` meets the form of the specification."""
    if not request.path.startswith(f"{ROOT}/"):
        return await handler(request)
    answer: web.StreamResponse
    try:
        answer = await handler(request)
    except web.HTTPException as error:
        answer = error
    if answer.status < HTTPStatus.BAD_REQUEST or not isinstance(answer, web.Response):
        return answer
    message, kind = _said(answer)
    if message is None:
        return answer  # it has the form already
    translated = refuse(answer.status, message, kind)
    for name in _KEPT_HEADERS:
        if name in answer.headers:
            translated.headers[name] = answer.headers[name]
    return translated


def _said(answer: web.Response) -> tuple[str | None, str | None]:
    """Return message and exception of an error of the gateway or of aiohttp; None as message for any other."""
    try:
        body = orjson.loads(answer.text or "")
    except orjson.JSONDecodeError:
        return answer.text or HTTPStatus(answer.status).phrase, None
    if "error" in body:
        return None, None
    return body["message"], "NoSuchTableException" if body["reason"] in _NO_TABLE else None


_NO_TABLE: Final = {"DatasetNotFound", "DatasetDeleted"}
