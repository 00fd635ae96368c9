"""The rules of the events that define a dataset: sources, transformations, vocabulary, schema, attachments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from kubothek.errors import FormatInvalid, UnsupportedVersion
from kubothek.odf.problems import Doubt, Problem, Severity
from kubothek.odf.spec.arrow_schema import decode_schema
from kubothek.odf.spec.events import (
    AddPushSource,
    AttachmentsEmbedded,
    DisablePollingSource,
    DisablePushSource,
    SetAttachments,
    SetDataSchema,
    SetPollingSource,
    SetTransform,
    SetVocab,
)
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.logical_types import columns_of, logical_type
from kubothek.odf.spec.object_links import column_faults, listed_links
from kubothek.odf.spec.sources import (
    MergeStrategy,
    SqlQueryStep,
    Transform,
    TransformSql,
)
from kubothek.odf.spec.unknown import Unknown
from kubothek.odf.validation.columns import column_problems
from kubothek.odf.validation.row_checks import KEY_RULES, Keyed
from kubothek.odf.validation.state import ChainState, Vocabulary


def polling_source(state: ChainState, event: SetPollingSource) -> Iterator[Problem]:
    """Yield the problems of SetPollingSource; it may replace an earlier one (SP-04)."""
    if state.push_sources:
        names = ", ".join(state.push_sources)
        message = f"a polling source beside the active push sources {names}"
        yield Problem("SourceMix", "SP-02", message, depends=Doubt.SOURCES)
    yield from _queries(event.preprocess, "preprocess")
    yield from _merge(event.merge)


def push_source(state: ChainState, event: AddPushSource) -> Iterator[Problem]:
    """Yield the problems of AddPushSource; it may replace one of the same name."""
    if state.polling_source:
        message = f"push source {event.source_name!r} beside an active polling source"
        yield Problem("SourceMix", "SP-02", message, depends=Doubt.SOURCES)
    if not isinstance(event.read, Unknown) and event.read.ddl_schema is None and event.read.schema is None:
        message = f"push source {event.source_name!r} reads without a schema, which older readers refuse"
        yield Problem("PushSchema", "PS-03", message, Severity.NOTE)
    yield from _queries(event.preprocess, "preprocess")
    yield from _merge(event.merge)


def disable_polling_source(state: ChainState, _: DisablePollingSource) -> Iterator[Problem]:
    """Yield the problems of DisablePollingSource."""
    if not state.polling_source:
        message = "there is no polling source to disable"
        yield Problem("SourceDisable", "SP-03", message, depends=Doubt.SOURCES)


def disable_push_source(state: ChainState, event: DisablePushSource) -> Iterator[Problem]:
    """Yield the problems of DisablePushSource."""
    if event.source_name not in state.push_sources:
        active = ", ".join(state.push_sources) or "none"
        message = f"there is no push source {event.source_name!r}; active are: {active}"
        yield Problem("SourceDisable", "PS-04", message, depends=Doubt.SOURCES)


def transform(_: ChainState, event: SetTransform) -> Iterator[Problem]:
    """Yield the problems of SetTransform."""
    if not event.inputs:
        yield Problem("TransformInputs", "ST-01", "a transformation needs an input")
    for each in event.inputs:
        try:
            DatasetId.parse(each.dataset_ref)
        except FormatInvalid:
            yield Problem(
                "TransformInputs", "ST-02", f"input {each.dataset_ref!r} is no dataset id; a chain names no other"
            )
        if each.alias is None:
            yield Problem("TransformInputs", "ST-02", f"input {each.dataset_ref!r} has no alias")
    references = (each.dataset_ref for each in event.inputs)
    aliases = (each.alias for each in event.inputs if each.alias is not None)
    for name, count in (*Counter(references).items(), *Counter(aliases).items()):
        if count > 1:
            yield Problem("TransformInputs", "ST-05", f"input {name!r} comes {count} times", Severity.REFUSED)
    yield from _queries(event.transform, "transform")


def _queries(sql: Transform | None, where: str) -> Iterator[Problem]:
    if not isinstance(sql, TransformSql):
        return
    if sql.query is not None:
        yield Problem("TransformQuery", "ST-03", f"{where} has query; a chain holds queries only")
    elif not sql.queries:
        yield Problem("TransformQuery", "ST-03", f"{where} has no query")
    else:
        yield from _steps(sql.queries, where)


def _steps(queries: Sequence[SqlQueryStep], where: str) -> Iterator[Problem]:
    if queries[-1].alias is not None:
        yield Problem("TransformQuery", "ST-03", f"{where}: the last query is the output and has no alias")
    if any(step.alias is None for step in queries[:-1]):
        yield Problem("TransformQuery", "ST-03", f"{where}: a query before the last is a view and needs an alias")


def _merge(strategy: MergeStrategy) -> Iterator[Problem]:
    if isinstance(strategy, Keyed):
        key = strategy.primary_key
        if not key or len(set(key)) < len(key):
            yield Problem(
                "PrimaryKey", KEY_RULES[type(strategy)], f"the primary key {list(key)} must name columns, each once"
            )


def vocabulary(state: ChainState, event: SetVocab) -> Iterator[Problem]:
    """Yield the problems of SetVocab."""
    names = Vocabulary.of(event).names
    if len(set(names)) < len(names):
        yield Problem("Vocabulary", "SV-02", f"two of the common columns have one name: {', '.join(names)}")
    if state.schema is not None and (missing := [name for name in names if name not in state.schema.names]):
        yield Problem("Vocabulary", "SV-02", f"the schema has no column {missing[0]!r}", depends=Doubt.SCHEMA)


def attachments(_: ChainState, event: SetAttachments) -> Iterator[Problem]:
    """Yield the problems of SetAttachments: unpacking must not write outside of its directory."""
    items = event.attachments.items if isinstance(event.attachments, AttachmentsEmbedded) else ()
    for item in items:
        parts = item.path.split("/")
        if (
            PurePosixPath(item.path).is_absolute()
            or {"..", ".", ""} & set(parts)
            or "\\" in item.path
            or "\0" in item.path
        ):
            yield Problem("AttachmentPath", "SA-01", f"attachment {item.path!r} must be a relative path without '..'")
    for path, count in Counter(item.path for item in items).items():
        if count > 1:
            yield Problem("AttachmentPath", "SA-01", f"attachment {path!r} comes {count} times")


def data_schema(state: ChainState, event: SetDataSchema) -> Iterator[Problem]:
    """Yield the problems of SetDataSchema: of common columns, and of changes other than new columns (EVO-01)."""
    try:
        schema = columns_of(event)
        raw = schema if event.raw_arrow_schema is None else decode_schema(event.raw_arrow_schema)
    except FormatInvalid as error:
        yield Problem("SchemaBytes", "SD-01", str(error))
        return
    except UnsupportedVersion as error:
        yield Problem("UnknownSchema", "EV-01", f"not checked: {error}", Severity.NOTE)
        return
    if event.schema is not None and not _alike(raw, schema):
        message = "its ODF schema and its Arrow schema have other columns or types"
        yield Problem("SchemaForms", "OS-02", message, Severity.REFUSED)
    yield from column_problems(schema, state.vocabulary)
    for column, fault in column_faults(event.schema) if event.schema is not None else ():
        yield Problem("LinkType", "OL-01", fault, Severity.REFUSED, column=column)
    for column in listed_links(event.schema):
        message = "its lists or maps have links to objects, which are neither checked nor transferred"
        yield Problem("LinkedObjectUnchecked", "OL-01", message, Severity.NOTE, column=column)
    if state.schema is not None:
        for each in _evolution(state, event, state.schema, schema):
            yield replace(each, depends=Doubt.SCHEMA)


def _alike(one: pa.Schema, other: pa.Schema) -> bool:
    return one.names == other.names and all(
        logical_type(field, options=False) == logical_type(two, options=False)
        for field, two in zip(one, other, strict=True)
    )


def _evolution(state: ChainState, event: SetDataSchema, before: pa.Schema, after: pa.Schema) -> Iterator[Problem]:
    was_odf = state.data_schema is not None and state.data_schema.schema is not None
    is_odf = event.schema is not None
    for field in before:
        if field.name not in after.names:
            yield Problem("SchemaEvolution", "EVO-01", "the column is removed", column=field.name)
        elif after.names.count(field.name) == 1:
            new = after.field(field.name)
            if _changes(field, new, logically=was_odf or is_odf):
                message = f"the column's type goes from {field.type} to {new.type}"
                yield Problem("SchemaEvolution", "EVO-01", message, column=field.name)
            elif was_odf and is_odf and logical_type(field) != logical_type(new):
                message = "the column, or a value within it, goes from optional to required or back"
                yield Problem("SchemaOption", "OS-03", message, Severity.REFUSED, column=field.name)
    for field in after:
        if field.name not in before.names and not field.nullable:
            message = "the column is added and cannot be null, but earlier records have none"
            yield Problem("SchemaEvolution", "EVO-02", message, Severity.REFUSED, column=field.name)


def _changes(before: pa.Field[Any], after: pa.Field[Any], *, logically: bool) -> bool:
    """Return whether a type changes: in Arrow's terms, or once an ODF schema is there, in those of logical types."""
    if before.type == after.type:
        return False
    return not logically or logical_type(before, options=False) != logical_type(after, options=False)
