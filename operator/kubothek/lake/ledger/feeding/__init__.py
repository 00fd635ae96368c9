"""What comes into a ledger: its polling source read to the end, and files that are handed to its push sources.

polled = poll_source(root, FetchContext(policy=UrlPolicy(("example.org",)), now=now))
pushed = push_files(root, [FileContent.of_path(Path("planes.csv"))], "default")
"""

from __future__ import annotations

from kubothek.lake.ledger.feeding.polling import Polled, poll_source
from kubothek.lake.ledger.feeding.pushing import InputFormat, push_files, push_source, step_for
from kubothek.lake.ledger.feeding.wanted import missing

__all__ = ["InputFormat", "Polled", "missing", "poll_source", "push_files", "push_source", "step_for"]
