"""Ingestion of CSV, JSON lines and Parquet from a store or from URLs, in splits and in bounded memory."""

from __future__ import annotations

from kubothek.ingest.fetch.policy import UrlPolicy
from kubothek.ingest.model import Compression, CsvOptions, Format, Source, SourceFile, SourcePlan, Split
from kubothek.ingest.reader import SourceReader
from kubothek.ingest.write import Ingest, decide_schemas, ingest_here, require_rows

__all__ = [
    "Compression",
    "CsvOptions",
    "Format",
    "Ingest",
    "Source",
    "SourceFile",
    "SourcePlan",
    "SourceReader",
    "Split",
    "UrlPolicy",
    "decide_schemas",
    "ingest_here",
    "require_rows",
]
