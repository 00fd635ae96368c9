"""Looking for garbage: each range of keys is listed and joined with what stays of it, on its own.

What stays is put into the store as one sorted list. It is cut into ranges of about equally many keys, which a task
finds in it again as a row group. Where nothing stays there is nothing to cut: such an area is one range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
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
"""Keys that stay, in one range."""
_KEPT: Final = pa.schema({"key": pa.string()})
_BATCH: Final = 5_000


@dataclass(frozen=True, slots=True)
class Range:
    """The keys of an area from ``after``, exclusively, to ``until``; None = to its end.

    ``area``   its number among :func:`~.areas.areas`
    ``group``  the number of the row group that lists what stays; None if nothing does
    """

    area: int
    after: str
    until: str | None
    group: int | None


def write_kept(path: Path, kept: Sequence[Iterable[str]], first: int) -> Iterator[Range]:
    """Write what stays of each area, in ascending order, and tell the ranges; the file is whole after the last one.

    ``first``  the number of the first area
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
class Look:
    """Finds the garbage of a range; plain data, which can be sent to other machines.

    ``kept``    key of what :func:`write_kept` wrote
    ``oldest``  the oldest version that stays
    ``plan``    what the keys of the plan's parts begin with
    ``scratch`` where the plan and ``kept`` are, if not in the store
    """

    uuid: str
    table: str
    moment: Moment
    oldest: int
    kept: str
    plan: str
    scratch: StoreConfig | None = None

    def __call__(self, store: Store, part: Range) -> Found:
        """Put what is found into the plan. Raises StoreError for a store that does not list in the order of keys."""
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
        """Of what is not referenced. A checkpoint is only ever written of a version that was committed: if that has
        expired, the checkpoint goes with it, however young it is.
        """
        version = keys.checkpoint_version(info.key) if area.kind is Kind.CHECKPOINTS else None
        return not self.moment.is_young(info.modified) if version is None else version < self.oldest


def add(spool: Spool, area: Area, info: ObjectInfo, common_metadata: str) -> None:
    """Take in what is garbage if its key has the form of one of ours."""
    if area.owns(info.key):
        spool.add(info, area.kind)
    elif info.key != common_metadata:
        spool.leave(info)
