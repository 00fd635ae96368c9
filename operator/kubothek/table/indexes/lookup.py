"""Index lookups for the planner: which files may hold a value."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import Any, Final, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import IndexStale
from kubothek.storage import Store
from kubothek.table.expressions.intervals import Interval
from kubothek.table.expressions.terms import Op, is_nan
from kubothek.table.indexes import kartothek
from kubothek.table.indexes.entries import LABEL, VALUE, entries, labels_in, texts, with_labels
from kubothek.table.indexes.kartothek import PARTITION, from_legacy
from kubothek.table.indexes.model import IndexFile, IndexState, digest_in
from kubothek.table.indexes.object_cache import Opened, OpenedFile, opened
from kubothek.table.indexes.types import bound_of, is_indexable
from kubothek.table.untrusted_parquet import DAMAGED

log = logging.getLogger(__name__)

_FILES_AT_ONCE: Final = 4


class Indexed(Protocol):
    """The part of a head that indices need."""

    @property
    def index_state(self) -> IndexState:
        """Its indices."""

    @property
    def partitions(self) -> Collection[str]:
        """The labels of its files."""


def lookup(
    store: Store, head: Indexed, schema: pa.Schema, column: str, op: str, values: Sequence[object]
) -> Set[str] | None:
    """Look up one comparison ``column <op> value`` as :func:`lookup_interval` does; ``in`` takes several values."""
    interval = Interval.of(op, tuple(values) if op == "in" or not values else values[0])
    return None if interval is None else lookup_interval(store, head, schema, column, interval)


def lookup_interval(store: Store, head: Indexed, schema: pa.Schema, column: str, interval: Interval) -> Set[str] | None:
    """Return the labels of all files that may hold a row whose value is in the interval; None if no index can tell.

    ``schema`` is the stored one of the table. The set may contain labels of deleted files, which the head does not
    have. A missing or damaged index counts as none: foreign garbage collections delete those of old versions.
    """
    state = head.index_state
    kind = state.kinds().get(column)
    if kind is None or column not in schema.names:
        return None
    stored = schema.field(column).type
    if not is_indexable(stored) or (pa.types.is_float64(stored) and _concerns_nan(interval)):
        return None
    wanted = _Wanted.of(interval, stored)
    if wanted is None or interval.empty:
        return None if wanted is None else set()
    try:
        if column in state.kartothek:
            return _in_kartothek(store, column, state.kartothek[column], wanted, head.partitions)
        return _in_native(opened(store), state.native[column], wanted)
    except (IndexStale, *DAMAGED) as error:
        log.warning("%s: reading without this index: %s", state.uuid, error)
        return None


def values_held(
    store: Store, head: Indexed, schema: pa.Schema, column: str, values: pa.Array[Any], labels: Container[str]
) -> tuple[pa.Array[Any], frozenset[str]] | None:
    """Return the values that a native index has for these labels, and the labels that it does not cover.

    ``labels`` are the head's. ``values`` have the column's stored type, without NULL and NaN; sorted ones are found
    faster. None if there is no such index, or it is damaged.
    """
    found = _held(store, head, schema, column, values, labels, _entries_of)
    if found is None:
        return None
    chunks = [chunk.cast(values.type) for each in found[0] for chunk in each.column(VALUE).chunks]
    held: Any = pc.unique(pa.chunked_array(chunks, values.type))
    return with_both_zeros(held), found[1]


def labels_held(
    store: Store, head: Indexed, schema: pa.Schema, column: str, values: pa.Array[Any], labels: Container[str]
) -> set[str] | None:
    """Return the labels of the files that may hold one of many values; arguments and None as of :func:`values_held`."""
    found = _held(store, head, schema, column, values, labels, _entry_of_each_label)
    if found is None:
        return None
    return {*found[1], *(label for each in found[0] for label in labels_in(each))}


def _held(
    store: Store,
    head: Indexed,
    schema: pa.Schema,
    column: str,
    values: pa.Array[Any],
    labels: Container[str],
    search: Callable[[OpenedFile, pa.Array[Any]], pa.Table],
) -> tuple[list[pa.Table], frozenset[str]] | None:
    """Return what ``search`` finds in each file of the index, and the labels that the index does not cover."""
    key = head.index_state.native.get(column)
    if key is None or column not in schema.names or not is_indexable(schema.field(column).type):
        return None
    try:
        manifest = opened(store).manifest(key)
        least, most = (bound_of(bound) for bound in cast("Any", pc.min_max(values)).values())
        near = [f for f in manifest.files if _reaches(f, ">=", least) and _reaches(f, "<=", most)]
        wanted = values.cast(manifest.type)
        with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
            read = pool.map(lambda file: search(opened(store).file(file.key, file), wanted), near)
            held = [with_labels(each, labels) for each in read]
    except (IndexStale, *DAMAGED) as error:
        log.warning("%s: reading without this index: %s", head.index_state.uuid, error)
        return None
    return held, frozenset(label for label in manifest.uncovered if label in labels)


def _entries_of(file: OpenedFile, wanted: pa.Array[Any]) -> pa.Table:
    """Return the entries of these values."""
    if file.only_label is None:
        return _found_in(file.read_near([VALUE, LABEL], _between(wanted)), wanted)
    return entries(_found_in(file.read_near([VALUE], _between(wanted)), wanted).column(VALUE), file.only_label)


def _entry_of_each_label(file: OpenedFile, wanted: pa.Array[Any]) -> pa.Table:
    """Return entries of these values, at least one for each label that has any.

    Of a file with one label, only the row groups up to the first that has a value are read.
    """
    if file.only_label is None:
        return _entries_of(file, wanted)
    for group in file.groups_near([VALUE], _between(wanted)):
        found = _found_in(group, wanted)
        if found.num_rows:
            return entries(found.column(VALUE), file.only_label)
    return entries(wanted[:0], file.only_label)


def _between(wanted: pa.Array[Any]) -> pc.Expression:
    ends, value = cast("Any", pc.min_max(wanted)), pc.field(VALUE)
    found: pc.Expression = (value >= ends["min"]) & (value <= ends["max"])
    return found


def _found_in(some: pa.Table, wanted: pa.Array[Any]) -> pa.Table:
    """Return the rows of these values, by binary search: few values in many sorted entries."""
    if not some.num_rows:
        return some
    values = some.column(VALUE)
    search: Any = vars(pc)["search_sorted"]  # the stubs do not know it
    first, end = (search(values, wanted, side=side).to_numpy().astype(np.int64) for side in ("left", "right"))
    counts = end - first
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return some.take(np.repeat(first, counts) + within)


def _concerns_nan(interval: Interval) -> bool:
    """Return whether NaN, which no index has, may match: it is above every number, within all but upper bounds."""
    literals = (interval.low, interval.high, *(interval.values or ()))
    return (interval.high is None and interval.values is None) or any(map(is_nan, literals))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """An interval as Arrow values; ``type`` is that of the column."""

    type: pa.DataType
    low: pa.Scalar[Any] | None
    high: pa.Scalar[Any] | None
    interval: Interval
    values: pa.Array[Any] | None

    @classmethod
    def of(cls, interval: Interval, stored: pa.DataType) -> _Wanted | None:
        """Return the interval for a column; None if a literal is not a value of the column: 1.5 for integers."""
        try:
            low, high = (None if b is None else pa.array([b], stored)[0] for b in (interval.low, interval.high))
            values = None if interval.values is None else pa.array(interval.values, stored)
            return cls(stored, low, high, interval, values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            return None

    def cast(self, stored: pa.DataType) -> _Wanted:
        """Return the interval for another value type. Raises ArrowInvalid if that type has no such value."""
        low, high = (None if bound is None else bound.cast(stored) for bound in (self.low, self.high))
        return replace(self, low=low, high=high, values=None if self.values is None else self.values.cast(stored))

    def condition(self, field: pc.Expression) -> pc.Expression:
        """Return the condition for wanted values of the field; the interval has at least one bound."""
        if self.values is not None:
            among: pc.Expression = _among(field, self.values)
            return among
        parts: list[pc.Expression] = []
        if self.low is not None:
            parts.append(field > self.low if self.interval.low_open else field >= self.low)
        if self.high is not None:
            parts.append(field < self.high if self.interval.high_open else field <= self.high)
        found: pc.Expression = reduce(and_, parts)
        return found

    def may_be_in(self, file: IndexFile) -> bool:
        """Return whether the bounds of a file permit one of the values."""
        if self.values is not None:
            bounds = map(bound_of, self.values)
            return any(_reaches(file, Op.LE, bound) and _reaches(file, Op.GE, bound) for bound in bounds)
        low = self.low is None or _reaches(file, Op.GT if self.interval.low_open else Op.GE, bound_of(self.low))
        high = self.high is None or _reaches(file, Op.LT if self.interval.high_open else Op.LE, bound_of(self.high))
        return low and high


def _in_kartothek(store: Store, column: str, index: Any, wanted: _Wanted, labels: Collection[str]) -> Set[str]:
    if isinstance(index, Mapping):
        found = from_legacy(column, index, wanted.type)
        return texts(found.filter(wanted.condition(pc.field(VALUE))).column(LABEL))
    file = opened(store).file(str(index))
    if column not in file.schema.names or PARTITION not in file.schema.names:
        raise kartothek.unreadable(column, f"its file has the columns {', '.join(file.schema.names)}")
    where = _stored_condition(column, wanted, file.schema.field(column).type)
    if labels and not file.rows and digest_in(file.key) is None:
        raise kartothek.unreadable(
            column, f"{file.key} names no file of {len(labels):,}, and nothing defines whether it should"
        )
    return texts(_flat(file.read([PARTITION], where).column(PARTITION)))


def _in_native(files: Opened, key: str, wanted: _Wanted) -> set[str]:
    manifest = files.manifest(key)
    found = set(manifest.uncovered)
    where = _stored_condition(VALUE, wanted, manifest.type)
    for entry in manifest.files:
        if wanted.may_be_in(entry):
            found |= texts(files.file(entry.key, entry).read([LABEL], where).column(LABEL))
    return found


def _stored_condition(column: str, wanted: _Wanted, stored: pa.DataType) -> Any:
    """Return the condition on a column that may be wider than the index: 1.5 compares with integers but is none."""
    try:
        return wanted.cast(stored).condition(pc.field(column))
    except pa.ArrowInvalid:
        return wanted.condition(pc.field(column).cast(wanted.type))


def _among(field: Any, wanted: pa.Array[Any]) -> Any:
    if len(wanted) == 1:
        return field == wanted[0]
    # Statistics exclude values outside a range, but not values outside a set.
    least_and_most = pc.min_max(wanted) if not pa.types.is_binary(wanted.type) else None
    inside = field.isin(with_both_zeros(wanted))
    if least_and_most is None:
        return inside
    return (field >= least_and_most["min"]) & (field <= least_and_most["max"]) & inside


def with_both_zeros(wanted: pa.Array[Any]) -> pa.Array[Any]:
    """Return the values with both zeros: Arrow looks up bits, and Parquet's statistics give -0.0 as the least 0.0."""
    if not pa.types.is_floating(wanted.type) or 0.0 not in wanted.to_pylist():
        return wanted
    return pa.concat_arrays([wanted, pa.array([0.0, -0.0], wanted.type)])


def _reaches(file: IndexFile, op: str, bound: Any) -> bool:
    low: Any = file.low
    high: Any = file.high
    if op != ">" and op != ">=" and low is not None and not (low < bound or (low == bound and op != "<")):
        return False
    return op in ("<", "<=") or high is None or high > bound or (high == bound and op != ">")


def _flat(lists: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    return pa.chunked_array([pc.list_flatten(chunk) for chunk in lists.chunks], lists.type.value_type)
