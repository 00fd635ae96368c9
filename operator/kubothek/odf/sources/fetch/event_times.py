"""The event time of a whole source (ET-10 … ET-12): that of rows without one of their own."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from kubothek.errors import FormatInvalid, InputError
from kubothek.odf.sources.readers.formats import strftime_of
from kubothek.odf.spec.sources import (
    EventTimeSource,
    EventTimeSourceFromMetadata,
    EventTimeSourceFromPath,
    EventTimeSourceFromSystemTime,
)
from kubothek.odf.spec.timestamps import Timestamp

_DEFAULT_FORMAT: Final = "%Y-%m-%d"
_FINER: Final = {"%g": "%f", "%n": "%f"}
"""Fractions of a second that DuckDB's ``strptime`` distinguishes and Python's does not."""


def of_url(source: EventTimeSource | None, modified: Timestamp | None, now: Timestamp) -> Timestamp:
    """Return the time of a file at a URL: its modification if known, else ``now``. Raises InputError for FromPath."""
    match source:
        case None | EventTimeSourceFromMetadata():
            return to_milliseconds(now if modified is None else modified)
        case EventTimeSourceFromSystemTime():
            return to_milliseconds(now)
        case EventTimeSourceFromPath():
            raise InputError("fetch.eventTime FromPath is for FilesGlob; a URL has FromMetadata and FromSystemTime")
    raise _unknown()


def of_path(source: EventTimeSource | None, path: str, now: Timestamp) -> Timestamp:
    """Return the time of a file of a glob: from its path, or ``now``. Raises InputError for FromMetadata, no match."""
    match source:
        case None | EventTimeSourceFromSystemTime():
            return to_milliseconds(now)
        case EventTimeSourceFromPath():
            return _from_path(source, path)
        case EventTimeSourceFromMetadata():
            raise InputError("fetch.eventTime FromMetadata is for URLs; FilesGlob has FromPath and FromSystemTime")
    raise _unknown()


def to_milliseconds(moment: Timestamp) -> Timestamp:
    """Truncate to milliseconds, the precision of event times."""
    return Timestamp(moment.nanoseconds // 10**6 * 10**6)


def _from_path(source: EventTimeSourceFromPath, path: str) -> Timestamp:
    try:
        pattern = re.compile(source.pattern)
    except re.error as error:
        raise InputError(f"fetch.eventTime.pattern {source.pattern!r} is no regular expression: {error}") from None
    if not pattern.groups:
        raise InputError(f"fetch.eventTime.pattern {source.pattern!r} has no group; put brackets around the time")
    found = pattern.search(path.rpartition("/")[2]) or pattern.search(path)
    if found is None or found[1] is None:
        raise InputError(f"{path!r} has no time that fetch.eventTime.pattern {source.pattern!r} matches")
    return to_milliseconds(_parsed(found[1], source.timestamp_format or _DEFAULT_FORMAT, path))


def _parsed(text: str, form: str, path: str) -> Timestamp:
    try:
        known = strftime_of(form)
        if known is None:
            return Timestamp.parse(text)
        for finer, python in _FINER.items():
            known = known.replace(finer, python)
        moment = datetime.strptime(text, known)
    except (ValueError, FormatInvalid) as error:
        raise InputError(f"{path!r}: {text!r} is no time of the format {form!r} (fetch.eventTime): {error}") from None
    return Timestamp.of(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _unknown() -> InputError:
    return InputError("fetch.eventTime is of a later version of Open Data Fabric: it cannot be used here")
