"""The initial skipping metadata of a table: its first commit also describes the files that it adds."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from kubothek.errors import SkippingInvalid, SkippingUnreadable
from kubothek.storage import Store
from kubothek.table.skipping.files.encryption import MasterKeys
from kubothek.table.skipping.indexes import check
from kubothek.table.skipping.model import SkippingState, require_footer_key


def beginning(
    store: Store, wish: SkippingState, schema: pa.Schema, partition_keys: Sequence[str]
) -> SkippingState | None:
    """Return ``wish`` if a table of this stored schema can have all its indices and every key is available; else None.

    Rows matter more than their metadata: a commit that only changes definitions
    (:mod:`kubothek.table.log.update_skipping`) reports what is invalid.
    """
    labels = {each.key for each in wish.indices if each.key is not None}
    try:
        check(wish.indices, schema, partition_keys)
        require_footer_key(wish)
        if wish.encryption is not None:
            MasterKeys.of(store).require({wish.encryption.footer_key, *labels})
    except (SkippingInvalid, SkippingUnreadable):
        return None
    return wish if wish.indices else None
