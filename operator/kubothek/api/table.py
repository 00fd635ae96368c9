"""``spec.table`` of a Dataset: how its files are laid out, and what is kept beside them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from kubothek.api.meta import Strict
from kubothek.api.rules import Immutable, Rule, UniqueBy
from kubothek.api.skipping import Skipping
from kubothek.api.values import ColumnName, Columns, Quantity, parse_quantity


class Index(Strict):
    """A secondary index: which files hold which values of a column that does not partition the table."""

    column: ColumnName
    """The column; of type bool, int64, uint64, double, string, binary, date32 or timestamp."""
    kind: Literal["Kartothek", "Native"] = "Native"
    """Native: for any number of values, and cheap to update; only Kubothek uses it. Kartothek: kartothek and plateau
    use and update it as well; every commit writes the whole index anew, so it is for columns with few values."""


def _distinct_inner_columns(field: str, attribute: str) -> tuple[Rule, ...]:
    """What a list of columns must be that says how files are laid out inside."""
    listed = f"!has(self.{field}) || "
    return (
        Rule(
            cel=f"{listed}self.{field}.all(name, self.{field}.exists_one(other, other == name))",
            message=f"table.{field} names a column twice: remove one",
            holds=lambda table: len(set(names := getattr(table, attribute) or ())) == len(names),
        ),
        Rule(
            cel=f"{listed}!has(self.partitionOn) || self.{field}.all(name, !(name in self.partitionOn))",
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
    """The columns of its skipping indices."""
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
        Rule(
            cel="!has(self.partitionOn) || "
            "self.partitionOn.all(name, self.partitionOn.exists_one(other, other == name))",
            message="table.partitionOn names a column twice: remove one",
            holds=lambda self: len(set(self.partition_on)) == len(self.partition_on),
        ),
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
    """Immutable. The columns whose values name the directories, outermost first. A column with few values that most
    queries filter on is a good one."""
    sort_by: Annotated[tuple[ColumnName, ...], Field(max_length=16)] = ()
    """Takes effect at the next write. The columns by which the rows of each file ascend, the first one first; nulls
    come last. Filters on the first one then skip most row groups and, in large partitions, most files."""
    bucket_by: Annotated[tuple[ColumnName, ...], Field(max_length=16)] = ()
    """Takes effect at the next write. The columns whose values decide, by a hash, into which of `numBuckets` files of
    its partition a row goes. A query for one value of all of them reads one bucket; docs/layout.md has the hash."""
    num_buckets: Annotated[int, Field(ge=1, le=65536)] | None = None
    """Takes effect at the next write. The number of buckets of a partition; goes with `bucketBy`."""
    target_file_size: Quantity = "128Mi"
    """Takes effect at the next write. How large files should get."""
    row_group_rows: Annotated[int, Field(ge=1, le=1073741824)] = 1048576
    """Takes effect at the next write. How many rows a row group, which readers skip or read whole, has at most."""
    compression: Literal["ZSTD", "SNAPPY", "NONE"] = "ZSTD"
    """Takes effect at the next write. The compression inside the Parquet files."""
    dictionary_columns: Annotated[tuple[ColumnName, ...], Field(max_length=64)] | None = None
    """Takes effect at the next write. The columns that are dictionary-encoded, which pays for those with few different
    values. Left out: all, each as long as it pays."""
    indices: Annotated[tuple[Index, ...] | None, Field(max_length=16), UniqueBy("column")] = None
    """A job on edit. The secondary indices of the table; an empty list drops those that are there. Left out: whatever
    indices the table has are kept up to date."""
    skipping: Skipping | None = None
    """A job on edit. What is kept of each data file, so that queries open only those that can hold a match; empty
    drops it. Left out: what the table has is kept up by every commit."""
    dialect: Literal["Kartothek", "Plateau"] | None = None
    """A job on edit. Which library besides Kubothek can write to a table with a Kartothek index on strings; both can
    read it. Left out: as it is, which is Kartothek for a new table."""
    columns: Columns = None
    """A checked contract: a commit whose columns differ is refused. Without it the first commit decides."""
    schema_evolution: Literal["Strict", "Compatible"] = "Strict"
    """Takes effect at the next write. Strict: rows have exactly the columns of the table. Compatible: they may bring
    new columns, which older rows then have as null, lack columns, which are null then, and have decimals with more
    digits. With `table.schema`, only the columns that it names can come."""
