"""Reading what a source gives: files of seven formats, SQL over their rows, and the columns that every ledger has."""

from __future__ import annotations

from kubothek.lake.ledger.readers.content import Content, FileContent
from kubothek.lake.ledger.readers.ddl import parse_ddl
from kubothek.lake.ledger.readers.normalise import Normalised, latest_event_time, normalise
from kubothek.lake.ledger.readers.preprocess import preprocess
from kubothek.lake.ledger.readers.read import read

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
