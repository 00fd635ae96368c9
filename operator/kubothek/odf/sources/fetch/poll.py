"""One poll of a source: fetch, prepare, read, preprocess (IN-03)."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import cast

import pyarrow as pa

from kubothek.errors import InputError, SourceRefused
from kubothek.ingest.model import UNPACKING
from kubothek.ingest.readers.decoding import decoding
from kubothek.odf.sources.fetch.containers import fetch_from_container
from kubothek.odf.sources.fetch.context import FetchContext, Fetched, File, UpToDate
from kubothek.odf.sources.fetch.globs import fetch_next
from kubothek.odf.sources.fetch.mqtt import fetch_messages
from kubothek.odf.sources.fetch.processes import piped
from kubothek.odf.sources.fetch.templates import Templates
from kubothek.odf.sources.fetch.urls import fetch_url
from kubothek.odf.sources.readers.archives import members, opened_member, the_one
from kubothek.odf.sources.readers.content import Content, DerivedContent, ObjectContent
from kubothek.odf.sources.readers.filters import Filtered, blocks_of
from kubothek.odf.sources.readers.preprocess import preprocess
from kubothek.odf.sources.readers.read import read
from kubothek.odf.spec.events import SetPollingSource, SourceState
from kubothek.odf.spec.sources import (
    CompressionFormat,
    FetchStep,
    FetchStepContainer,
    FetchStepEthereumLogs,
    FetchStepFilesGlob,
    FetchStepMqtt,
    FetchStepUrl,
    PrepStep,
    PrepStepDecompress,
    PrepStepPipe,
)


def poll(source: SetPollingSource, state: SourceState | None, context: FetchContext) -> Fetched | UpToDate:
    """Return the next file that is new since ``state``.

    It stores nothing except temporary files without names. Rows are read lazily: the stream raises the same errors, and
    only its end proves the file sound. Raises SourceRefused, SourceNotFound, SourceUnavailable, SourceChanged,
    SourceFailed, SourceCorrupt, DataTypeMismatch, SchemaMismatch, QueryInvalid, FormatInvalid, StoreError; and
    InputError for incompatible steps, undefined variables, and features of later versions.
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
        acknowledge=file.acknowledge,
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
        case FetchStepMqtt():
            return fetch_messages(step, state, context, templates)
        case FetchStepEthereumLogs():
            raise InputError(
                "fetch: EthereumLogs cannot be ingested, as Kubothek reads no Ethereum node: write the logs to files "
                "or to MQTT with another program, and fetch those; the chain itself can be read, verified and exchanged"
            )
    raise InputError("the fetch step is of a later version of Open Data Fabric: it cannot be used here")


def _hidden(rows: pa.RecordBatchReader, templates: Templates) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        with templates.hidden():
            yield from rows

    return pa.RecordBatchReader.from_batches(rows.schema, batches())


# The prepare steps: applied to a file before the read step (PR-01, PR-02).


def prepare(steps: Sequence[PrepStep], content: Content, context: FetchContext) -> Content:
    """Return the file after all steps, applied in order.

    Decompression is lazy. Raises SourceRefused, SourceFailed, SourceCorrupt, SourceNotFound.
    """
    for step in steps:
        match step:
            case PrepStepDecompress(format=CompressionFormat.GZIP):
                content = _gunzipped(content, step, context.policy.max_bytes)
            case PrepStepDecompress():
                content = _unzipped(content, step.sub_path, context.policy.max_bytes)
            case PrepStepPipe():
                if not context.allow_commands:
                    raise SourceRefused(f"prepare: command {step.command!r}: commands are not allowed here")
                if not step.command:
                    raise InputError("prepare: Pipe has no command")
                content = piped(step.command, content, context.policy.max_bytes)
            case _:
                raise InputError("a prepare step is of a later version of Open Data Fabric: it cannot be run here")
    return content


def _gunzipped(content: Content, step: PrepStepDecompress, limit: int) -> Content:
    if step.sub_path is not None:
        raise InputError("prepare: Gzip holds one file only; subPath is for Zip")
    if content.is_empty():
        return content

    def opened() -> io.BufferedIOBase:
        source = content.open()
        stream = pa.CompressedInputStream(pa.PythonFile(source, mode="r"), "gzip")
        return _guarded(content.name, "Gzip", source, cast("io.BufferedIOBase", stream))

    return DerivedContent(content.name, opened, limit)


def _unzipped(content: Content, sub_path: str | None, limit: int) -> Content:
    if content.is_empty():
        return content
    with content.file() as file:
        names = members(content.name, file)
    if sub_path is None and names:
        member = names[0]
    else:
        member = the_one(content.name, names, sub_path, "prepare.subPath", "file")

    def opened() -> io.BufferedIOBase:
        file = content.file()
        return _guarded(content.name, "Zip", file, opened_member(content.name, file, member))

    return DerivedContent(f"{content.name}/{member}", opened, limit)


def _guarded(name: str, kind: str, source: io.IOBase, stream: io.BufferedIOBase) -> io.BufferedIOBase:
    """Return the stream with its errors mapped: SourceCorrupt for damage, SourceRefused beyond the size limits."""

    def checked() -> Iterator[bytes]:
        unpacked = 0
        with decoding(name, f"{kind} file", "upload it again or correct prepare"):
            for block in blocks_of(stream):
                unpacked += len(block)
                UNPACKING.check(name, unpacked, source.tell())
                yield block

    return io.BufferedReader(Filtered(source, checked()))
