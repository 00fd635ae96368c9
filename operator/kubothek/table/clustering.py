"""Clustering: an order of rows across the files of a partition, so that a filter on its columns opens few files.

Files that were ordered together are a *run*: each holds a range of the order, so its value ranges are narrow. A file's
name states its run and its clustering: the columns, and whether rows are sorted by them or follow the Z-curve
(:mod:`kubothek.table.maintenance.rewriting`). The names alone thus show which files are clustered already. Other
writers write names without these marks.
"""

from __future__ import annotations

import json
import uuid as uuids
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import LayoutInvalid
from kubothek.table.layout import check_columns

MAX_CURVE_COLUMNS: Final = 8
"""With more columns, none of their ranges would be narrow."""


@dataclass(frozen=True)
class Clustering:
    """The columns by which rows are ordered. With one column, both orders are equally good.

    ``by``     the columns; without ``curve`` the first one first, as in a table's ``sort_by``: nulls last
    ``curve``  whether rows follow the Z-curve of all columns, which keeps the range of each column narrow
    """

    by: tuple[str, ...]
    curve: bool = False

    def check(self, schema: pa.Schema, partition_on: tuple[str, ...]) -> None:
        """Raise LayoutInvalid unless a table of this stored schema can be clustered so."""
        if not self.by or (self.curve and len(self.by) > MAX_CURVE_COLUMNS):
            raise LayoutInvalid(f"{self._field} names {len(self.by)} columns; name 1 to {MAX_CURVE_COLUMNS}")
        check_columns(self._field, self.by, schema, partition_on)

    def new_mark(self) -> str:
        """Return the mark for the names of all files of a new run."""
        return f"-{self._fingerprint}-{uuids.uuid4().hex[:12]}"

    def read(self, labels: pa.StringArray) -> pa.Array[Any]:
        """Return the run of each file by its label; null for a file that does not have this clustering."""
        found = pc.extract_regex(labels, f"-{self._fingerprint}-(?P<run>[0-9a-f]{{12}})(?:-[0-9a-f]{{12}}-[0-9]+)?$")
        runs: pa.Array[Any] = pc.struct_field(found, "run")
        return runs

    @property
    def _field(self) -> str:
        return "zOrderBy" if self.curve else "sortBy"

    @cached_property
    def _fingerprint(self) -> str:
        facts = {self._field: list(self.by)}
        return sha256(json.dumps(facts, separators=(",", ":")).encode()).hexdigest()[:12]
