"""What a merge strategy may ask of the records that are there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa


class Seen(Protocol):
    """All records so far. How they are looked up is whoever implements it: :mod:`kubothek.odf.view`."""

    @property
    def empty(self) -> bool:
        """Whether there is none at all."""

    @property
    def schema(self) -> pa.Schema | None:
        """``[event_time, data…]`` as the chain has them; None before the first slice's schema."""

    def keys(self, keys: pa.Table) -> pa.BooleanArray | pa.ChunkedArray[Any]:
        """For each row of these key columns: whether there ever was a record with these values, taken back or not.

        NULL is NULL, NaN is NaN, and 0.0 is -0.0.
        """

    def keyed_by(self, key: Sequence[str]) -> bool:
        """Whether the records that were not taken back are known to be the last ones of their keys."""

    @property
    def standing(self) -> int | None:
        """How many were not taken back; None: that is not known without reading them."""

    def state(self) -> pa.RecordBatchReader:
        """``[offset, event_time, data…]`` of the records that were not taken back, in any order."""

    def records(self) -> pa.RecordBatchReader:
        """``[offset, op, event_time, data…]`` of all records ever; costs what the chain is long."""
