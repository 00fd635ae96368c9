"""Formats and sources of files with rows, shared by Commits and standing sources."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from kubothek.api.as_of import AsOf, Moment, Statement
from kubothek.api.meta import Strict
from kubothek.api.rules import Rule
from kubothek.api.values import Columns, Duration, Reference

Path = Annotated[str, StringConstraints(min_length=1, max_length=1024, pattern=r"^[^/\x00-\x1f][^\x00-\x1f]*$")]
_Url = Annotated[str, StringConstraints(max_length=2048, pattern=r"^(https?|file):[^\s]+$")]
_Character = Annotated[str, StringConstraints(min_length=1, max_length=1)]

FileFormat = Literal["CSV", "JSONLines", "Parquet"]
Compression = Literal["Auto", "None", "Gzip", "Zip"]


class Csv(Strict):
    """How to read CSV."""

    delimiter: _Character = ","
    """The separator of values."""
    quote: _Character = '"'
    """The character around values that contain the delimiter or a line break."""
    header: bool = True
    """Whether the first line names the columns."""
    null_values: Annotated[tuple[Annotated[str, StringConstraints(max_length=64)], ...], Field(max_length=32)] = (
        "",
        "NA",
        "NULL",
        "null",
    )
    """Texts that mean a missing value."""


def csv_rule(field: str = "") -> Rule:
    """Return the rule for `csv` of a model; ``field`` is its path, such as `source.`."""
    return Rule(
        cel="!has(self.csv) || (has(self.format) && self.format == 'CSV')",
        message=f"{field}csv goes with format: CSV: remove it, or correct the format",
        holds=lambda self: self.csv is None or self.format == "CSV",
    )


def file_rules(field: str = "") -> tuple[Rule, ...]:
    """Return the rules for `format`, `csv` and `compression` of a model; ``field`` is its path, such as `source.`."""
    return (
        csv_rule(field),
        Rule(
            cel="!has(self.format) || self.format != 'Parquet' || !(self.compression in ['Gzip', 'Zip'])",
            message=f"a Parquet file is compressed inside: remove {field}compression",
            holds=lambda self: self.format != "Parquet" or self.compression not in ("Gzip", "Zip"),
        ),
    )


class Source(Strict):
    """Where the rows come from: exactly one of `paths`, `urls` and `sql`."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="(has(self.paths) ? 1 : 0) + (has(self.urls) ? 1 : 0) + (has(self.sql) ? 1 : 0) == 1",
            message="a source has paths (in a store), urls or sql: set exactly one of them",
            holds=lambda self: [self.paths, self.urls, self.sql].count(None) == 2,
        ),
        Rule(
            cel="!has(self.storeRef) || !has(self.urls)",
            message="source.storeRef goes with source.paths and source.sql: remove it, or name paths",
            holds=lambda self: self.store_ref is None or self.urls is None,
        ),
        Rule(
            cel="has(self.format) != has(self.sql)",
            message="source.format goes with source.paths and source.urls, which require it: set it, or remove it from "
            "a source with sql",
            holds=lambda self: (self.format is None) != (self.sql is None),
        ),
        Rule(
            cel="!has(self.sql) || !(has(self.schema) || has(self.csv) || self.compression != 'Auto')",
            message="source.schema, csv and compression describe files: remove them, and CAST columns in source.sql",
            holds=lambda self: (
                self.sql is None or (self.columns is None and self.csv is None and self.compression == "Auto")
            ),
        ),
        Rule(
            cel="has(self.sql) || !(has(self.asOf) || has(self.asAt) || has(self.timeLimit))",
            message="source.asOf, asAt and timeLimit go with source.sql: remove them",
            holds=lambda self: self.sql is not None or [self.as_of, self.as_at, self.time_limit].count(None) == 3,
        ),
        Rule(
            cel="!has(self.urls) || self.urls.all(url, !url.startsWith('file:'))",
            message="a cluster reads no file: urls: put the files into an ObjectStore and name them in paths",
            holds=lambda self: not any(url.startswith("file:") for url in self.urls or ()),
            cluster_only=True,
        ),
        Rule(
            cel="!has(self.paths) || self.paths.all(path, !('..' in path.split('/')))",
            message="source.paths has a '..': name files below the url of the store",
            holds=lambda self: not any(".." in path.split("/") for path in self.paths or ()),
        ),
        *file_rules("source."),
    )

    store_ref: Reference | None = None
    """The ObjectStore that holds `paths`, or the datasets that `sql` reads; default: that of the Dataset."""
    paths: Annotated[tuple[Path, ...] | None, Field(min_length=1, max_length=1000)] = None
    """Files, relative to the url of the store."""
    urls: Annotated[tuple[_Url, ...] | None, Field(min_length=1, max_length=100)] = None
    """Files on web servers that the operator allows (http, https)."""
    sql: Statement | None = None
    """One SELECT, whose rows are the source. The datasets of the store are tables with their names in the store; the
    Dataset that the Commit changes may be one of them. `FROM flights AS OF VERSION 3` reads an earlier version."""
    as_of: AsOf | None = None
    """For `sql`: the version to read of datasets without a version in the statement; default: the current one."""
    as_at: Moment | None = None
    """For `sql` over Datasets with a ledger: only events up to this event time, with all later corrections. With a time
    zone: `2026-11-21T14:00:00Z`."""
    time_limit: Duration | None = None
    """For `sql`: maximum duration of the statement, after which the Commit fails; default: 1h."""
    format: FileFormat | None = None
    """For `paths` and `urls`: the format of the files."""
    compression: Compression = "Auto"
    """The compression of the files; Auto: by the suffix of the name."""
    csv: Csv | None = None
    """How to read CSV; the defaults suit spreadsheets and R."""
    columns: Columns = None
    """The columns of the files and their types; default: those of the Dataset, else inferred from the files."""
