"""Which files may hold a value, for the planner."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import isnan
from typing import Any, Final, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.lake.damaged import DAMAGED
from kubothek.lake.errors import IndexStale
from kubothek.lake.indices import kartothek
from kubothek.lake.indices.entries import LABEL, VALUE, texts, with_labels
from kubothek.lake.indices.kartothek import PARTITION, from_legacy
from kubothek.lake.indices.model import Bound, IndexFile, IndexState
from kubothek.lake.indices.opened import Opened, OpenedFile, opened
from kubothek.lake.indices.types import bound_of, is_indexable
from kubothek.lake.store import Store

log = logging.getLogger(__name__)

OPERATORS: Final = frozenset({"=", "in", "<", "<=", ">", ">="})
"""What an index can answer: NULL is not in it, so it cannot for ``!=``, ``not in`` and ``is null``."""

_FILES_AT_ONCE: Final = 4
_COMPARE: Final[dict[str, Callable[..., Any]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Indexed(Protocol):
    """A head, as far as indices are concerned."""

    @property
    def index_state(self) -> IndexState:
        """Its indices."""


def lookup(
    store: Store, head: Indexed, schema: pa.Schema, column: str, op: str, values: Sequence[object]
) -> set[str] | None:
    """The labels of all files that may hold a row with ``column <op> value``; None if no index can tell.

    ``schema`` is the stored one of the table, ``values`` one Python value, or any number for ``in``; comparisons
    with NULL match nothing. The set may name labels that the head does not have, of files that are gone. An index
    that is missing or damaged is none: foreign garbage collections take those of old versions.
    """
    state = head.index_state
    kind = state.kinds().get(column)
    if kind is None or op not in OPERATORS or column not in schema.names:
        return None
    stored = schema.field(column).type
    if not is_indexable(stored) or _concerns_nan(stored, op, values):
        return None
    wanted = _typed(values, stored)
    if wanted is None or not len(wanted):
        return None if wanted is None else set()
    try:
        if column in state.kartothek:
            return _in_kartothek(store, column, state.kartothek[column], op, wanted)
        return _in_native(opened(store), state.native[column], op, wanted)
    except (IndexStale, *DAMAGED) as error:
        log.warning("%s: reading without this index: %s", state.uuid, error)
        return None


def values_held(
    store: Store, head: Indexed, schema: pa.Schema, column: str, values: pa.Array[Any], labels: Container[str]
) -> tuple[pa.Array[Any], frozenset[str]] | None:
    """Those of the values that a native index has for one of these labels, which are the head's, and the labels whose
    values it does not know. None if there is no such index, or it is damaged.

    ``values`` are of the column's stored type, without NULL and NaN; sorted ones are found faster.
    """
    key = head.index_state.native.get(column)
    if key is None or column not in schema.names or not is_indexable(schema.field(column).type):
        return None
    try:
        manifest = opened(store).manifest(key)
        least, most = (bound_of(bound) for bound in cast("Any", pc.min_max(values)).values())
        near = [f for f in manifest.files if _reaches(f, ">=", least) and _reaches(f, "<=", most)]
        wanted = values.cast(manifest.type)
        with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
            read = pool.map(lambda file: _entries_of(opened(store).file(file.key), wanted), near)
            held = [with_labels(entries, labels).column(VALUE).cast(values.type) for entries in read]
    except (IndexStale, *DAMAGED) as error:
        log.warning("%s: reading without this index: %s", head.index_state.uuid, error)
        return None
    found: Any = pc.unique(pa.chunked_array([chunk for each in held for chunk in each.chunks], values.type))
    return _with_both_zeros(found), frozenset(label for label in manifest.uncovered if label in labels)


def _entries_of(file: OpenedFile, wanted: pa.Array[Any]) -> pa.Table:
    """The entries of these values. They are sorted in the file: looking for few in many beats looking at many."""
    ends = cast("Any", pc.min_max(wanted))
    entries = file.read_near([VALUE, LABEL], (pc.field(VALUE) >= ends["min"]) & (pc.field(VALUE) <= ends["max"]))
    if not entries.num_rows:
        return entries
    values = entries.column(VALUE).combine_chunks()
    search: Any = vars(pc)["search_sorted"]  # the stubs do not know it
    first, end = (search(values, wanted, side=side).to_numpy().astype(np.int64) for side in ("left", "right"))
    counts = end - first
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return entries.take(np.repeat(first, counts) + within)


def _concerns_nan(stored: pa.DataType, op: str, values: Sequence[object]) -> bool:
    """NaN is in no index, and is larger than every number."""
    if not pa.types.is_float64(stored):
        return False
    return op in (">", ">=") or any(isinstance(value, float) and isnan(value) for value in values)


def _typed(values: Sequence[object], stored: pa.DataType) -> pa.Array[Any] | None:
    """The values but NULL; None if one is no value of the column, such as 1.5 for integers."""
    try:
        return pa.array([value for value in values if value is not None], stored)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None


def _in_kartothek(store: Store, column: str, index: Any, op: str, wanted: pa.Array[Any]) -> set[str]:
    if isinstance(index, Mapping):
        found = from_legacy(column, index, wanted.type)
        return texts(found.filter(_condition(pc.field(VALUE), op, wanted)).column(LABEL))
    file = opened(store).file(str(index))
    if column not in file.schema.names or PARTITION not in file.schema.names:
        raise kartothek.unreadable(column, f"its file has the columns {', '.join(file.schema.names)}")
    where = _stored_condition(column, op, wanted, file.schema.field(column).type)
    return texts(_flat(file.read([PARTITION], where).column(PARTITION)))


def _in_native(files: Opened, key: str, op: str, wanted: pa.Array[Any]) -> set[str]:
    manifest = files.manifest(key)
    found = set(manifest.uncovered)
    bounds = [bound_of(value) for value in wanted]
    where = _stored_condition(VALUE, op, wanted, manifest.type)
    for entry in manifest.files:
        if _may_hold(entry, op, bounds):
            found |= texts(files.file(entry.key).read([LABEL], where).column(LABEL))
    return found


def _stored_condition(column: str, op: str, wanted: pa.Array[Any], stored: pa.DataType) -> Any:
    """The condition on a column that may have become wider since: 1.5 is no value of it, but can be compared."""
    try:
        return _condition(pc.field(column), op, wanted.cast(stored))
    except pa.ArrowInvalid:
        return _condition(pc.field(column).cast(wanted.type), op, wanted)


def _condition(field: pc.Expression, op: str, wanted: pa.Array[Any]) -> Any:
    if (compare := _COMPARE.get(op)) is not None:
        return compare(field, wanted[0])
    if len(wanted) == 1:
        return field == wanted[0]
    # Statistics rule out what is outside of a range, but not what is not in a set.
    least_and_most = pc.min_max(wanted) if not pa.types.is_binary(wanted.type) else None
    inside = field.isin(_with_both_zeros(wanted))
    if least_and_most is None:
        return inside
    return (field >= least_and_most["min"]) & (field <= least_and_most["max"]) & inside


def _with_both_zeros(wanted: pa.Array[Any]) -> pa.Array[Any]:
    """Arrow looks up the bits, in which 0.0 and -0.0 differ, and Parquet's statistics give -0.0 as the least 0.0."""
    if not pa.types.is_floating(wanted.type) or 0.0 not in wanted.to_pylist():
        return wanted
    return pa.concat_arrays([wanted, pa.array([0.0, -0.0], wanted.type)])


def _may_hold(file: IndexFile, op: str, bounds: Collection[Bound]) -> bool:
    return any(_reaches(file, op, bound) for bound in bounds)


def _reaches(file: IndexFile, op: str, bound: Any) -> bool:
    low: Any = file.low
    high: Any = file.high
    if op != ">" and op != ">=" and low is not None and not (low < bound or (low == bound and op != "<")):
        return False
    return op in ("<", "<=") or high is None or high > bound or (high == bound and op != ">")


def _flat(lists: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    return pa.chunked_array([pc.list_flatten(chunk) for chunk in lists.chunks], lists.type.value_type)
