"""The input records that some records of a derivative dataset derive from: selection of runs and of their input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import TransformInvalid
from kubothek.odf.dataset.slicing import numbered
from kubothek.odf.derived.recorded import Recorded
from kubothek.odf.lineage.reading import stood_after, taken_by
from kubothek.odf.lineage.trace import Asked, Readable, earlier_of, origins
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.layout import Layout
from kubothek.odf.validation.retractions import record_keys
from kubothek.odf.validation.row_checks import APPEND
from kubothek.odf.validation.slices import Expected, read_batches
from kubothek.odf.validation.state import Vocabulary
from kubothek.odf.view.history import OP_TYPE
from kubothek.odf.view.state import is_back
from kubothek.storage import Store
from kubothek.table.scratch import Scratch

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Told:
    """``offsets`` by input, ascending; empty if the origins cannot be determined, and ``refused`` gives the reason."""

    offsets: Mapping[DatasetId, Offsets]
    refused: str | None


@dataclass(frozen=True, slots=True)
class Rows:
    """Records of one slice.

    ``back``     which of them are retractions
    ``earlier``  for each, the number of equal records with the same sign before it in the slice
    """

    rows: pa.RecordBatch
    back: npt.NDArray[np.bool_]
    earlier: Offsets


def told_of(store: Store, layout: Layout, runs: Sequence[Recorded], offsets: Offsets) -> Told:
    """Return the origins of records that exist after the last of ``runs``, which are all runs up to it, oldest first.

    With a state, added records derive from the input records in effect after the last run, and must themselves be in
    effect then.
    """
    found = dict[DatasetId, list[Offsets]]()
    standing = list[pa.RecordBatch]()
    first: Offsets = np.zeros(1, np.int64)
    try:
        for place, run in enumerate(runs):
            if run.data is None or not len(mine := _between(offsets, run.data.offset_interval)):
                continue
            rows = rows_of(store, layout, run, mine)
            for back in (False, True):
                signed = np.flatnonzero(rows.back == back)
                if not len(signed):
                    continue
                chosen, earlier = rows.rows.take(signed), rows.earlier[signed]
                if run.before is None and run.checkpoint is None:
                    _ask(run, taken_by(store, run, back=back), chosen, earlier, found)
                elif back:
                    with Scratch() as scratch:
                        _ask(run, stood_after(store, _alike(runs[:place]), scratch), chosen, earlier, found)
                else:
                    standing.append(chosen)
                    first = earlier if run is runs[-1] else np.zeros(len(earlier), np.int64)
        if standing:
            tables = [pa.Table.from_batches([each]) for each in standing]  # columns added later are null before
            rows_there = pa.concat_tables(tables, promote_options="default").combine_chunks().to_batches()[0]
            skipped = first if len(standing) == 1 else np.zeros(rows_there.num_rows, np.int64)
            with Scratch() as scratch:
                _ask(runs[-1], stood_after(store, _alike(runs), scratch), rows_there, skipped, found)
    except TransformInvalid as error:
        return Told({}, str(error))
    return Told({each: np.unique(np.concatenate(parts)) for each, parts in found.items()}, None)


def rows_of(store: Store, layout: Layout, run: Recorded, offsets: Offsets) -> Rows:
    """Return records of the slice of a run, ordered by offset. Raises StoreError."""
    assert run.data is not None, "it holds the offsets"
    names, place = run.task.vocabulary, run.data.offset_interval.start
    expected = Expected(data=run.data, vocabulary=names, schema=run.schema, block=run.block, number=run.number)
    batches, marks = list[pa.RecordBatch](), list[Any]()
    chosen = list[Offsets]()
    for batch in read_batches(store, layout, expected):
        if place > offsets[-1]:
            break
        batches.append(batch)
        marks.append(_marks(batch, names))
        chosen.append(offsets[(offsets >= place) & (offsets < place + batch.num_rows)] - run.data.offset_interval.start)
        place += batch.num_rows
    places = np.concatenate(chosen)
    table = pa.Table.from_batches(batches)
    found = table.take(places).combine_chunks().to_batches()[0]
    numbers = pa.chunked_array(marks).combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    return Rows(found, np.asarray(is_back(found.column(names.op))), earlier_of(numbers)[places])


def _marks(batch: pa.RecordBatch, names: Vocabulary) -> Any:
    """Return keys that are equal exactly for equal records with the same sign."""
    back = pc.if_else(is_back(batch.column(names.op)), b"-", b"+").cast(pa.large_binary())
    return pc.binary_join_element_wise(back, record_keys(batch, batch.schema, names), pa.scalar(b"", pa.large_binary()))


def _ask(
    run: Recorded,
    inputs: Sequence[Readable],
    rows: pa.RecordBatch,
    earlier: Offsets,
    found: dict[DatasetId, list[Offsets]],
) -> None:
    """Add the origins of result rows over these inputs; for each row, skip ``earlier`` equal result rows."""
    schema, names = rows.schema, run.task.vocabulary
    marks = record_keys(rows, schema, names)
    numbers = np.asarray(marks.dictionary_encode().indices.to_numpy())
    _, places = np.unique(numbers, return_index=True)  # numbers are in order of first occurrence
    known = marks.take(pa.array(places, pa.int64()))

    def place(made: pa.RecordBatch) -> Any:
        op = pa.array(np.full(made.num_rows, APPEND, np.int32), OP_TYPE)
        whole = pa.RecordBatch.from_arrays([op, *made.columns], names=[names.op, *made.schema.names])
        shaped = numbered(whole, schema, names, 0, run.task.system_time)
        return pc.index_in(record_keys(shaped, schema, names), known)

    own = (names.offset, names.op, names.system_time)
    asked = Asked(
        rows=rows.take(places).select([name for name in schema.names if name not in own]),
        first=earlier[places].tolist(),
        count=np.bincount(numbers).tolist(),
        place=place,
    )
    with TemporaryDirectory(prefix="kubothek-lineage-") as directory:
        named = origins(run.task.transform, inputs, asked, names, Path(directory))
    for each, offsets in zip(inputs, named, strict=True):
        found.setdefault(each.about.id, []).append(offsets)


def _alike(runs: Sequence[Recorded]) -> list[Recorded]:
    """Return the last run, and the runs directly before it with the same transformation."""
    last = runs[-1].task
    ids = [each.id for each in last.batch.inputs]
    found = list[Recorded]()
    for run in reversed(runs):
        if run.task.transform != last.transform or [each.id for each in run.task.batch.inputs] != ids:
            break
        found.append(run)
    return found[::-1]


def _between(offsets: Offsets, interval: Any) -> Offsets:
    chosen: Offsets = offsets[(offsets >= interval.start) & (offsets <= interval.end)]
    return chosen
