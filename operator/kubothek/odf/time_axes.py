"""Queries of a ledger along its two axes of time, for SQL: see :mod:`kubothek.odf.view.projections`."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from kubothek.errors import QueryInvalid, VersionNotFound
from kubothek.odf.dataset.definition import read_noted
from kubothek.odf.spec.blocks import Block, link_of
from kubothek.odf.spec.events import AddData, ExecuteTransform
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.multihash import Multihash
from kubothek.sql import Restrict
from kubothek.storage import Store
from kubothek.table.expressions import Op, Predicate, Term
from kubothek.table.log import DatasetLog, Snapshot
from kubothek.table.log.model import keys

BLOCK = "f1620"
"""The prefix of a block's hash."""


def happened_until(store: Store, moment: datetime) -> Restrict:
    """Return a restriction of ledgers to rows whose event time is not after a moment, with all known corrections."""

    def restrict(snapshot: Snapshot) -> Predicate:
        head, schema = snapshot.head, snapshot.schema
        if head.chain is None or schema is None:
            raise QueryInvalid(f"dataset {head.uuid!r} has no ledger, and so no event times: ask without as at")
        name = read_noted(store, head.uuid, head.chain).state.vocabulary.event_time
        last = moment.astimezone(UTC).replace(tzinfo=None)
        dated = pa.types.is_date(schema.field(name).type)
        return Predicate(((Term(name, Op.LE, last.date() if dated else last),),)).bind(schema)

    return restrict


def version_of(store: Store, log: DatasetLog, block: str) -> int:
    """Return the version with the records up to this block, and no others.

    Raises VersionNotFound also for a block inside of a commit with records before and after it, as an import or a
    compaction makes: no version of the table had that state.
    """
    for record in log.history():
        if record.ledger is None or block not in record.ledger.blocks:
            continue
        brought, layout = record.ledger.blocks, Layout(keys.chain(log.uuid))
        place = brought.index(block) + 1
        if not any(_has_records(store, layout, each) for each in brought[place:]):
            return record.version
        goes_on = record.ledger.base is not None and record.ledger.base == _before(store, layout, brought[0])
        if goes_on and record.parent and not any(_has_records(store, layout, each) for each in brought[:place]):
            return log.journal.record(record.parent).version
        raise VersionNotFound(
            f"version {record.version} of {log.uuid!r} brought block {block} together with records that come after it: "
            f"no version ends with that block. The one that this version ends with is {brought[-1]}"
        )
    raise VersionNotFound(
        f"no commit of {log.uuid!r} that is still known made the block {block}; `kubothek log --odf` lists its blocks"
    )


def _has_records(store: Store, layout: Layout, block: str) -> bool:
    event = Block.decode(store.get(layout.block(Multihash.parse(block)))).content.event
    return isinstance(event, AddData | ExecuteTransform) and event.new_data is not None


def _before(store: Store, layout: Layout, block: str) -> str | None:
    _, before = link_of(store.get(layout.block(Multihash.parse(block))))
    return None if before is None else str(before)
