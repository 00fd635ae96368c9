"""The compare-and-swap of a head: the one conditional PUT by which a commit happens (docs/commit-protocol.md)."""

from __future__ import annotations

from typing import Final

from kubothek.errors import PreconditionFailed, StoreUnavailable
from kubothek.storage import Store

_UNANSWERED: Final = 3
"""Consecutive swaps without an answer after which the store's error is raised: its disk is full, or it is gone."""


class HeadSwap:
    """The swap of one head, with a count of consecutive swaps that the store did not answer."""

    def __init__(self, store: Store, key: str) -> None:
        self._store = store
        self._key = key
        self._unanswered = 0

    def compare_and_swap(self, data: bytes, etag: str | None) -> str | None:
        """Replace the head that has this ETag (None: create the head), and return the new ETag.

        None if the swap failed, or its answer was lost: read the head again. Raises StoreUnavailable after three
        consecutive swaps without an answer; the swap may have happened.
        """
        try:
            if etag is None:
                swapped = self._store.put_if_absent(self._key, data)
            else:
                swapped = self._store.put_if_match(self._key, data, etag)
        except PreconditionFailed:
            self._unanswered = 0
            return None
        except StoreUnavailable:
            self._unanswered += 1
            if self._unanswered >= _UNANSWERED:
                raise
            return None
        self._unanswered = 0
        return swapped
