"""``spec.table`` of a Dataset: the layout of its files, its indices and skipping metadata."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from kubothek.api.meta import Strict
from kubothek.api.rules import Immutable, Rule, UniqueBy
from kubothek.api.skipping import Skipping
from kubothek.api.values import ColumnName, Columns, Quantity, distinct, parse_quantity


class Index(Strict):
    """A secondary index: which files hold which values of a column that does not partition the table."""

    column: ColumnName
    """The column; of type bool, int64, uint64, double, string, binary, date32 or timestamp."""
    kind: Literal["Kartothek", "Native"] = "Native"
    """Native: for any number of values, and cheap to update; only Kubothek uses it. Kartothek: kartothek and plateau
    use and update it as well; every commit rewrites the whole index, so it suits columns with few values."""


def _distinct_inner_columns(field: str, attribute: str) -> tuple[Rule, ...]:
    """Return the rules for a list of columns that defines the layout inside of files."""
    return (
        distinct(field, attribute, "table."),
        Rule(
            cel=f"!has(self.{field}) || !has(self.partitionOn) || self.{field}.all(name, !(name in self.partitionOn))",
            message=f"table.{field} names a column of table.partitionOn, which no file contains: remove it",
            holds=lambda table: not set(getattr(table, attribute) or ()) & set(table.partition_on),
        ),
    )


def _known_columns(field: str, attribute: str) -> Rule:
    return Rule(
        cel=f"!has(self.{field}) || !has(self.schema) || self.{field}.all(name, self.schema.exists(c, c.name == name))",
        message=f"table.{field} names a column that table.schema does not have: add it to the schema",
        holds=lambda table: table.columns is None or set(getattr(table, attribute)) <= {c.name for c in table.columns},
    )


def _skipped_by(table: Table) -> set[str]:
    """Return the columns of its skipping indices."""
    indices = table.skipping.indices if table.skipping is not None else ()
    return {column for index in indices for column in (index.column, index.y_column) if column is not None}


class Table(Strict):
    """The layout of the table."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *_distinct_inner_columns("sortBy", "sort_by"),
        *_distinct_inner_columns("bucketBy", "bucket_by"),
        *_distinct_inner_columns("dictionaryColumns", "dictionary_columns"),
        _known_columns("sortBy", "sort_by"),
        _known_columns("bucketBy", "bucket_by"),
        Rule(
            cel="(has(self.bucketBy) && self.bucketBy.size() > 0) == has(self.numBuckets)",
            message="table.bucketBy and table.numBuckets go together: add the one, or remove the other",
            holds=lambda self: bool(self.bucket_by) == (self.num_buckets is not None),
        ),
        distinct("partitionOn", "partition_on", "table."),
        Rule(
            cel="!has(self.schema) || !has(self.partitionOn) || "
            "self.partitionOn.all(name, self.schema.exists(c, c.name == name))",
            message="table.partitionOn names a column that table.schema does not have: add it to the schema",
            holds=lambda self: (
                self.columns is None or set(self.partition_on) <= {column.name for column in self.columns}
            ),
        ),
        Rule(
            cel="!has(self.schema) || !has(self.partitionOn) || self.schema.size() > self.partitionOn.size()",
            message="table.schema has no column besides those of table.partitionOn: files would be empty, add one",
            holds=lambda self: self.columns is None or len(self.columns) > len(self.partition_on),
        ),
        Rule(
            cel="quantity(string(self.targetFileSize)).compareTo(quantity('1Mi')) >= 0 && "
            "quantity(string(self.targetFileSize)).compareTo(quantity('4Gi')) <= 0",
            message="table.targetFileSize must be between 1Mi and 4Gi",
            holds=lambda self: parse_quantity("1Mi") <= parse_quantity(self.target_file_size) <= parse_quantity("4Gi"),
        ),
        Rule(
            cel="!has(self.indices) || !has(self.partitionOn) || "
            "self.indices.all(index, !self.partitionOn.exists(name, name == index.column))",
            message="table.indices names a column of table.partitionOn, which needs no index: remove it",
            holds=lambda self: not {index.column for index in self.indices or ()} & set(self.partition_on),
        ),
        Rule(
            cel="!has(self.indices) || !has(self.schema) || "
            "self.indices.all(index, self.schema.exists(c, c.name == index.column))",
            message="table.indices names a column that table.schema does not have: add it to the schema",
            holds=lambda self: (
                self.columns is None
                or {index.column for index in self.indices or ()} <= {column.name for column in self.columns}
            ),
        ),
        Rule(
            cel="!has(self.skipping) || !has(self.skipping.indices) || !has(self.partitionOn) || "
            "self.skipping.indices.all(i, !(i.column in self.partitionOn) && "
            "(!has(i.yColumn) || !(i.yColumn in self.partitionOn)))",
            message="table.skipping names a column of table.partitionOn, by which files are skipped anyway: remove it",
            holds=lambda self: not _skipped_by(self) & set(self.partition_on),
        ),
        Rule(
            cel="!has(self.skipping) || !has(self.skipping.indices) || !has(self.schema) || "
            "self.skipping.indices.all(i, self.schema.exists(c, c.name == i.column) && "
            "(!has(i.yColumn) || self.schema.exists(c, c.name == i.yColumn)))",
            message="table.skipping names a column that table.schema does not have: add it to the schema",
            holds=lambda self: self.columns is None or _skipped_by(self) <= {column.name for column in self.columns},
        ),
    )

    partition_on: Annotated[
        tuple[ColumnName, ...],
        Field(max_length=16),
        Immutable("table.partitionOn cannot change, as every file is laid out by it: create another Dataset"),
    ] = ()
    """Immutable. The columns whose values name the directories, outermost first. Choose columns with few values on
    which most queries filter."""
    sort_by: Annotated[tuple[ColumnName, ...], Field(max_length=16)] = ()
    """Takes effect at the next write. The columns by which the rows of each file are sorted, ascending, nulls last.
    Filters on the first one then skip most row groups and, in large partitions, most files."""
    bucket_by: Annotated[tuple[ColumnName, ...], Field(max_length=16)] = ()
    """Takes effect at the next write. The columns whose hash decides into which of `numBuckets` buckets of its
    partition a row goes. A query for one value of all of them reads one bucket; docs/layout.md has the hash."""
    num_buckets: Annotated[int, Field(ge=1, le=65536)] | None = None
    """Takes effect at the next write. The number of buckets of a partition; only with `bucketBy`."""
    target_file_size: Quantity = "128Mi"
    """Takes effect at the next write. Target size of files."""
    row_group_rows: Annotated[int, Field(ge=1, le=1073741824)] = 1048576
    """Takes effect at the next write. Maximum rows of a row group, which readers skip or read whole."""
    compression: Literal["ZSTD", "SNAPPY", "NONE"] = "ZSTD"
    """Takes effect at the next write. The compression inside the Parquet files."""
    dictionary_columns: Annotated[tuple[ColumnName, ...], Field(max_length=64)] | None = None
    """Takes effect at the next write. The columns with dictionary encoding, which pays for few distinct values.
    Default: all, each as long as it pays."""
    indices: Annotated[tuple[Index, ...] | None, Field(max_length=16), UniqueBy("column")] = None
    """A job on edit. The secondary indices of the table; an empty list drops existing ones. Default: existing indices
    are kept up to date."""
    skipping: Skipping | None = None
    """A job on edit. Metadata of each data file, by which queries open only files that can match; empty drops it.
    Default: every commit keeps existing metadata up to date."""
    dialect: Literal["Kartothek", "Plateau"] | None = None
    """A job on edit. Which library besides Kubothek can write to a table with a Kartothek index on strings; both can
    read it. Default: unchanged; Kartothek for a new table."""
    columns: Columns = None
    """A checked contract: a commit with other columns is refused. Default: the columns of the first commit."""
    schema_evolution: Literal["Strict", "Compatible"] = "Strict"
    """Takes effect at the next write. Strict: rows have exactly the columns of the table. Compatible: rows may have new
    columns (null in older rows), lack columns (null in these rows), and have decimals with more digits. With
    `table.schema`, only its columns can be added."""
