"""The change of the table by a commit of a ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kubothek.table.indexes import IndexChange
from kubothek.table.log import PartitionFile
from kubothek.table.skipping.model import SkippingChange


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewChange:
    """The fields of a :class:`~kubothek.table.log.Change` that concern the table.

    For the protocol it reads nothing: concurrently added records show in the chain, concurrently compacted files in
    ``removed``.
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
        """Return the fields as arguments of a change."""
        return {name: getattr(self, name) for name in self.__slots__}
