"""The database of one run: in memory, locked, spilling to the run's scratch directory; deleted with the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

import duckdb
import orjson
import pyarrow as pa

from kubothek.errors import QueryInvalid, TransformInvalid, TransformTooLarge
from kubothek.in_memory_database import StreamErrors
from kubothek.odf.duckdb_rows import database_of
from kubothek.odf.transform.dialect import respelled
from kubothek.sql.statement import Node, Statement, parse

_BATCH_ROWS: Final = 65_536
_SELECT: Final = "SELECT "
_FROM: Final = "SELECT * FROM "


class Session:
    """A database of one run. Close it when its rows are read."""

    def __init__(self, engine: str, scratch: Path | None, memory: str, threads: int | None = None) -> None:
        settings = {} if threads is None else {"threads": threads}
        self.memory = memory
        self._numbers = count()
        self._errors = StreamErrors()
        self._database = database_of(engine, memory, scratch, **settings)

    def close(self) -> None:
        """Close the database; nothing can be read afterwards."""
        self._database.close()

    # --- SQL ---------------------------------------------------------------------------------------------------

    def parse(self, text: str) -> Statement:
        """Parse one SELECT of allowed parts. Raises TransformInvalid."""
        try:
            return parse(self._database, respelled(text))
        except (duckdb.Error, QueryInvalid) as error:
            raise TransformInvalid(message_of(error)) from error

    def expression(self, text: str) -> Node:
        """Return the tree of an expression that the engine wrote itself."""
        node: Node = parse(self._database, _SELECT + text).tree["statements"][0]["node"]["select_list"][0]
        return node

    def text(self, expression: Node) -> str:
        """Return an expression as SQL, without its alias."""
        return self._rendered({"select_list": [expression | {"alias": ""}]}).removeprefix(_SELECT)

    def source_text(self, source: Node) -> str:
        """Return a FROM clause as SQL, without the word."""
        star = self.expression("*")
        return self._rendered({"select_list": [star], "from_table": source}).removeprefix(_FROM)

    def _rendered(self, parts: Mapping[str, Any]) -> str:
        tree = parse(self._database, "SELECT 1").tree
        tree["statements"][0]["node"] |= parts
        ((text,),) = self._database.execute("SELECT json_deserialize_sql(?)", [orjson.dumps(tree).decode()]).fetchall()
        return str(text)

    # --- relations ---------------------------------------------------------------------------------------------

    def new_name(self, what: str) -> str:
        """Return a name that is unique here, and that no query can use."""
        return f"__{what}_{next(self._numbers)}"

    def register(self, what: str, rows: pa.Table | pa.RecordBatchReader) -> str:
        """Register rows as a relation, and return its name.

        A reader can be read once; a statement that reads it raises its error.
        """
        name = self.new_name(what)
        self._database.register(name, self._errors.watch(rows))
        return name

    def forget(self, name: str) -> None:
        """Unregister rows."""
        self._database.unregister(name)

    def view(self, what: str, query: str) -> str:
        """Create a view of a query, and return its name. Raises TransformInvalid."""
        name = self.new_name(what)
        self.run(f"CREATE TEMP VIEW {name} AS {query}")
        return name

    def keep(self, what: str, query: str) -> str:
        """Store the answer of a query, and return its name. Raises TransformInvalid, TransformTooLarge."""
        name = self.new_name(what)
        self.run(f"CREATE TEMP TABLE {name} AS {query}")
        return name

    def drop(self, name: str) -> None:
        """Delete a stored answer."""
        self.run(f"DROP TABLE IF EXISTS {name}")

    def require_distinct(self, query: str, where: str) -> None:
        """Raise TransformInvalid for two columns of one name; in a relation, DuckDB would rename one."""
        names = [name.casefold() for name in self.relation(query).columns]
        if alike := [name for name in names if names.count(name) > 1]:
            raise TransformInvalid(f"{where}: column {alike[0]!r} occurs twice; rename one with AS")

    def columns(self, relation: str) -> dict[str, str]:
        """Return the names of a relation's columns, and their types as DuckDB writes them."""
        found = self.relation(f"SELECT * FROM {relation} LIMIT 0")
        return dict(zip(found.columns, map(str, found.types), strict=True))

    # --- rows --------------------------------------------------------------------------------------------------

    def run(self, statement: str) -> None:
        """Execute a statement that returns no rows. Raises TransformInvalid, TransformTooLarge."""
        try:
            self._database.execute(statement).fetchall()
        except duckdb.Error as error:
            raise self._failure(error) from error

    def relation(self, query: str) -> duckdb.DuckDBPyRelation:
        """Bind a query without executing it. Raises TransformInvalid."""
        try:
            return self._database.sql(query)
        except duckdb.Error as error:
            raise self._failure(error) from error

    def table(self, query: str) -> pa.Table:
        """Return the rows of a query; they must fit into memory. Raises TransformInvalid, TransformTooLarge."""
        try:
            found: pa.Table = self._database.sql(query).to_arrow_table()
        except duckdb.Error as error:
            raise self._failure(error) from error
        return found

    def first(self, query: str) -> tuple[Any, ...]:
        """Return the only row of a query."""
        try:
            (row,) = self._database.execute(query).fetchall()
        except duckdb.Error as error:
            raise self._failure(error) from error
        found: tuple[Any, ...] = row
        return found

    def rows(self, query: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query; execute nothing else meanwhile."""
        try:
            yield from self._database.sql(query).to_arrow_reader(_BATCH_ROWS)
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> Exception:
        if (original := self._errors.take()) is not None:
            return original
        if isinstance(error, duckdb.OutOfMemoryException | OSError) or "Out of Memory" in str(error):
            reason = str(error).partition("\n")[0]
            return TransformTooLarge(
                f"the transformation needs more room than {self.memory} of memory and the disk have: {reason}"
            )
        return TransformInvalid(message_of(error))


def message_of(error: Exception) -> str:
    """Return DuckDB's message without the excerpt of the query."""
    return str(error).partition("\n\nLINE ")[0]


def listed(items: Sequence[str]) -> str:
    """Join items with commas, for a SELECT."""
    return ", ".join(items)
