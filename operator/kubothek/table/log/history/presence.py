"""Which of the objects that something names do not exist."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kubothek.errors import ObjectNotFound
from kubothek.storage import Store
from kubothek.table.log.records import parallel

_STAT_LIMIT: Final = 200


def absent(store: Store, prefix: str, wanted: Iterable[str]) -> list[str]:
    """Return those of these keys that do not exist, in order: a request each if they are few, else a listing.

    ``prefix`` is what is listed. Keys outside of it are safe: a key that the listing lacks gets a request. Memory grows
    with ``wanted``, not with the number of objects.
    """
    left = dict.fromkeys(wanted)
    if len(left) > _STAT_LIMIT:
        for info in store.list(prefix):
            left.pop(info.key, None)
            if not left:
                break
    return [key for key in parallel(lambda key: _absent(store, key), list(left)) if key]


def _absent(store: Store, key: str) -> str | None:
    try:
        store.stat(key)
    except ObjectNotFound:
        return key
    return None
