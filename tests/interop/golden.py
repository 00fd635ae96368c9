"""The golden stores as cases: every table that kartothek 5.3 and plateau 4.6 wrote, and every query on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

import kubothek
from kubothek.catalog import Dataset, Lake
from tests.table import golden

STORES = [
    "k53-table",
    "p46-table",
    "k53-multi-table",
    "k53-implicit",
    "k53-msgpack",
    "k53-empty",
    "k53-cube",
    "k53-cube-legacy",
]


@dataclass(frozen=True)
class Case:
    """One table of one golden store, and what a correct reader makes of it."""

    store: str
    uuid: str
    table: str
    expected: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.store}:{self.uuid}/{self.table}"

    @property
    def lake(self) -> Lake:
        return kubothek.open((golden.ROOT / self.store / "store").as_uri())

    @property
    def several(self) -> bool:
        return len(self.expected["tables"]) > 1

    @property
    def sql_name(self) -> str:
        """What the table is called in SQL."""
        return f'"{self.uuid}/{self.table}"' if self.several else f'"{self.uuid}"'

    @property
    def content(self) -> dict[str, Any]:
        return self.expected["tables"][self.table]  # type: ignore[no-any-return]

    @property
    def order(self) -> list[tuple[str, Literal["ascending", "descending"]]]:
        """How the expected rows are sorted."""
        return [(column, "ascending") for column in self.content["sort_by"]]

    @property
    def queries(self) -> list[dict[str, Any]]:
        """The queries and, with what plain logic says, those that the libraries answer wrongly."""
        quirks = [{**q, "row_ids": q["logical_row_ids"]} for q in self.expected.get("quirks", ())]
        return [q for q in (*self.expected["queries"], *quirks) if q.get("table", self.table) == self.table]

    def dataset(self) -> Dataset:
        return self.lake.dataset(self.uuid, table=self.table if self.several else None)


CASES = [
    Case(store, uuid, table, expected)
    for store in STORES
    for uuid, expected in golden.expected(store).items()
    for table in expected["tables"]
]
QUERIES = [(case, query) for case in CASES for query in case.queries]


def where(predicates: list[list[list[Any]]] | None, schema: pa.Schema) -> str:
    """The predicates as text of the predicate language, which is also SQL; kartothek's null compares as IS NULL."""
    if predicates is None:
        return "TRUE"
    return " OR ".join(
        "(" + " AND ".join(_literal(each, schema) for each in conjunction) + ")" for conjunction in predicates
    )


def _literal(literal: list[Any], schema: pa.Schema) -> str:
    column, operator, value = literal
    if operator == "in":
        parts = [_literal([column, "==", item], schema) for item in value]
        return "(" + " OR ".join(parts or ["FALSE"]) + ")"
    name = '"' + column.replace('"', '""') + '"'
    if value is None:
        return f"{name} IS {'NOT ' if operator == '!=' else ''}NULL"
    return f"{name} {'=' if operator == '==' else operator} {_text(value, schema.field(column).type)}"


def _text(value: Any, data_type: pa.DataType) -> str:
    if pa.types.is_date(data_type):
        return f"DATE '{value}'"
    if pa.types.is_timestamp(data_type):
        return f"TIMESTAMP '{value.replace('T', ' ')}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value)
