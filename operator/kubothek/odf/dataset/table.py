"""The form of a new ledger's table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kubothek.table.indexes import Dialect, IndexChange, IndexKind
from kubothek.table.layout import Layout
from kubothek.table.skipping.model import NONE, SkippingChange, SkippingState


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The form of the table that is the view of the chain.

    ``layout``    may name columns that come with the first data, as may ``indices``, by column
    ``dialect``   of its string indexes
    ``skipping``  the skipping metadata of its files
    """

    layout: Layout = field(default_factory=Layout)
    indices: Mapping[str, IndexKind] = field(default_factory=dict)
    dialect: Dialect | None = None
    skipping: SkippingState = NONE

    def fields(self) -> dict[str, Any]:
        """Return the arguments of the change that creates the dataset."""
        return {
            "partition_keys": self.layout.partition_on,
            "layout": self.layout.to_json(),
            "index": IndexChange(wanted=self.indices, dialect=self.dialect),
            "skipping": SkippingChange(wanted=self.skipping),
        }
