"""Skipping metadata: what each data file holds, in the form that Xskipper reads and writes.

An index says of a column, file by file, what values there are: bounds, all of them, a filter that knows them. A row of
metadata stands for one data file. Files of metadata are immutable; a head names those that are its
(:class:`~kubothek.table.skipping.model.SkippingState`), a commit adds one for its new files, and merging keeps them
few.

Real Xskipper reads the same files, all that lie in :func:`~kubothek.table.skipping.names.location`, as an
``EXPLICIT_LOCATION``. It knows no heads: until superseded files are collected it sees some rows twice, and rows of data
files that are gone, neither of which changes what it skips of the others (seen with Xskipper 1.7).

The format is Xskipper's specification version 4; versions 1 to 3 are read too.
"""

from __future__ import annotations

from kubothek.table.skipping.bloom import index_type as index_type  # with kinds, registers Xskipper's index types
from kubothek.table.skipping.extensions import types as types  # and ours
