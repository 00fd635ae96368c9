"""What merge strategies need to know of the existing records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa


class Seen(Protocol):
    """All records so far; :mod:`kubothek.odf.view` implements the lookups."""

    @property
    def empty(self) -> bool:
        """Whether there are no records at all."""

    @property
    def schema(self) -> pa.Schema | None:
        """``[event_time, data…]`` as the chain has them; None before the first slice's schema."""

    def keys(self, keys: pa.Table) -> pa.BooleanArray | pa.ChunkedArray[Any]:
        """Return for each row of these key columns whether a record with these values ever existed, retracted or not.

        NULL is NULL, NaN is NaN, and 0.0 is -0.0.
        """

    def keyed_by(self, key: Sequence[str]) -> bool:
        """Return whether the records that are not retracted are known to be the last ones of their keys."""

    @property
    def standing(self) -> int | None:
        """The number of records that are not retracted; None: not known without reading them."""

    def state(self) -> pa.RecordBatchReader:
        """Return ``[offset, event_time, data…]`` of the records that are not retracted, in any order."""

    def state_of(self, keys: pa.Table) -> pa.RecordBatchReader:
        """Return those records of :meth:`state` that have one of these keys, compared as by :meth:`keys`.

        The keys are distinct. Use the scratch for nothing else until all are read.
        """

    def records(self) -> pa.RecordBatchReader:
        """Return ``[offset, op, event_time, data…]`` of all records ever; the cost grows with the chain."""
