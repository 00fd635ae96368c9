"""Shared parts of stateful operators: the keys in a delta, and a table before and after the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kubothek.odf.transform.scan import KEY, WEIGHT
from kubothek.odf.transform.session import Session, listed
from kubothek.odf.transform.state import ID, Shape, State, same, sort_key

COPIES = "copies"


@dataclass(frozen=True, slots=True)
class Closing:
    """What is closed after a run.

    ``end``    when a key ends, as SQL over its columns, in microseconds
    ``at``     keys that end at or before this are closed; None: none
    ``final``  whether an answer comes only when its key is closed
    """

    end: str
    at: int | None
    final: bool

    @property
    def leaves(self) -> str:
        """The keys that leave the state, as an SQL condition."""
        return "false" if self.at is None else f"{self.end} <= {self.at}"


def met(session: Session, rows: str, keys: Sequence[str], also: str | None = None) -> tuple[str, str]:
    """Return the rows with the ``__id`` of their key, and the keys of these rows and of ``also``."""
    if not keys:
        there = f"SELECT 0::BIGINT AS {ID}" + ("" if also is not None else f" FROM (SELECT 1 FROM {rows} LIMIT 1)")
        found = session.keep("keys", there)
        return session.view("delta", f"SELECT *, 0::BIGINT AS {ID} FROM {rows}"), found
    names = listed(keys)
    query = f"SELECT {names} FROM {rows}"
    if also is not None:
        query += f" UNION ALL SELECT {names} FROM {also}"
    found = session.keep(
        "keys",
        f"SELECT {names}, row_number() OVER () AS {ID} FROM (SELECT DISTINCT {names} FROM ({query}))",
    )
    met_ = f"SELECT d.*, g.{ID} FROM {rows} d JOIN {found} g ON {same('d', 'g', keys)}"
    return session.view("delta", met_), found


def both(
    session: Session,
    state: State,
    shape: Shape,
    keys: str,
    change: str,
    fixed: Sequence[str],
    sums: Sequence[str],
    remains: str,
    leaves: str = "false",
) -> tuple[str, str]:
    """Return a table of the state before and after the run, with the ``__id`` of its key; store the latter.

    ``change``   a query for ``__id``, the ``fixed`` columns and the ``sums``, which are added up
    ``remains``  which rows exist, as SQL
    ``leaves``   which of them are closed: the answer of this run has them, later ones do not
    """
    old = state.old(shape, keys)
    total = [f"sum({column})::{shape.columns[column]} AS {column}" for column in sums]
    part = listed([ID, *fixed, *sums])
    columns = [*(f"g.{key}" for key in shape.key), *(f"t.{column}" for column in (*fixed, *sums)), f"t.{ID}"]
    new = session.keep(
        "new",
        f"SELECT {listed(columns)} FROM (SELECT {listed([ID, *fixed, *total])} FROM "
        f"(SELECT {part} FROM {old} UNION ALL SELECT {part} FROM ({change})) GROUP BY {listed([ID, *fixed])}) t "
        f"JOIN {keys} g ON t.{ID} = g.{ID} WHERE {remains}",
    )
    state.put(shape, keys, f"(SELECT * FROM {new} WHERE ({leaves}) IS NOT TRUE)")
    return old, new


@dataclass(frozen=True, slots=True)
class Recompute:
    """An operator that stores the rows of each key, and computes its answers from all of them.

    ``columns``  of the rows, with their types; the ``keys`` are among them
    """

    name: str
    keys: Sequence[str]
    columns: Mapping[str, str]

    def difference(
        self,
        session: Session,
        state: State,
        rows: str,
        answer: Callable[[str], str],
        closing: Closing | None = None,
        left: Callable[[str], str] | None = None,
    ) -> str:
        """Return the delta of the answers, as a relation: the answer's columns, ``__weight``, ``__key``.

        ``rows``    a relation with the columns and ``__weight``
        ``answer``  returns, for a relation of rows with the ``__id`` of their key, a query for the answer and ``__id``
        ``left``    returns, for the table after the run, a query for the rows that stay; None: ``closing`` decides
        """
        others = [column for column in self.columns if column not in self.keys]
        ordered = {key: self.columns[key] for key in self.keys} | {name: self.columns[name] for name in others}
        shape = Shape(self.name, ordered | {COPIES: "BIGINT"}, len(self.keys))
        delta, keys = met(session, rows, self.keys, None if closing is None else state.keys(shape))
        change = (
            f"SELECT {listed([ID, *others])}, sum({WEIGHT})::BIGINT AS {COPIES} FROM {delta} "
            f"GROUP BY {listed([ID, *others])}"
        )
        leaves = closing.leaves if closing is not None and left is None else "false"
        tables = both(session, state, shape, keys, change, others, [COPIES], f"{COPIES} <> 0", leaves)
        if left is not None:
            state.put(shape, keys, session.keep("left", left(tables[1])))
        parts = []
        for weight, table in zip((-1, 1), tables, strict=True):
            copied = f"(SELECT {listed([*ordered, ID])} FROM {table}, range({COPIES}))"
            if closing is not None and closing.final and left is None:
                if weight < 0:
                    continue
                copied = f"(SELECT * FROM {copied} WHERE {leaves})"
            parts.append(f"SELECT *, {weight}::BIGINT AS {WEIGHT} FROM ({answer(copied)})")
        united = " UNION ALL ".join(parts)
        key = f"SELECT {ID}, {sort_key(self.keys)} AS {KEY} FROM {keys}"
        net = (
            f"SELECT * EXCLUDE ({WEIGHT}), sum({WEIGHT})::BIGINT AS {WEIGHT} FROM ({united}) GROUP BY ALL "
            f"HAVING sum({WEIGHT}) <> 0"
        )
        return session.keep(
            "difference", f"SELECT n.* EXCLUDE ({ID}), k.{KEY} FROM ({net}) n JOIN ({key}) k USING ({ID})"
        )
