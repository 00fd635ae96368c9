"""Checks that the SQL and the filters of manifests parse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kubothek.api.commit import Commit
from kubothek.api.compaction import Compaction
from kubothek.api.dataset import Dataset
from kubothek.api.merge import MergeClause
from kubothek.api.meta import Resource
from kubothek.api.query import Query


def wrong_statements(resource: Resource, dataset: Dataset | None = None) -> Iterator[tuple[str, str]]:
    """Yield the path of each statement that does not parse, and why. Libraries are imported if there is one.

    ``dataset``  that a Commit changes, if it is known: a merge names only columns of its ``table.schema``
    """
    if isinstance(resource, Query) and resource.spec.sql is not None:
        if (wrong := _wrong_sql(resource.spec.sql)) is not None:
            yield "spec.sql", wrong
        return
    filters: dict[str, str | None] = {}
    if isinstance(resource, Commit):
        source = resource.spec.source
        if source is not None and source.sql is not None and (wrong := _wrong_sql(source.sql)) is not None:
            yield "spec.source.sql", wrong
        if resource.spec.operation == "Merge":
            yield from _wrong_clauses(resource, dataset)
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


def _wrong_clauses(commit: Commit, dataset: Dataset | None) -> Iterator[tuple[str, str]]:
    """Check the clauses of a merge. Columns are those of the declared schemas, which tables cannot exceed."""
    spec = commit.spec
    declared = dataset.spec.table.columns if dataset is not None else None
    table = [column.name for column in declared] if declared else None
    read = spec.source.columns if spec.source is not None else None
    source = [column.name for column in read] if read else None
    for column in spec.key or ():
        for side, known in (("source", source), ("table", table)):
            if known is not None and column not in known:
                yield "spec.key", f"FilterInvalid: no column {column!r} in the {side}; it has {', '.join(known)}"
    both = {"source": source, "target": table}
    kinds: Sequence[tuple[str, Sequence[MergeClause] | None, Mapping[str, Sequence[str] | None]]] = (
        ("whenMatched", spec.when_matched, both),
        ("whenNotMatched", spec.when_not_matched, {"source": source}),
        ("whenNotMatchedBySource", spec.when_not_matched_by_source, {"target": table}),
    )
    for kind, clauses, columns in kinds:
        for number, clause in enumerate(clauses or ()):
            for path, wrong in _wrong_clause(clause, columns, table):
                yield f"spec.{kind}[{number}].{path}", wrong


def _wrong_clause(
    clause: MergeClause, columns: Mapping[str, Sequence[str] | None], table: Sequence[str] | None
) -> Iterator[tuple[str, str]]:
    from kubothek.errors import FilterInvalid
    from kubothek.table.expressions.computed import check_expression

    texts = {"where": clause.where} if clause.where is not None else {}
    for column, text in (clause.new_values or {}).items():
        texts[f"set.{column}"] = text
        if table is not None and column not in table:
            yield f"set.{column}", f"FilterInvalid: no column {column!r} in the table; it has {', '.join(table)}"
    for path, text in texts.items():
        try:
            check_expression(text, columns)
        except FilterInvalid as error:
            yield path, f"FilterInvalid: {_on_one_line(str(error))}"


def _on_one_line(text: str) -> str:
    """Return the message without the statement, which DuckDB repeats below it."""
    head, _, rest = text.partition("\n\nLINE ")
    line = rest.partition(":")[0]
    return " ".join(head.split()) + (f" (line {line} of the statement)" if line.isdigit() else "")
