"""A plain location for queries: its files, listed now, and the files that a filter selects."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from kubothek.errors import DatasetNotFound, SkippingUnreadable
from kubothek.external import state
from kubothek.external.files import PlainTable, keys_of
from kubothek.external.matching import Matched, by_path_and_time, matched, versions_listed
from kubothek.storage import Store
from kubothek.table.expressions import TRUE, Predicate
from kubothek.table.scan.plan import SKIPPING_STEP, Step
from kubothek.table.scan.pruner import PathColumn, PathColumns, by_partition
from kubothek.table.skipping.files.reading import load_location
from kubothek.table.skipping.prune.aggregate import Skipped


@dataclass(frozen=True, slots=True)
class PlainPlan:
    """The files to open. ``steps``: the number of files after each step of planning; the first counts all."""

    keys: tuple[str, ...]
    steps: tuple[Step, ...]


class PlainLocation:
    """Files of a store with their metadata. They are listed once."""

    def __init__(self, files: Store, table: PlainTable, listed: pa.Table, known: Matched) -> None:
        self._files = files
        self.table = table
        self._listed = listed
        self.known = known

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return self.table.schema

    def plan(self, where: Predicate | None = None) -> PlainPlan:
        """Return the files that may hold rows for which ``where`` is TRUE; None = all. Raises FilterInvalid."""
        bound = (TRUE if where is None else where).bind(self.schema)
        all_files = len(self._keys)
        by_path, may = np.zeros(all_files, np.bool_), np.zeros(all_files, np.bool_)
        for terms in bound.conjunctions:
            asked = any(term.column in self.table.partitions for term in terms)
            branch = by_partition(terms, self._partitions if asked else {}, np.ones(all_files, np.bool_))
            by_path |= branch
            if branch.any():
                may |= branch & self.known.may(terms)
        steps = (
            Step("files", all_files),
            Step("partition keys", int(by_path.sum())),
            Step(SKIPPING_STEP, int(may.sum())),
        )
        return PlainPlan(tuple(self._keys[number] for number in np.flatnonzero(may)), steps)

    def skipped(self, where: Predicate, plan: PlainPlan) -> Skipped:
        """Return the savings of a plan for ``where``, in the terms of Xskipper's API."""
        bytes_of: Any = self._listed.column("size").to_pylist()
        asked = {column.lower() for column in where.columns}
        sizes = dict(zip(self._keys, bytes_of, strict=True))
        return Skipped.of(plan.keys, sizes, is_skippable=bool(asked & self.known.columns))

    def dataset(self, plan: PlainPlan) -> ds.FileSystemDataset:
        """Return the rows of these files, without filtering them."""
        return self.table.dataset(self._files, plan.keys)

    @cached_property
    def _keys(self) -> list[str]:
        return keys_of(self._listed)

    @cached_property
    def _partitions(self) -> PathColumns:
        """The partition columns; parsed once for each directory."""
        numbers: dict[str, int] = {}
        parsed: list[dict[str, Any]] = []
        codes = np.empty(len(self._keys), np.int32)
        for at, key in enumerate(self._keys):
            directory = key.rpartition("/")[0]
            if directory not in numbers:
                numbers[directory] = len(parsed)
                parsed.append(self.table.partition_of(key))
            codes[at] = numbers[directory]
        return {
            name: PathColumn(codes, pa.array([values[name] for values in parsed], self.schema.field(name).type))
            for name in self.table.partitions
        }


def open_location(metadata: Store, name: str, files: Store | None = None) -> PlainLocation:
    """Return a location by the name of its metadata; ``files``: store of the files, by default that of the metadata.

    Raises DatasetNotFound if there is no metadata of this name, SkippingUnreadable if its index object is damaged, and
    the errors of the listing.
    """
    full = state.resolved(metadata, name)
    index = None if full is None else state.read(metadata, full).index
    if index is None or full is None:
        raise DatasetNotFound(f"there is no skipping metadata {name!r} in {metadata.url}")
    if files is None:
        if index.url != metadata.url:
            raise SkippingUnreadable(f"the files of {name!r} are in {index.url}, not in {metadata.url} beside it")
        files = metadata
    listed = index.table.files.listed(files)
    return PlainLocation(files, index.table, listed, matched(metadata, full, index, versions_listed(listed)))


def with_metadata_of_xskipper(files: Store, table: PlainTable, metadata: Store, prefix: str) -> PlainLocation:
    """Return a location with the metadata in any directory that real Xskipper wrote. Raises SkippingUnreadable."""
    listed = table.files.listed(files)
    known = by_path_and_time(load_location(metadata, prefix), files.url, versions_listed(listed))
    return PlainLocation(files, table, listed, known)
