"""A real table and its model side by side: every act is done to both, and every reader must agree with the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from plateau.io.eager import commit_dataset, garbage_collect_dataset, read_table, update_dataset_from_dataframes

import kubothek
from kubothek.errors import FilterMatchesAll, RowLevelNeeded
from kubothek.table.indexes import Dialect, IndexKind
from kubothek.table.log import DatasetLog
from kubothek.table.log.update_indexes import reindex
from tests.interop.kinds import theirs
from tests.properties.filters import Filter
from tests.properties.values import Row, Shape

NAME = "t"


class World:
    """One table in a directory of its own. Rows are known by their ``id``."""

    def __init__(self, root: Path, shape: Shape) -> None:
        root.mkdir(parents=True)
        self.shape = shape
        self.rows: dict[int, Row] = {}
        self.versions: dict[int, dict[int, Row]] = {}
        self.lake = kubothek.open(root.as_uri())
        self.url = f"hfs://{root}"
        self.dataset = self.lake.create_dataset(NAME, shape.partition_on, shape.schema, **shape.layout)
        self.indexed: dict[str, IndexKind] = {}
        self._next = 0
        self._note()

    # --- acts ---

    def new(self, values: list[Row]) -> list[Row]:
        """Rows with ids that were never used."""
        first, self._next = self._next, self._next + len(values)
        return [{**row, "id": first + n} for n, row in enumerate(values)]

    def append(self, rows: list[Row]) -> None:
        self.dataset.append(self.shape.table(rows))
        self._add(rows)

    def replace(self, rows: list[Row], where: Filter | None) -> None:
        """Of whole partitions: those that the filter names, else those that the rows are in."""
        touched = {self._partition(row) for row in rows}

        def goes(row: Row) -> bool:
            return where.holds(row) if where else self._partition(row) in touched

        def then() -> None:
            self.rows = {n: row for n, row in self.rows.items() if not goes(row)}
            self._add(rows)

        data = self.shape.table(rows)
        self._attempt(lambda: self.dataset.replace(data, where=where.text if where else None), then)

    def overwrite(self, rows: list[Row]) -> None:
        self.dataset.overwrite(self.shape.table(rows))
        self.rows = {}
        self._add(rows)

    def delete(self, where: Filter, *, row_level: bool) -> None:
        self._attempt(
            lambda: self.dataset.delete(where.text, row_level=row_level),
            lambda: self._keep(lambda row: not where.holds(row)),
        )

    def update(self, values: Row, where: Filter) -> None:
        changed = {n: row | values if where.holds(row) else row for n, row in self.rows.items()}

        def then() -> None:
            self.rows = changed
            self._note()

        self._attempt(lambda: self.dataset.update(values, where=where.text, row_level=True), then)

    def rollback(self, version: int) -> None:
        self.dataset.rollback(version)
        self.rows = self.versions[version]
        self._note()

    def index(self, wanted: dict[str, IndexKind]) -> None:
        """Give the table these indices and no others, in the dialect that plateau can update."""
        reindex(self.lake.store, DatasetLog(self.lake.store, NAME), wanted, dialect=Dialect.PLATEAU)
        self.indexed = wanted
        self._note()

    def append_by_plateau(self, rows: list[Row]) -> None:
        # An index on times in plateau has nanoseconds, as pandas' own times do.
        frame = self.shape.table(rows).to_pandas(coerce_temporal_nanoseconds=True)
        update_dataset_from_dataframes([frame], store=self.url, dataset_uuid=NAME)
        self._add(rows)

    def delete_by_plateau(self, scope: Row) -> None:
        commit_dataset(store=self.url, dataset_uuid=NAME, delete_scope=[scope])
        self._keep(lambda row: any(row[column] != value for column, value in scope.items()))

    def collect_by_plateau(self) -> None:
        """Their garbage collection also takes what only history needs."""
        garbage_collect_dataset(NAME, self.url)
        self.versions = {}
        self._note()

    def _attempt(self, act: Callable[[], object], then: Callable[[], None]) -> None:
        """A change that may be refused because its filter selects too much; then the rows are as before."""
        try:
            act()
        except (FilterMatchesAll, RowLevelNeeded):
            self._note()
        else:
            then()

    def _partition(self, row: Row) -> tuple[str, ...]:
        """As text, for 0.0 and -0.0 are equal but lie apart."""
        return tuple(str(row[column]) for column in self.shape.partition_on)

    def _add(self, rows: list[Row]) -> None:
        self.rows = self.rows | {row["id"]: row for row in rows}
        self._note()

    def _keep(self, wanted: Callable[[Row], bool]) -> None:
        self.rows = {number: row for number, row in self.rows.items() if wanted(row)}
        self._note()

    def _note(self) -> None:
        snapshot = self.dataset.snapshot()
        if snapshot.totals is not None:  # None: plateau's, not adopted yet, and thus no version
            self.versions[snapshot.version] = self.rows

    # --- readers ---

    def check(self, where: Filter) -> None:
        """All rows, and those of a filter, through every reader."""
        self._same(self.dataset.scan().read_all(), self.rows.values())
        assert self.dataset.rows == len(self.rows)
        chosen = [row for row in self.rows.values() if where.holds(row)]
        self._same(self.dataset.scan(where=where.text).read_all(), chosen)
        only_ids = self.dataset.scan(columns=["id"], where=where.text).read_pandas()
        assert sorted(only_ids["id"]) == sorted(row["id"] for row in chosen)
        if where.duckdb is not None:
            self._same(self.lake.sql(f"SELECT * FROM {NAME} WHERE {where.duckdb}").read_all(), chosen)

    def check_version(self, version: int) -> None:
        """A version of the past."""
        self._same(self.dataset.scan(as_of=version).read_all(), self.versions[version].values())

    def check_plateau(self) -> None:
        """Plateau's rows, but for columns in which pandas makes floats of integers; and what it finds by index."""
        frame = read_table(NAME, self.url)
        mixed = {
            name
            for name, data_type in self.shape.columns.items()
            if pa.types.is_integer(data_type) and any(row[name] is None for row in self.rows.values())
        }
        expected = [self._as_plateau_reads(self.rows[number], mixed) for number in sorted(self.rows)]
        assert [{k: row[k] for k in row if k not in mixed} for row in theirs(frame)] == expected
        for column, kind in self.indexed.items():
            if column in mixed:
                continue
            found = {row[column] for row in self.rows.values() if row[column] not in (None, "\0")}  # numpy cuts NUL off
            if kind is IndexKind.KARTOTHEK and found and not pa.types.is_binary(self.shape.columns[column]):
                value = min(found)
                frame = read_table(NAME, self.url, columns=["id"], predicates=[[(column, "==", value)]])
                assert sorted(frame["id"]) == sorted(n for n, row in self.rows.items() if row[column] == value)

    def _as_plateau_reads(self, row: Row, without: set[str]) -> Row:
        """Numpy cuts the characters NUL off the end of a partition's text."""
        cut = {name: row[name].rstrip("\0") for name in self.shape.partition_on if isinstance(row[name], str)}
        return {name: value for name, value in (row | cut).items() if name not in without}

    def _same(self, table: pa.Table, rows: Any) -> None:
        assert set(table.column_names) == set(self.shape.schema.names)
        found = sorted(table.to_pylist(), key=lambda row: row["id"])
        assert found == sorted(rows, key=lambda row: row["id"])
