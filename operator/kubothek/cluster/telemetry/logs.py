"""The operator's log: text for people, or a JSON object a line, each with the round that it belongs to."""

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
"""What a message may say besides, by ``extra``."""

_round: ContextVar[dict[str, str] | None] = ContextVar("round", default=None)


@contextmanager
def round_of(key: Key) -> Iterator[None]:
    """All that is logged in the block belongs to one round over this resource, and says so by the same id."""
    token = _round.set({**key._asdict(), "reconcile_id": token_hex(4)})
    try:
        yield
    finally:
        _round.reset(token)


class JsonLines(logging.Formatter):
    """``time, level, logger, message``; of a round ``kind, namespace, name, reconcile_id``; perhaps ``error``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the message has."""
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
    """Set the logging of this process up."""
    handler = logging.StreamHandler()
    handler.setFormatter(
        JsonLines() if as_json else logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    logging.basicConfig(level=level, handlers=[handler])
