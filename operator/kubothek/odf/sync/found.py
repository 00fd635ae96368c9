"""Search for ledgers of a store, and their descriptions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kubothek.errors import LakeError
from kubothek.odf.dataset import Root
from kubothek.storage import Store
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys

_HEAD = keys.head("")


def search_store(store: Store, words: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield ledgers whose name, keywords or description contain all words. As :func:`describe`."""
    for name in store.list_names(""):
        if name.endswith(_HEAD) and (found := find(store, name.removesuffix(_HEAD), words)) is not None:
            yield found


def find(store: Store, name: str, words: Sequence[str]) -> dict[str, Any] | None:
    """Return the description of one; None if it is not a ledger, or lacks one of the words."""
    try:
        root = Root(store, DatasetLog(store, name))
    except LakeError:
        return None
    text = " ".join([root.uuid, *_said(root)]).casefold()
    return describe(root) if all(word.casefold() in text for word in words) else None


def describe(root: Root) -> dict[str, Any]:
    """Return name, id, kind, head, numbers of blocks and records, watermark, description and keywords."""
    state, info = root.state, root.info
    assert state.seed is not None, "a chain has a seed"
    return {
        "name": root.uuid,
        "id": str(state.seed.dataset_id),
        "kind": state.seed.dataset_kind.value,
        "head": str(state.head),
        "blocks": state.length,
        "records": state.next_offset,
        "watermark": None if state.watermark is None else str(state.watermark),
        "description": (info.description or "") if info else "",
        "keywords": [*(info.keywords or ())] if info else [],
    }


def _said(root: Root) -> list[str]:
    info = root.info
    return [] if info is None else [info.description or "", *(info.keywords or ())]
