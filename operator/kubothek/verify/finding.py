"""One finding of a verification, about a chain or a table, for a status or a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from kubothek.odf import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is wrong, and where. ``code`` is stable API (docs/verification.md, docs/odf.md).

    ``block``   hash of a block of the chain, and ``number``, its sequence number
    ``object``  the key of a data file or index, or the name of a slice
    ``row``     an offset of the chain, or the number of a row in the file
    """

    code: str
    message: str
    block: str | None = None
    number: int | None = None
    object: str | None = None
    column: str | None = None
    row: int | None = None

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Return the finding for a problem of a chain."""
        return cls(
            code=problem.code,
            message=f"{problem.message} [{problem.rule}]",
            block=None if problem.block is None else str(problem.block),
            number=problem.number,
            object=problem.object,
            column=problem.column,
            row=problem.row,
        )

    def __str__(self) -> str:
        """Return one line."""
        parts = (
            f"block {self.number}" if self.number is not None else "",
            self.object or "",
            f"column {self.column!r}" if self.column is not None else "",
            f"offset {self.row}" if self.row is not None else "",
        )
        where = ", ".join(part for part in parts if part)
        return f"{self.code}: {where}: {self.message}" if where else f"{self.code}: {self.message}"
