"""Merge strategies: from new and existing records to the records that a ledger gets (MS-01 … MS-09).

A strategy is one function, chosen by the class of its manifest. Errors in a batch are raised before the first record
is returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Protocol

import pyarrow as pa

from kubothek.errors import UnsupportedVersion
from kubothek.odf.merge.append import append
from kubothek.odf.merge.batch import New, check_columns
from kubothek.odf.merge.changelog_stream import changelog_stream
from kubothek.odf.merge.ledger import ledger
from kubothek.odf.merge.output import Merged, Output
from kubothek.odf.merge.seen import Seen
from kubothek.odf.merge.snapshot import snapshot
from kubothek.odf.merge.upsert_stream import upsert_stream
from kubothek.odf.spec.decode import REMEDY
from kubothek.odf.spec.sources import (
    MergeStrategy,
    MergeStrategyAppend,
    MergeStrategyChangelogStream,
    MergeStrategyLedger,
    MergeStrategySnapshot,
    MergeStrategyUpsertStream,
)
from kubothek.odf.spec.unknown import Unknown
from kubothek.odf.validation.state import Vocabulary
from kubothek.table.scratch import Scratch


class Merge(Protocol):
    """One strategy."""

    def __call__(self, strategy: Any, new: New, seen: Seen, output: Output) -> Merged:
        """Merge records ``[event_time, data…]``, whose event time is NULL where the input has none."""


STRATEGIES: Final[Mapping[type, Merge]] = {
    MergeStrategyAppend: append,
    MergeStrategyLedger: ledger,
    MergeStrategySnapshot: snapshot,
    MergeStrategyChangelogStream: changelog_stream,
    MergeStrategyUpsertStream: upsert_stream,
}


def takes_operations(strategy: MergeStrategy) -> bool:
    """Return whether the new records of a strategy may have a column of operations (RFC-015)."""
    return isinstance(strategy, MergeStrategyChangelogStream | MergeStrategyUpsertStream)


def merge(
    strategy: MergeStrategy,
    new: New,
    seen: Seen,
    *,
    vocabulary: Vocabulary,
    source_event_time: datetime,
    scratch: Scratch,
) -> Merged:
    """Merge new records with the existing ones.

    ``new``                returns ``[event_time, data…]`` in the types of slices, with a column of operations for the
                           strategies that take one; event times are NULL where the input has none. May be called twice
    ``source_event_time``  replaces these NULLs in the end
    ``scratch``            must stay open until the rows are read

    Raises SchemaMismatch, MergeInvalid, DataTypeMismatch, InputError for an unknown strategy, all before there are
    rows; MergeTooLarge.
    """
    found = STRATEGIES.get(type(strategy))
    if found is None:
        name = strategy.tag if isinstance(strategy, Unknown) else strategy.kind
        raise UnsupportedVersion(f"merge strategy {name} is of a later version of Open Data Fabric; {REMEDY}")

    def checked() -> pa.RecordBatchReader:
        return shaped(new(), vocabulary, seen.schema)

    return found(strategy, checked, seen, Output(vocabulary.op, source_event_time, scratch))


def shaped(new: pa.RecordBatchReader, vocabulary: Vocabulary, before: pa.Schema | None) -> pa.RecordBatchReader:
    """Return the new records with the event time first.

    Raises SchemaMismatch unless they may follow those with the columns ``before``.
    """
    check_columns(new.schema, vocabulary.event_time, before)
    names = [vocabulary.event_time, *(name for name in new.schema.names if name != vocabulary.event_time)]
    if names == new.schema.names:
        return new
    schema = pa.schema([new.schema.field(name) for name in names])
    return pa.RecordBatchReader.from_batches(schema, (batch.select(names) for batch in new))
