"""Replay of runs, and comparison of the results with the chain (VE-02, VE-03).

A run needs the state of the previous one. Stored checkpoints let runs proceed in parallel: the chain is cut into pieces
that begin with one, and within a piece the state passes from run to run. Each piece begins with a state that matches
its hash. The end of the previous piece then shows whether the runs before produce that state. If not, all following
runs are replayed in sequence from the last state known to be right.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import InputDiverged, InputMissing, LakeError, SchemaMismatch, StoreError, TransformInvalid
from kubothek.odf.dataset.slicing import Types, evolved, numbered, slice_schema
from kubothek.odf.derived.recorded import Recorded
from kubothek.odf.derived.running import OCI, Run, checkpoint_of, fetch_checkpoint, running
from kubothek.odf.problems import Problem, Severity
from kubothek.odf.spec.digest import LogicalHash
from kubothek.odf.spec.events import Checkpoint
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.transform import ENGINE_VERSION
from kubothek.odf.validation.slices import Expected, check_checkpoint, check_slices, read_batches
from kubothek.storage import Store
from kubothek.storage.parallel import Spread

_PIECES: Final = 64
"""Largest number of pieces, if the checkpoints allow it."""
NOT_REPLAYED: Final = "NotReplayed"
"""Code of the note for runs that were skipped because their engine is unavailable."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a piece. ``left``: the state after its last run; ``whole``: whether all of its runs were replayed."""

    problems: tuple[Problem, ...]
    left: Multihash | None
    whole: bool


def replay(layout: Layout, runs: Sequence[Recorded], spread: Spread) -> list[Problem]:
    """Return the problems of these consecutive runs, in each piece up to the first run with an error.

    ``layout``  of the derivative dataset. Raises StoreError.

    Runs of an engine of another party are skipped with a note.
    """
    found: list[Problem] = []
    for foreign, several in groupby(runs, key=is_foreign):
        alike = [*several]
        found += map(_passed_over, alike) if foreign else _replayed(layout, alike, spread)
    return found


def is_foreign(recorded: Recorded) -> bool:
    """Return whether a coordinator ran it by the engine contract, in a container image."""
    return (recorded.task.transform.version or "").startswith(OCI)


def _passed_over(recorded: Recorded) -> Problem:
    message = f"{_not_here(recorded)}: its records were compared with their hashes, and not made again"
    return _placed(Problem(NOT_REPLAYED, "VE-02", message, Severity.NOTE), recorded)


def _not_here(recorded: Recorded) -> str:
    return f"it was run by {recorded.task.transform.version}, which runs where its Engine says and not here"


def _replayed(layout: Layout, runs: Sequence[Recorded], spread: Spread) -> list[Problem]:
    pieces = _pieces(layout, runs, spread)
    outcomes = spread(partial(_piece, layout), pieces, "run transformations again")
    found: list[Problem] = []
    for place, outcome in enumerate(outcomes):
        if outcome.whole and outcome.left != pieces[place][-1].left and place + 1 < len(pieces):
            rest = [run for piece in pieces[place:] for run in piece]
            return [*found, *spread(partial(_piece, layout), [rest], "run transformations again")[0].problems]
        found += outcome.problems
    return found


def _pieces(layout: Layout, runs: Sequence[Recorded], spread: Spread) -> list[Sequence[Recorded]]:
    """Return the runs in pieces that begin without a state or with an existing one."""
    wanted = range(max(1, len(runs) // _PIECES), len(runs), max(1, len(runs) // _PIECES))
    states = [runs[place - 1].checkpoint for place in wanted]
    there = spread(partial(_is_there, layout), states, "checkpoints")
    starts = [0, *(place for place, found in zip(wanted, there, strict=True) if found)]
    return [runs[start:end] for start, end in zip(starts, [*starts[1:], len(runs)], strict=True)]


def _is_there(layout: Layout, store: Store, state: Checkpoint | None) -> bool:
    return state is None or check_checkpoint(store, layout, state.physical_hash, state.size) is None


def _piece(layout: Layout, store: Store, runs: Sequence[Recorded]) -> Outcome:
    found: list[Problem] = []
    with Lineage(store, layout) as lineage:
        left = runs[0].before
        for recorded in runs:
            try:
                again = lineage.run(recorded)
            except StoreError:
                raise
            except LakeError as error:
                return Outcome((*found, _placed(_failure(error), recorded)), left, whole=False)
            left = again.checkpoint
            problems = [*_compare(store, layout, recorded, again)]
            found += (_placed(each, recorded) for each in problems)
            if any(each.severity is Severity.ERROR for each in problems):
                return Outcome(tuple(found), left, whole=False)
    return Outcome(tuple(found), left, whole=True)


@dataclass(frozen=True, slots=True)
class Again:
    """Result of a replayed run."""

    batches: tuple[pa.RecordBatch, ...]
    logical: Multihash | None
    checkpoint: Multihash | None
    watermark: Timestamp | None


class Lineage:
    """Consecutive runs, and the state that passes from one to the next. Use it as a context manager."""

    def __init__(self, store: Store, layout: Layout) -> None:
        self._store = store
        self._layout = layout
        self._stack = ExitStack()
        self._state: Path | None = None
        self._begun = False

    def __enter__(self) -> Lineage:
        directory = TemporaryDirectory(prefix="kubothek-replay-", ignore_cleanup_errors=True)
        self._room = Path(self._stack.enter_context(directory))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def state(self) -> Path | None:
        """Return the file with the state after the last run; None if there is none."""
        return self._state

    def run(self, recorded: Recorded) -> Again:
        """Replay the next run. Raises what the engine raises, TransformInvalid for a run of another engine,
        SchemaMismatch, InputMissing, StoreError.
        """
        if is_foreign(recorded):
            raise TransformInvalid(
                f"block {recorded.number} cannot be reproduced: {_not_here(recorded)}; restore the missing objects "
                "from a copy of the dataset"
            )
        if not self._begun and recorded.before is not None:
            self._state = self._room / "before"
            fetch_checkpoint(self._store, self._layout, recorded.before, self._state)
        self._begun = True
        with running(self._store, recorded.task, self._state) as run:
            batches, logical = _hashed(run, recorded)
            checkpoint = None
            self._state, new = None, run.checkpoint_file
            if new is not None:
                checkpoint = checkpoint_of(new).physical_hash
                self._state = self._room / "state"
                shutil.move(new, self._state)
            marks = [each for each in (run.result.watermark, recorded.task.previous_watermark) if each is not None]
        return Again(batches, logical, checkpoint, max(marks, default=None))


def _hashed(run: Run, recorded: Recorded) -> tuple[tuple[pa.RecordBatch, ...], Multihash | None]:
    """Return the rows as in the slice, and their logical hash; None without rows. Raises SchemaMismatch."""
    rows, names, schema = run.result.rows, recorded.task.vocabulary, recorded.schema
    offset, kept = recorded.next_offset, list[pa.RecordBatch]()
    hasher = None
    for batch in rows:
        if not batch.num_rows:
            continue
        if hasher is None:
            if schema is None:
                raise SchemaMismatch("the transformation gives records, the chain has no columns for them")
            _require_columns(schema, rows.schema, recorded)
            hasher = LogicalHash(schema)
        made = numbered(batch, schema or rows.schema, names, offset, recorded.task.system_time)
        hasher.update(made)
        kept.append(made)
        offset += made.num_rows
    return tuple(kept), None if hasher is None else hasher.finish()


def _require_columns(schema: pa.Schema, rows: pa.Schema, recorded: Recorded) -> None:
    # rows with other columns, or columns of another type, cannot belong to this chain
    names = recorded.task.vocabulary
    found = slice_schema(rows, names, Types.of(schema, names))
    if more := [name for name in evolved(schema, found).names if name not in schema.names]:
        raise SchemaMismatch(f"the transformation gives a column {more[0]!r}, which the chain does not have")


def _compare(store: Store, layout: Layout, recorded: Recorded, again: Again) -> Iterator[Problem]:
    committed = None if recorded.data is None else recorded.data.logical_hash
    if committed != again.logical:
        yield _difference(store, layout, recorded, again)
    if recorded.watermark != again.watermark:
        message = f"its watermark is {recorded.watermark}, the transformation gives {again.watermark}"
        yield Problem("TransformDiverged", "VE-02", message)
    version = recorded.task.transform.version
    if recorded.left != again.checkpoint:
        message = f"it left the state {recorded.left}, the transformation gives {again.checkpoint}"
        severity = Severity.ERROR if version == ENGINE_VERSION else Severity.NOTE
        yield Problem("CheckpointDiverged", "VE-02", message, severity)
    if version != ENGINE_VERSION:
        message = f"it was run by {version or 'an engine that is not named'}, and again by {ENGINE_VERSION}"
        yield Problem("EngineVersion", "EN-11", message, Severity.NOTE)


def _difference(store: Store, layout: Layout, recorded: Recorded, again: Again) -> Problem:
    what = "its data is not what the transformation makes of its inputs"
    if recorded.data is None:
        count = sum(batch.num_rows for batch in again.batches)
        return Problem("TransformDiverged", "VE-02", f"{what}: it has no records, the transformation gives {count}")
    expected = Expected(
        data=recorded.data,
        vocabulary=recorded.task.vocabulary,
        schema=recorded.schema,
        block=recorded.block,
        number=recorded.number,
    )
    name = f"slice {recorded.data.physical_hash.short}"
    if check_slices(store, layout, [expected])[0].problems:
        message = f"{what}: they hash to {again.logical}, committed were {recorded.data.logical_hash}"
        return Problem("TransformDiverged", "VE-02", message, object=name)
    column, row, told = first_difference(store, layout, expected, again.batches)
    return Problem("TransformDiverged", "VE-02", f"{what}: {told}", object=name, column=column, row=row)


def _failure(error: LakeError) -> Problem:
    if isinstance(error, InputMissing | InputDiverged):
        return Problem(error.reason, "VE-02", str(error))
    if isinstance(error, SchemaMismatch):
        return Problem("TransformDiverged", "DT-08", str(error))
    return Problem("TransformFailed", "VE-02", f"the transformation cannot be run again: {error}")


def _placed(problem: Problem, recorded: Recorded) -> Problem:
    return replace(problem, block=recorded.block, number=recorded.number)


# The first difference between replayed and committed records, by column and offset.


_SHOWN: Final = 60


def first_difference(
    store: Store, layout: Layout, expected: Expected, again: Sequence[pa.RecordBatch]
) -> tuple[str | None, int | None, str]:
    """Return column, offset and description of the difference; no column if the numbers of records differ.

    ``expected``  an existing, sound slice
    """
    schema = expected.schema
    assert schema is not None, "a slice has one"
    made = pa.Table.from_batches(again, schema) if again else schema.empty_table()
    offset = 0
    for batch in read_batches(store, layout, expected):
        mine = made.slice(offset, batch.num_rows)
        first = _first_row(batch, mine, schema)
        if first is not None:
            column, row = first
            was, now = batch.column(column)[row].as_py(), mine.column(column)[row].as_py()
            told = f"it has {_shown(was)}, the transformation gives {_shown(now)}"
            return column, expected.data.offset_interval.start + offset + row, told
        if mine.num_rows < batch.num_rows:
            break
        offset += batch.num_rows
    committed = expected.data.offset_interval.end - expected.data.offset_interval.start + 1
    shorter = min(committed, made.num_rows)
    told = f"it has {committed} records, the transformation gives {made.num_rows}"
    return None, expected.data.offset_interval.start + shorter, told


def _first_row(batch: pa.RecordBatch, mine: pa.Table, schema: pa.Schema) -> tuple[str, int] | None:
    """Return the first differing column of the first differing row, and that row."""
    found = [
        (row, place)
        for place, field in enumerate(schema)
        if (row := _differs(batch.column(field.name).slice(0, mine.num_rows), mine.column(field.name))) is not None
    ]
    if not found:
        return None
    row, place = min(found)
    return schema.names[place], row


def _differs(one: Any, other: Any) -> int | None:
    """Return the first place where two columns differ; NULL equals NULL, NaN equals NaN."""
    other = other.combine_chunks() if isinstance(other, pa.ChunkedArray) else other
    one = one.cast(other.type)
    if pa.types.is_nested(other.type):
        return next((place for place, (a, b) in enumerate(zip(one, other, strict=True)) if not a.equals(b)), None)
    alike = pc.or_(pc.fill_null(pc.equal(one, other), False), pc.and_(pc.is_null(one), pc.is_null(other)))
    if pa.types.is_floating(other.type):
        both = pc.and_(pc.is_nan(one), pc.is_nan(other))
        alike = pc.or_(alike, pc.fill_null(both, False))
    place = pc.index(alike, False).as_py()
    return None if place < 0 else int(place)


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
