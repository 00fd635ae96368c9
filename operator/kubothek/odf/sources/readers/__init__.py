"""Read steps: files of seven formats, SQL over their rows, and the system columns of a ledger."""

from __future__ import annotations

from kubothek.odf.sources.readers.content import Content, FileContent
from kubothek.odf.sources.readers.ddl import parse_ddl
from kubothek.odf.sources.readers.normalise import Normalised, latest_event_time, normalise
from kubothek.odf.sources.readers.preprocess import preprocess
from kubothek.odf.sources.readers.read import read

__all__ = [
    "Content",
    "FileContent",
    "Normalised",
    "latest_event_time",
    "normalise",
    "parse_ddl",
    "preprocess",
    "read",
]
