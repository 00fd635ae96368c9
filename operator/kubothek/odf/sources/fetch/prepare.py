"""The prepare steps: what is done with a file before it is read (PR-01, PR-02)."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import cast

import pyarrow as pa

from kubothek.errors import InputError, SourceRefused
from kubothek.ingest.model import UNPACKING
from kubothek.ingest.readers.decoding import decoding
from kubothek.odf.sources.fetch.context import FetchContext
from kubothek.odf.sources.fetch.processes import piped
from kubothek.odf.sources.readers.archives import members, opened_member, the_one
from kubothek.odf.sources.readers.content import Content, DerivedContent
from kubothek.odf.sources.readers.filters import Filtered, blocks_of
from kubothek.odf.spec.sources import CompressionFormat, PrepStep, PrepStepDecompress, PrepStepPipe


def prepare(steps: Sequence[PrepStep], content: Content, context: FetchContext) -> Content:
    """What the steps make of a file, one after the other.

    What is decompressed is so as it is read. Raises SourceRefused, SourceFailed, SourceCorrupt, SourceNotFound.
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
    """The stream; damage in it becomes SourceCorrupt, and too much of it SourceRefused."""

    def checked() -> Iterator[bytes]:
        unpacked = 0
        with decoding(name, f"{kind} file", "upload it again or correct prepare"):
            for block in blocks_of(stream):
                unpacked += len(block)
                UNPACKING.check(name, unpacked, source.tell())
                yield block

    return io.BufferedReader(Filtered(source, checked()))
