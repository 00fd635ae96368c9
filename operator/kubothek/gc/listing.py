"""Search for garbage: each range of keys is listed and joined with its referenced keys, independently of others.

The referenced keys are in the store as one sorted list, cut into ranges of about equally many keys. A task finds its
range as a row group of that list. An area without referenced keys is one range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice, takewhile
from pathlib import Path
from typing import Final, cast

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.gc.areas import OWN_TRACES, Area, Kind, areas
from kubothek.gc.mark import Moment
from kubothek.gc.plan import NO_OBJECTS, Found, Spool
from kubothek.gc.sorted_keys import unreferenced
from kubothek.storage import ObjectInfo, Store, StoreConfig, open_store
from kubothek.table.log.model import keys

RANGE_KEYS: Final = 10_000
"""Number of referenced keys in one range."""
_KEPT: Final = pa.schema({"key": pa.string()})
_BATCH: Final = 5_000


@dataclass(frozen=True, slots=True)
class Range:
    """The keys of an area after ``after``, up to and including ``until``; None = to the end of the area.

    ``area``   index in :func:`~.areas.areas`
    ``group``  index of the row group with its referenced keys; None if there are none
    """

    area: int
    after: str
    until: str | None
    group: int | None


def write_kept(path: Path, kept: Sequence[Iterable[str]], first: int) -> Iterator[Range]:
    """Write the referenced keys of each area, ascending, and yield the ranges. The file is complete after the last one.

    ``first``  index of the first area
    """
    group = 0
    with pq.ParquetWriter(path, _KEPT, compression="zstd", write_statistics=False) as writer:
        for number, ascending in enumerate(kept, first):
            remaining, after = iter(ascending), ""
            following = list(islice(remaining, RANGE_KEYS))
            while following:
                present, following = following, list(islice(remaining, RANGE_KEYS))
                writer.write_table(pa.table({"key": present}, schema=_KEPT), row_group_size=RANGE_KEYS)
                yield Range(number, after, present[-1] if following else None, group)
                group, after = group + 1, present[-1]
            if not after:
                yield Range(number, "", None, None)


@dataclass(frozen=True, slots=True)
class GarbageSearch:
    """Finds the garbage of a range; plain data, which can be sent to other machines.

    ``kept``    key of the file that :func:`write_kept` wrote
    ``oldest``  the oldest version that stays
    ``plan``    prefix of the keys of the plan's parts
    ``scratch`` the store of the plan and of ``kept``, if it is another one
    ``iceberg`` unreferenced Iceberg metadata that was written before this time is garbage; None: none is garbage
    """

    uuid: str
    table: str
    moment: Moment
    oldest: int
    kept: str
    plan: str
    scratch: StoreConfig | None = None
    iceberg: datetime | None = None

    def __call__(self, store: Store, part: Range) -> Found:
        """Add the garbage of a range to the plan. Raises StoreError for a store that does not list in order of keys."""
        area = areas(self.uuid, self.table)[part.area]
        plans = store if self.scratch is None else open_store(self.scratch)
        spool = Spool(plans, self.plan)
        missing, young = 0, NO_OBJECTS

        def miss(_: str) -> None:
            nonlocal missing
            missing += 1

        listing = store.list(area.prefix, part.after)
        if (until := part.until) is not None:
            listing = takewhile(lambda info: info.key <= until, listing)
        for info in unreferenced(listing, self._kept_of(plans, part), part.after, miss):
            if self._is_garbage(area, info):
                add(spool, area, info, keys.common_metadata(self.uuid, self.table))
            elif area.owns(info.key) and area.kind not in OWN_TRACES:
                young = young.plus(info.size)
        return replace(spool.finish(), young=young, missing=missing if area.kind is Kind.DATA else 0)

    def _kept_of(self, plans: Store, part: Range) -> Iterator[str]:
        if part.group is None:
            return
        with plans.open(self.kept) as source, pq.ParquetFile(pa.PythonFile(source, mode="r")) as file:
            for batch in file.iter_batches(_BATCH, row_groups=[part.group]):
                yield from cast("list[str]", batch.column(0).to_pylist())

    def _is_garbage(self, area: Area, info: ObjectInfo) -> bool:
        """Return whether an unreferenced object is garbage. A checkpoint is only written of a committed version: it is
        garbage once that version has expired, however young it is.
        """
        if area.kind is Kind.ICEBERG and (self.iceberg is None or info.modified >= self.iceberg):
            return False
        version = keys.checkpoint_version(info.key) if area.kind is Kind.CHECKPOINTS else None
        return not self.moment.is_young(info.modified) if version is None else version < self.oldest


def add(spool: Spool, area: Area, info: ObjectInfo, common_metadata: str) -> None:
    """Add garbage to the spool if its key has the form of the area's kind; else count it as unknown."""
    if area.owns(info.key):
        spool.add(info, area.kind)
    elif info.key != common_metadata:
        spool.leave(info)
