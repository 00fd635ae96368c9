"""Which objects that something names are not there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kubothek.errors import ObjectNotFound
from kubothek.storage import Store
from kubothek.table.log.records import parallel

_STAT_LIMIT: Final = 200


def absent(store: Store, prefix: str, wanted: Iterable[str]) -> list[str]:
    """Which of these keys, in this order, do not exist: a request each if they are few, else one listing of ``prefix``.

    A key that does not lie below the prefix is no harm: what the listing does not show is asked for. Memory is that of
    ``wanted``, however much lies there.
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
