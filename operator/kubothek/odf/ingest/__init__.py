"""Ingestion into a root dataset: from its polling source, and from files for its push sources.

polled = poll_source(root, FetchContext(policy=UrlPolicy(("example.org",)), now=now))
pushed = push_files(root, [FileContent.of_path(Path("planes.csv"))], "default")
"""

from __future__ import annotations

from kubothek.odf.ingest.polling import Polled, poll_source
from kubothek.odf.ingest.pushing import InputFormat, push_files, push_source, step_for
from kubothek.odf.ingest.wanted import missing

__all__ = ["InputFormat", "Polled", "missing", "poll_source", "push_files", "push_source", "step_for"]
