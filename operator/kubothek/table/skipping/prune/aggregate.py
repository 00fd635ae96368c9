"""Savings by skipping, in the terms of Xskipper's API (``getLatestQueryAggregatedStats``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Skipped:
    """The savings in one dataset and one query. Sizes in bytes; objects are data files.

    ``is_skippable``  whether an index applies to the query's filter; if not, the other fields describe a full read
    """

    is_skippable: bool
    skipped_bytes: int
    skipped_objects: int
    total_bytes: int
    total_objects: int

    @classmethod
    def of(cls, opened: Iterable[str], sizes: Mapping[str, int], *, is_skippable: bool) -> Self:
        """Return the savings, given the opened files and the sizes of all files."""
        read = [sizes[key] for key in opened if key in sizes]
        total = sum(sizes.values())
        return cls(is_skippable, total - sum(read), len(sizes) - len(read), total, len(sizes))

    def to_xskipper(self) -> dict[str, Any]:
        """Return the row of ``getLatestQueryStats``; zeros for a query that is not skippable."""
        values = self if self.is_skippable else Skipped(False, 0, 0, 0, 0)
        return {
            "status": "SUCCESS",
            "isSkippable": self.is_skippable,
            "skipped_Bytes": values.skipped_bytes,
            "skipped_Objs": values.skipped_objects,
            "total_Bytes": values.total_bytes,
            "total_Objs": values.total_objects,
        }

    def to_json(self) -> dict[str, Any]:
        """Return plain data, for results of jobs."""
        return asdict(self)


def aggregated(queries: Iterable[Skipped]) -> Skipped | None:
    """Return the sum over datasets or queries, as in ``getLatestQueryAggregatedStats``; None if there are none."""
    some = list(queries)
    if not some:
        return None
    return Skipped(
        any(each.is_skippable for each in some),
        *(
            sum(getattr(each, name) for each in some)
            for name in ("skipped_bytes", "skipped_objects", "total_bytes", "total_objects")
        ),
    )
