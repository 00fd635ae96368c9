"""The operator's log: text, or one JSON object a line with the reconciliation that it belongs to."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from secrets import token_hex
from typing import Final

from kubothek.cluster.queue import Key

_EXTRA: Final = ("job", "verb")
"""Further fields that a message may set by ``extra``."""

_round: ContextVar[dict[str, str] | None] = ContextVar("round", default=None)


@contextmanager
def round_of(key: Key) -> Iterator[None]:
    """Mark everything logged in the block with this resource and one id of the reconciliation."""
    token = _round.set({**key._asdict(), "reconcile_id": token_hex(4)})
    try:
        yield
    finally:
        _round.reset(token)


class JsonLines(logging.Formatter):
    """Formatter of JSON lines.

    Fields: ``time, level, logger, message``; in a reconciliation ``kind, namespace, name, reconcile_id``; with an
    exception ``error``.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, also for a message with line breaks."""
        line: dict[str, str] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **(_round.get() or {}),
        }
        line.update({name: str(getattr(record, name)) for name in _EXTRA if hasattr(record, name)})
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def log_to_stderr(level: str, *, as_json: bool) -> None:
    """Set up the logging of this process."""
    handler = logging.StreamHandler()
    handler.setFormatter(
        JsonLines() if as_json else logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    logging.basicConfig(level=level, handlers=[handler])
