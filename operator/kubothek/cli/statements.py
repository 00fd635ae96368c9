"""Checks that the SQL and the filters of manifests parse."""

from __future__ import annotations

from collections.abc import Iterator

from kubothek.api.commit import Commit
from kubothek.api.compaction import Compaction
from kubothek.api.meta import Resource
from kubothek.api.query import Query


def wrong_statements(resource: Resource) -> Iterator[tuple[str, str]]:
    """Yield the path of each statement that does not parse, and why. Libraries are imported if there is one."""
    if isinstance(resource, Query) and resource.spec.sql is not None:
        if (wrong := _wrong_sql(resource.spec.sql)) is not None:
            yield "spec.sql", wrong
        return
    filters: dict[str, str | None] = {}
    if isinstance(resource, Commit):
        source = resource.spec.source
        if source is not None and source.sql is not None and (wrong := _wrong_sql(source.sql)) is not None:
            yield "spec.source.sql", wrong
        filters["spec.where"] = resource.spec.where
        filters["spec.cube.where"] = resource.spec.cube.where if resource.spec.cube is not None else None
    elif isinstance(resource, Compaction):
        filters["spec.where"] = resource.spec.where
    for path, text in filters.items():
        if text is not None and (wrong := _wrong_filter(text)) is not None:
            yield path, wrong


def _wrong_sql(text: str) -> str | None:
    import duckdb

    from kubothek.errors import QueryInvalid
    from kubothek.in_memory_database import in_memory_database
    from kubothek.sql.statement import parse

    with in_memory_database(threads=1) as database:
        try:
            parse(database, text, feeds=True)
        except (duckdb.Error, QueryInvalid) as error:
            return f"QueryInvalid: {_on_one_line(str(error))}"
    return None


def _wrong_filter(text: str) -> str | None:
    from kubothek.errors import FilterInvalid
    from kubothek.table.expressions import parse

    try:
        parse(text)
    except FilterInvalid as error:
        return f"FilterInvalid: {str(error).partition(chr(10))[0]}"
    return None


def _on_one_line(text: str) -> str:
    """Return the message without the statement, which DuckDB repeats below it."""
    head, _, rest = text.partition("\n\nLINE ")
    line = rest.partition(":")[0]
    return " ".join(head.split()) + (f" (line {line} of the statement)" if line.isdigit() else "")
