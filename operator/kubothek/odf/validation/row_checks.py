"""Checks of the common columns of a slice's records, batch by batch: offsets, operations, system times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.odf.problems import Problem, Severity
from kubothek.odf.spec.sources import (
    MergeStrategy,
    MergeStrategyAppend,
    MergeStrategyChangelogStream,
    MergeStrategyLedger,
    MergeStrategySnapshot,
    MergeStrategyUpsertStream,
)
from kubothek.odf.validation.state import Vocabulary

APPEND: Final = 0
RETRACT: Final = 1
CORRECT_FROM: Final = 2
CORRECT_TO: Final = 3
"""The values of the column ``op`` (OP-01)."""

Keyed: TypeAlias = (
    MergeStrategyLedger | MergeStrategySnapshot | MergeStrategyChangelogStream | MergeStrategyUpsertStream
)
"""The strategies with a primary key."""
KEY_RULES: Final[Mapping[type, str]] = {
    MergeStrategyLedger: "MS-02",
    MergeStrategySnapshot: "MS-04",
    MergeStrategyUpsertStream: "MS-08",
    MergeStrategyChangelogStream: "MS-09",
}
"""The requirement that says which keys each of them repeats."""
_APPENDING: Final = (MergeStrategyAppend, MergeStrategyLedger)
_Numbers = npt.NDArray[np.int64]


class RowChecks:
    """Checks records in their order; for each rule, the first value that breaks it is kept.

    ``start``   the offset of the first record
    ``merges``  the merge strategies that can have made the records; none: unknown
    """

    def __init__(self, vocabulary: Vocabulary, start: int, merges: Sequence[MergeStrategy] = ()) -> None:
        self._appending = merges[0].kind if merges and all(isinstance(each, _APPENDING) for each in merges) else None
        self.start = start
        self.first_time: int | None = None
        self.last_time: int | None = None
        self.retracts = False
        self._last_op = APPEND
        self._op = vocabulary.op
        self._checks = {
            vocabulary.offset: self._offsets,
            vocabulary.op: self._operations,
            vocabulary.system_time: self._times,
        }
        self._rows = 0
        self._found: dict[str, Problem] = {}

    def update(self, rows: pa.RecordBatch) -> None:
        """Check the next rows; only common columns are checked."""
        if not rows.num_rows:
            return
        for name, check in self._checks.items():
            check(rows.column(name), name, self._rows)
        self._rows += rows.num_rows

    def finish(self) -> Iterator[Problem]:
        """Return the problems; no rows may follow."""
        if self._last_op == CORRECT_FROM:
            message = "the last record is a correction's first half (-C) without the second"
            self._note("DataCorrection", "OP-03", message, self._op, self._rows - 1)
        return iter(sorted(self._found.values(), key=lambda problem: problem.row or 0))

    def _offsets(self, column: Any, name: str, rows: int) -> None:
        expected = np.arange(self.start + rows, self.start + rows + len(column), dtype=np.int64)
        values = self._numbers(column, name, "DataOffsets", "DAT-03", rows)
        if values is not None and (row := _first(values != expected)) is not None:
            message = f"the record has offset {values[row]}"
            self._note("DataOffsets", "DAT-03", message, name, rows + row)

    def _operations(self, column: Any, name: str, rows: int) -> None:
        if self._last_op != CORRECT_FROM and _is_all(column, APPEND):
            self._last_op = APPEND
            return
        values = self._numbers(column, name, "DataOp", "OP-01", rows)
        if values is None:
            return
        if (row := _first((values < APPEND) | (values > CORRECT_TO))) is not None:
            message = f"operation {values[row]} is none of 0 (+A), 1 (-R), 2 (-C), 3 (+C)"
            self._note("DataOp", "OP-01", message, name, rows + row)
        if self._appending is not None and (row := _first(values != APPEND)) is not None:
            message = f"operation {values[row]} of merge strategy {self._appending}, which only appends (+A)"
            self._note("DataStrategy", "MS-01", message, name, rows + row, Severity.REFUSED)
        before = np.concatenate([[self._last_op], values[:-1]])
        if (row := _first((before == CORRECT_FROM) != (values == CORRECT_TO))) is not None:
            halves = "without a -C right before it" if values[row] == CORRECT_TO else "after a -C, where its +C must be"
            message = f"operation {values[row]} {halves}"
            self._note("DataCorrection", "OP-03", message, name, rows + row)
        self._last_op = int(values[-1])
        self.retracts = self.retracts or bool(((values == RETRACT) | (values == CORRECT_FROM)).any())

    def _times(self, column: Any, name: str, rows: int) -> None:
        column = column.cast(pa.int64())
        if self.last_time is not None and _is_all(column, self.last_time):
            return
        values = self._numbers(column, name, "DataSystemTime", "TIM-01", rows)
        if values is None:
            return
        before = np.concatenate([[values[0] if self.last_time is None else self.last_time], values[:-1]])
        if (row := _first(values < before)) is not None:
            message = f"system time {_moment(values[row])} after {_moment(before[row])}"
            self._note("DataSystemTime", "TIM-02", message, name, rows + row)
        self.first_time = int(values[0]) if self.first_time is None else self.first_time
        self.last_time = int(values[-1])

    def _numbers(self, column: Any, name: str, code: str, rule: str, rows: int) -> _Numbers | None:
        if column.null_count:
            row = pc.index(column.is_null(), True).as_py()
            self._note(code, rule, "the record has none", name, rows + row)
            return None
        return np.asarray(column.to_numpy(zero_copy_only=False)).astype(np.int64, copy=False)

    def _note(
        self, code: str, rule: str, message: str, column: str, row: int, severity: Severity = Severity.ERROR
    ) -> None:
        self._found.setdefault(code, Problem(code, rule, message, severity, column=column, row=self.start + row))


def _is_all(column: Any, value: int) -> bool:
    """Return whether all values are this one, as operations and system times nearly always are."""
    ends: Any = pc.min_max(column).as_py()
    return not column.null_count and ends["min"] == ends["max"] == value


def _first(wrong: npt.NDArray[np.bool_]) -> int | None:
    row = int(wrong.argmax())
    return row if wrong[row] else None


def _moment(milliseconds: Any) -> str:
    return str(np.datetime64(int(milliseconds), "ms"))
