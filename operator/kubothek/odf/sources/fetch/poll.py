"""One poll of a source: fetch, prepare, read, preprocess (IN-03)."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from kubothek.errors import InputError
from kubothek.odf.sources.fetch.containers import fetch_from_container
from kubothek.odf.sources.fetch.context import FetchContext, Fetched, File, UpToDate
from kubothek.odf.sources.fetch.globs import fetch_next
from kubothek.odf.sources.fetch.prepare import prepare
from kubothek.odf.sources.fetch.templates import Templates
from kubothek.odf.sources.fetch.urls import fetch_url
from kubothek.odf.sources.readers.content import ObjectContent
from kubothek.odf.sources.readers.preprocess import preprocess
from kubothek.odf.sources.readers.read import read
from kubothek.odf.spec.events import SetPollingSource, SourceState
from kubothek.odf.spec.sources import FetchStep, FetchStepContainer, FetchStepFilesGlob, FetchStepUrl


def poll(source: SetPollingSource, state: SourceState | None, context: FetchContext) -> Fetched | UpToDate:
    """What the source has that it had not when it left ``state``: one file of it.

    Nothing is kept but temporary files without names. The rows are read as their stream is, so it raises as well, and
    only its end says that the file is sound. Raises SourceRefused, SourceNotFound, SourceUnavailable, SourceChanged,
    SourceFailed, SourceCorrupt, DataTypeMismatch, SchemaMismatch, QueryInvalid, FormatInvalid, StoreError; and
    InputError for steps that do not go together, variables that nobody gives, and what later versions have.
    """
    templates = Templates(context.env)
    with templates.hidden():
        file = _fetched(source.fetch, state, context, templates)
        if isinstance(file, UpToDate):
            return file
        content = prepare(source.prepare or (), file.content, context)
        rows = read(source.read, content, context.policy.max_bytes)
        if rows is not None:
            rows = _hidden(preprocess(source.preprocess, rows, context.limits), templates)
    return Fetched(
        name=templates.without_values(content.name),
        rows=rows,
        state=file.state,
        event_time=file.event_time,
        has_more=file.has_more,
        stored=content if isinstance(content, ObjectContent) else None,
    )


def _fetched(
    step: FetchStep, state: SourceState | None, context: FetchContext, templates: Templates
) -> File | UpToDate:
    match step:
        case FetchStepUrl():
            return fetch_url(step, state, context, templates)
        case FetchStepFilesGlob():
            return fetch_next(step, state, context)
        case FetchStepContainer():
            return fetch_from_container(step, state, context, templates)
    raise InputError("the fetch step is of a later version of Open Data Fabric: it cannot be used here")


def _hidden(rows: pa.RecordBatchReader, templates: Templates) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        with templates.hidden():
            yield from rows

    return pa.RecordBatchReader.from_batches(rows.schema, batches())
