"""Questions to a ledger along its two axes of time, for SQL: see :mod:`kubothek.lake.ledger.view.projections`."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from kubothek.lake.commits import DatasetLog, Snapshot
from kubothek.lake.errors import QueryInvalid, VersionNotFound
from kubothek.lake.ledger.root.definition import read_noted
from kubothek.lake.predicates import Op, Predicate, Term
from kubothek.lake.sql import Restrict
from kubothek.lake.store import Store

BLOCK = "f1620"
"""What the hash of a block begins with."""


def happened_until(store: Store, moment: datetime) -> Restrict:
    """The rows of ledgers whose event time is not after a moment, with all corrections that are known of them."""

    def restrict(snapshot: Snapshot) -> Predicate:
        head, schema = snapshot.head, snapshot.schema
        if head.chain is None or schema is None:
            raise QueryInvalid(f"dataset {head.uuid!r} has no ledger, and so no event times: ask without as at")
        name = read_noted(store, head.uuid, head.chain).state.vocabulary.event_time
        last = moment.astimezone(UTC).replace(tzinfo=None)
        dated = pa.types.is_date(schema.field(name).type)
        return Predicate(((Term(name, Op.LE, last.date() if dated else last),),)).bind(schema)

    return restrict


def version_of(log: DatasetLog, block: str) -> int:
    """The version that the commit of a block made. Raises VersionNotFound."""
    for record in log.history():
        if record.ledger is not None and block in record.ledger.blocks:
            return record.version
    raise VersionNotFound(f"no commit of {log.uuid!r} that is still known made the block {block}")
