"""What a commit of a ledger does to the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kubothek.table.indexes import IndexChange
from kubothek.table.log import PartitionFile
from kubothek.table.skipping.change import SkippingChange


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewChange:
    """The fields of a :class:`~kubothek.table.log.Change` that are about the table.

    It reads nothing, as to the protocol: that records came meanwhile shows in the chain, and files that were compacted
    meanwhile in ``removed``.
    """

    added: tuple[PartitionFile, ...]
    removed: tuple[str, ...]
    schema: pa.Schema | None
    partition_keys: tuple[str, ...]
    layout: Mapping[str, Any] | None
    index: IndexChange
    skipping: SkippingChange
    evolves: bool = True
    replaces_schema: bool = False

    def fields(self) -> dict[str, Any]:
        """As arguments of a change."""
        return {name: getattr(self, name) for name in self.__slots__}
