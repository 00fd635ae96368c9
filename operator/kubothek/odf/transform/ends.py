"""Ends of keys that are intervals of time: the day of date_trunc('day', event_time) ends a day after it begins."""

from __future__ import annotations

from kubothek.odf.transform.allowed import function_of
from kubothek.odf.transform.session import Session
from kubothek.odf.transform.trees import column_names
from kubothek.sql.statement import Node


def length_of(session: Session, key: Node) -> str | None:
    """Return the length of the interval as SQL; None for a key that is not an interval."""
    arguments = [each["expression"] for each in key.get("arguments", ())]
    if function_of(key) in ("date_trunc", "datetrunc") and not column_names(arguments[0]):
        return f"CAST('1 ' || {session.text(arguments[0])} AS INTERVAL)"
    if function_of(key) == "time_bucket" and not column_names(arguments[0]):
        return f"CAST({session.text(arguments[0])} AS INTERVAL)"
    if key["class"] == "CAST" and session.text(key).endswith("AS DATE)"):
        return "INTERVAL 1 DAY"
    return None


def end_of(column: str, length: str) -> str:
    """Return the end of an interval in microseconds, as SQL."""
    return f"epoch_us(CAST({column} AS TIMESTAMP) + {length})"
