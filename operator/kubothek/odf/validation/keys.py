"""Whether records repeat primary keys although the merge strategy excludes it (MS-02, MS-04, MS-08, MS-09).

Ledger appends no record whose key is in an earlier slice; the others add none whose key exists, and correct none to
another key. Keys are compared by
64-bit hashes first, and by their values if these are equal. This takes one pass over the columns of the keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kubothek.in_memory_database import in_memory_database, quoted
from kubothek.odf.problems import Doubt, Problem, Severity
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.sources import MergeStrategyLedger
from kubothek.odf.validation.row_checks import APPEND, CORRECT_TO, KEY_RULES, Keyed
from kubothek.odf.validation.slices import Expected, read_batches
from kubothek.storage import Store
from kubothek.storage.parallel import Spread

MOST_RECORDS: Final = 1 << 24
"""The most records whose keys are compared, at about 32 bytes of memory each; for larger chains there is a note."""
_CANDIDATES: Final = 100
_Hashes = npt.NDArray[np.uint64]
_Operations = npt.NDArray[np.int8]


def repeated_keys(store: Store, layout: Layout, slices: Sequence[Expected], spread: Spread) -> Iterator[Problem]:
    """Yield, for each primary key of the chain's sources, the first record that breaks one; slices must be sound.

    Raises StoreError.
    """
    for each in slices:
        if Doubt.SOURCES in each.doubts and _named_key(each):
            message = (
                f"primary keys of this and later slices are not compared: the event of block {each.unknown}, of a "
                "later version of ODF, can have records or change the sources"
            )
            yield Problem("DataKey", "MS-02", message, Severity.NOTE, block=each.block, number=each.number)
            break
    keyed = {key: None for each in slices if (key := _key_of(each))}
    if not keyed:
        return
    if sum(_records(each) for each in slices) > MOST_RECORDS:
        message = f"primary keys are not compared in chains of more than {MOST_RECORDS:,} records"
        yield Problem("DataKey", "MS-02", message, Severity.NOTE)
        return
    for key in keyed:
        those = [each for each in slices if each.schema is not None and set(key) <= set(each.schema.names)]
        found = spread(partial(_hashes, layout, key), those, "primary keys")
        for number, offset, before in _candidates(key, those, found):
            owner = next(each for each in those if _has(each, before))
            one, other = (_value(store, layout, *at, key) for at in ((owner, before), (those[number], offset)))
            if one == other:
                message = f"it repeats the primary key ({', '.join(key)}) of the record at offset {before}"
                yield _problem(those[number], offset, message)
                break
        else:
            for number, offset in islice(_corrected(key, those, found), 1):
                message = f"it corrects the record at offset {offset - 1} to another primary key ({', '.join(key)})"
                yield _problem(those[number], offset, message)


def _key_of(expected: Expected) -> tuple[str, ...] | None:
    """Return the primary key that the slice's records may not repeat."""
    return None if Doubt.SOURCES in expected.doubts else _named_key(expected)


def _named_key(expected: Expected) -> tuple[str, ...] | None:
    if len(expected.merges) != 1:
        return None
    (merge,) = expected.merges
    return merge.primary_key if isinstance(merge, Keyed) else None


def _hashes(layout: Layout, key: tuple[str, ...], store: Store, expected: Expected) -> tuple[_Hashes, _Operations]:
    """Return the hash of each record's key, and its operation."""
    op = expected.vocabulary.op
    hashes, operations = [np.zeros(0, np.uint64)], [np.zeros(0, np.int8)]
    columns = ", ".join(map(quoted, key))
    with in_memory_database(threads=1) as connection:
        for batch in read_batches(store, layout, expected, [*dict.fromkeys((*key, op))]):
            connection.register("records", pa.Table.from_batches([batch]))
            found = connection.execute(f"SELECT hash({columns}) AS h FROM records").fetchnumpy()  # noqa: S608 - quoted
            hashes.append(np.asarray(found["h"], np.uint64))
            operations.append(batch.column(op).to_numpy(zero_copy_only=False).astype(np.int8))
    return np.concatenate(hashes), np.concatenate(operations)


def _candidates(
    key: tuple[str, ...], slices: Sequence[Expected], found: Sequence[tuple[_Hashes, _Operations]]
) -> Iterator[tuple[int, int, int]]:
    """Yield records that may repeat a key: slice, offset, and offset of the previous record with the same hash."""
    counts = [len(hashes) for hashes, _ in found]
    hashes, operations = (np.concatenate(column) for column in zip(*found, strict=True))
    number = np.repeat(np.arange(len(slices)), counts)
    strict = np.repeat([_key_of(each) == key for each in slices], counts)
    ledger = np.repeat([any(isinstance(m, MergeStrategyLedger) for m in each.merges) for each in slices], counts)
    order = np.argsort(hashes, kind="stable")
    now, before = order[1:], order[:-1]
    same = (hashes[now] == hashes[before]) & strict[now]
    adds = (operations == APPEND) | (operations == CORRECT_TO)
    wrong = same & np.where(ledger[now], number[now] > number[before], adds[now] & adds[before])
    places = np.sort(now[wrong])[:_CANDIDATES]
    earlier = dict(zip(now[wrong].tolist(), before[wrong].tolist(), strict=True))
    first = np.concatenate([[0], np.cumsum(counts)])
    starts = [each.data.offset_interval.start for each in slices]

    def offset(row: int) -> int:
        slice_ = int(number[row])
        return starts[slice_] + row - int(first[slice_])

    for row in places.tolist():
        yield int(number[row]), offset(row), offset(earlier[row])


def _corrected(
    key: tuple[str, ...], slices: Sequence[Expected], found: Sequence[tuple[_Hashes, _Operations]]
) -> Iterator[tuple[int, int]]:
    """Yield second halves of corrections with another key than the first ones: slice, and offset."""
    for number, (each, (hashes, operations)) in enumerate(zip(slices, found, strict=True)):
        if _key_of(each) == key:
            for row in np.flatnonzero((operations[1:] == CORRECT_TO) & (hashes[1:] != hashes[:-1])).tolist():
                yield number, each.data.offset_interval.start + row + 1


def _value(store: Store, layout: Layout, expected: Expected, offset: int, key: tuple[str, ...]) -> list[Any]:
    row = offset - expected.data.offset_interval.start
    for batch in read_batches(store, layout, expected, list(key)):
        if row < batch.num_rows:
            return [batch.column(name)[row].as_py() for name in key]
        row -= batch.num_rows
    raise AssertionError("a sound slice has the records that its event says")


def _problem(expected: Expected, offset: int, message: str) -> Problem:
    (merge,) = expected.merges
    return Problem(
        "DataKey",
        KEY_RULES[type(merge)],
        f"{message}, which {merge.kind} never does",
        Severity.REFUSED,
        block=expected.block,
        number=expected.number,
        object=f"slice {expected.data.physical_hash.short}",
        row=offset,
    )


def _has(expected: Expected, offset: int) -> bool:
    interval = expected.data.offset_interval
    return interval.start <= offset <= interval.end


def _records(expected: Expected) -> int:
    return expected.data.offset_interval.end - expected.data.offset_interval.start + 1
