"""The datasets of a store."""

from __future__ import annotations

from typing import Final

from kubothek.storage import Store
from kubothek.table.log.model import keys

_HEAD_ENDS: Final = (keys.head(""), keys.packed_head(""))


def dataset_names(store: Store) -> list[str]:
    """Return the names of the datasets, sorted; one listing of the store's root, however much lies below it.

    A deleted dataset is included while its head exists.
    """
    names = store.list_names("")
    return sorted({name.removesuffix(end) for name in names for end in _HEAD_ENDS if name.endswith(end)})
