"""GROUP BY: the answers of the groups that are in the delta, before and after the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kubothek.odf.transform.aggregates import ROWS, VALUE, Aggregate
from kubothek.odf.transform.exact import bins, rounded
from kubothek.odf.transform.keyed import COPIES, Closing, both, met
from kubothek.odf.transform.scan import KEY, WEIGHT
from kubothek.odf.transform.session import Session, listed
from kubothek.odf.transform.state import ID, Shape, State, sort_key


@dataclass(frozen=True, slots=True)
class Grouping:
    """One GROUP BY; ``keys`` and arguments of ``aggregates`` are columns of the grouped relation, with ``types``."""

    name: str
    keys: Sequence[str]
    types: Mapping[str, str]
    aggregates: Sequence[Aggregate]

    def difference(
        self, session: Session, state: State, rows: str, answers: Callable[[str], str], closing: Closing | None = None
    ) -> str:
        """Return the delta of the groups as a relation: the answers, ``__weight``, ``__key``.

        ``rows``     a relation with keys, arguments and ``__weight``
        ``answers``  returns the query over a relation of groups, which has the keys, and ``r0``, ``r1`` … for the
                     aggregates in their order
        """
        also = None if closing is None else state.keys(self._shape)
        delta, groups = met(session, self._single(rows), self.keys, also)
        leaves = "false" if closing is None else closing.leaves
        tables = self._tables(session, state, delta, groups, leaves)
        parts = []
        for weight, number in ((-1, 0), (1, 1)):
            if closing is not None and closing.final:
                if weight < 0:
                    continue
                tables |= {"": ("", f"(SELECT * FROM {tables[''][1]} WHERE {leaves})")}
            answered = self._answered(session, {name: both[number] for name, both in tables.items()})
            parts.append(f"SELECT *, {weight}::BIGINT AS {WEIGHT} FROM ({answers(answered)})")
        return session.keep("difference", " UNION ALL ".join(parts))

    # --- state -------------------------------------------------------------------------------------------------

    def _single(self, rows: str) -> str:
        """Return the rows, with weights of 1 and -1 if an aggregate cannot multiply."""
        if not any(each.single for each in self.aggregates):
            return rows
        one = f"SELECT * FROM {rows} WHERE abs({WEIGHT}) = 1"
        several = f"SELECT * REPLACE (sign({WEIGHT})::BIGINT AS {WEIGHT}) FROM {rows}, range(abs({WEIGHT})) r(__copy)"
        return f"({one} UNION ALL SELECT * EXCLUDE (__copy) FROM ({several} WHERE abs({WEIGHT}) > 1))"

    @property
    def _numbers(self) -> dict[str, tuple[str, str]]:
        numbers = {ROWS: (f"sum({WEIGHT})", "BIGINT")}
        for each in self.aggregates:
            numbers |= each.numbers
        return numbers

    @property
    def _shape(self) -> Shape:
        """The table with the numbers of each group."""
        columns = self._keys | {name: kind for name, (_, kind) in self._numbers.items()}
        return Shape(self.name, columns, len(self.keys))

    def _tables(
        self, session: Session, state: State, delta: str, groups: str, leaves: str
    ) -> dict[str, tuple[str, str]]:
        """Return each table of the state before and after the run; aggregates over the same columns share one."""
        numbers, found = self._numbers, {}
        sums = [f"({value})::{kind} AS {name}" for name, (value, kind) in numbers.items()]
        change = f"SELECT {ID}, {listed(sums)} FROM {delta} GROUP BY {ID}"
        found[""] = both(session, state, self._shape, groups, change, [], list(numbers), f"{ROWS} <> 0", leaves)
        known: dict[tuple[str, ...], tuple[str, str]] = {}
        for number, each in enumerate(self.aggregates):
            remembered = (each.exact, "") if each.exact is not None else tuple(each.values)
            if remembered in known:
                found[str(number)] = known[remembered]
            elif each.exact is not None:
                shape = Shape(
                    f"{self.name}.{number}", self._keys | {"bin": "SMALLINT", "acc": "DECIMAL(38,0)"}, len(self.keys)
                )
                change = bins(each.exact, WEIGHT, delta, ID)
                found[str(number)] = known[remembered] = both(
                    session, state, shape, groups, change, ["bin"], ["acc"], "acc <> 0", leaves
                )
            elif each.values:
                columns = {column: self.types[column] for column in each.values}
                shape = Shape(f"{self.name}.{number}", self._keys | columns | {COPIES: "BIGINT"}, len(self.keys))
                change = (
                    f"SELECT {ID}, {listed(each.values)}, sum({WEIGHT})::BIGINT AS {COPIES} FROM {delta} "
                    f"GROUP BY {listed([ID, *each.values])}"
                )
                found[str(number)] = known[remembered] = both(
                    session, state, shape, groups, change, each.values, [COPIES], f"{COPIES} <> 0", leaves
                )
        return found

    @property
    def _keys(self) -> dict[str, str]:
        return {key: self.types[key] for key in self.keys}

    # --- answers -----------------------------------------------------------------------------------------------

    def _answered(self, session: Session, tables: Mapping[str, str]) -> str:
        """Return a query for the groups and their aggregates, from one version of the state."""
        joins, columns, results = "", [], []
        sums: dict[str, str] = {}
        for number, each in enumerate(self.aggregates):
            table = f"t{number}"
            results.append(f"{each.answer.replace(VALUE, f'v{number}')} AS r{number}")
            if each.exact is not None:
                if (bins_of := tables[str(number)]) not in sums:
                    found = session.table(f"SELECT {ID}, bin, acc FROM {bins_of} ORDER BY {ID}")
                    sums[bins_of] = session.register("sums", rounded(found))
                joins += f" LEFT JOIN {sums[bins_of]} {table} ON {table}.{ID} = g.{ID}"
                columns.append(f"coalesce({table}.value, 0.0::DOUBLE) AS v{number}")
            elif each.values:
                source = f"{tables[str(number)]}"
                source += f", range({COPIES})" if each.copies else ""
                query = f"SELECT {ID}, {each.of_values} AS value FROM {source} GROUP BY {ID}"
                joins += f" LEFT JOIN ({query}) {table} ON {table}.{ID} = g.{ID}"
                columns.append(f"{table}.value AS v{number}")
        inner = f"SELECT {listed(['g.*', *columns])} FROM {tables['']} g{joins}"
        key = f"{sort_key(self.keys)} AS {KEY}"
        return f"(SELECT {listed([*self.keys, *results, key])} FROM ({inner}))"
