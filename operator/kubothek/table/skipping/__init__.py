"""Skipping metadata: what each data file holds, in the form that Xskipper reads and writes.

An index describes a column of each data file: its bounds, all its values, or a filter over them. A row of metadata
describes one data file. Metadata files are immutable. A head names its metadata files
(:class:`~kubothek.table.skipping.model.SkippingState`), a commit adds one for its new data files, and merges keep their
number small.

Real Xskipper reads all files in :func:`~kubothek.table.skipping.names.location`, as an ``EXPLICIT_LOCATION``. It does
not know heads: until superseded files are collected, it sees some rows twice, and rows of deleted data files. Neither
changes which other files it skips (verified with Xskipper 1.7).

The format is Xskipper's specification version 4; versions 1 to 3 can be read.
"""

from __future__ import annotations

from kubothek.table.skipping.bloom import index_type as index_type  # with kinds, registers Xskipper's index types
from kubothek.table.skipping.extensions import types as types  # registers Kubothek's own
