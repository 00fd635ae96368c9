"""Rows from outside: CSV, JSON lines and Parquet, from a store or from URLs, read in splits and in bounded
memory.
"""

from __future__ import annotations

from kubothek.lake.sources.ingest import Ingest, decide_schemas, ingest_here
from kubothek.lake.sources.model import Compression, CsvOptions, Format, Source, SourceFile, SourcePlan, Split
from kubothek.lake.sources.policy import UrlPolicy
from kubothek.lake.sources.reader import SourceReader

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
]
