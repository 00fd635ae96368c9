"""The probe of a store: conditional writes and clock skew."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from datetime import datetime

from kubothek.errors import PreconditionFailed, StoreError
from kubothek.storage.base import Capabilities, Store

PROBE_PREFIX = ".kubothek/probe/"


def probe_store(store: Store) -> Capabilities:
    """Try both conditional writes, also the case that must fail: some servers accept the header and ignore it.

    Raises the errors of any call; only a refusal of the conditional request itself counts as a result.
    """
    key = f"{PROBE_PREFIX}{secrets.token_hex(8)}"
    new, swapped = f"{key}-new", f"{key}-swapped"
    before = time.time()
    first = store.put(swapped, b"1")
    after = time.time()
    try:
        skew = _skew(store.stat(swapped).modified, before, after)
        absent = _succeeds(lambda: store.put_if_absent(new, b"2")) and not _succeeds(
            lambda: store.put_if_absent(new, b"3")
        )
        match = _succeeds(lambda: store.put_if_match(swapped, b"4", first)) and not _succeeds(
            lambda: store.put_if_match(swapped, b"5", first)
        )
    finally:
        store.delete([new, swapped])
    return Capabilities(put_if_absent=absent, put_if_match=match, clock_skew=skew)


def _skew(modified: datetime, before: float, after: float) -> float:
    """Return the least possible skew in seconds, positive if the store is ahead; S3 rounds times down to seconds."""
    earliest = modified.timestamp()
    latest = earliest + (0 if modified.microsecond else 1)
    return max(earliest - after, 0.0) + min(latest - before, 0.0)


def _succeeds(write: Callable[[], str]) -> bool:
    """Return whether a conditional write succeeded; a store without them may refuse each."""
    try:
        write()
    except PreconditionFailed:
        return False
    except StoreError as error:
        if type(error) is StoreError:
            return False
        raise
    return True
