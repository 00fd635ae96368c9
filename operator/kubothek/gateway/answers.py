"""Errors as HTTP responses: status and body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import orjson
from aiohttp import web

from kubothek import errors

_STATUS: Final[tuple[tuple[type[errors.LakeError], int], ...]] = (
    (errors.DatasetNotFound, 404),
    (errors.DatasetDeleted, 404),
    (errors.ObjectNotFound, 404),
    (errors.VersionNotFound, 404),
    (errors.NotALedger, 404),
    (errors.Diverged, 409),
    (errors.DatasetExists, 409),
    (errors.IdReused, 409),
    (errors.OwnedByAnother, 403),
    (errors.ChainCorrupt, 422),
    (errors.IngestStopped, 422),
    (errors.StoreError, 503),
    (errors.WorkerUnavailable, 503),
    (errors.CommitError, 503),
    (errors.SourceUnavailable, 503),
    (errors.InputError, 400),
)
"""The first match decides."""


def status_of(error: errors.LakeError) -> int:
    """Return the status of a response to a request that ended with this error."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def refusal(status: int, reason: str, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return an error response. Details of internal errors are only in the gateway's log."""
    said = message if status < 500 else "the gateway cannot do that now"
    body = orjson.dumps({"reason": reason, "message": said})
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)
