"""Separate good files from bad ones, by trial instead of by the text of errors.

A batch that loads is good. One that fails is halved until a single failing file is left: the bad one. A batch of n
files with one bad file thus costs about twice its size, whatever the error and wherever it occurred.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from kubothek.errors import (
    FilterInvalid,
    FilterMatchesAll,
    IndexInvalid,
    InputError,
    LakeError,
    LayoutInvalid,
    ObjectNotFound,
    SourceEmpty,
)
from kubothek.ingest.watch.attempts import Attempts
from kubothek.ingest.watch.landing import Landed
from kubothek.ingest.watch.terms import Loader, Refusal
from kubothek.storage import Store
from kubothek.table.log import Snapshot
from kubothek.table.operations import Written
from kubothek.table.schema import merge
from kubothek.table.time_zones import zones_after, zones_of

_AT_ONCE: Final = 16
_NO_FILES_FAULT: Final = (FilterInvalid, FilterMatchesAll, IndexInvalid, LayoutInvalid)
"""Errors of the Dataset's or the source's settings: they would send every file into quarantine."""


@dataclass(slots=True)
class Sorted:
    """The result for a batch: ``good`` files, whose rows were ``written``, and ``bad`` ones.

    A file in neither list has changed or is missing, or follows a bad one that ended the sorting. ``schema`` is the
    stored schema after the batch, ``zones`` those of its columns.
    """

    schema: pa.Schema | None
    zones: Mapping[str, str]
    good: list[Landed] = field(default_factory=list)
    bad: list[Refusal] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)


class Sorter:
    """Loader of one batch of files for one snapshot. ``go_on``: continue past bad files; else the first one ends it."""

    def __init__(
        self, loader: Loader, landed_in: Store, snapshot: Snapshot, attempts: Attempts, *, go_on: bool
    ) -> None:
        self._loader = loader
        self._landed_in = landed_in
        self._snapshot = snapshot
        self._attempts = attempts
        self._go_on = go_on
        self.result = Sorted(snapshot.schema, zones_of(snapshot.head.metadata))

    def sort(self, files: Sequence[Landed]) -> None:
        """Load these files, in order, into the result. Raises errors that are independent of single files.

        Files on which jobs died are loaded in small groups, or refused.
        """
        for some in self._attempts.divided(files):
            if self.result.bad and not self._go_on:
                return
            if (refusal := self._attempts.unreadable(some[0], self._snapshot.version)) is not None:
                self.result.bad.append(refusal)
            else:
                self._load(some)

    def _load(self, files: Sequence[Landed]) -> None:
        while files:
            done = self._try(files)
            intact = self.intact(files)
            if len(intact) < len(files):
                files = intact  # what was read may mix two versions: load the remaining files again
                continue
            if isinstance(done, LakeError):
                self._divide(files, done)
            else:
                self._accept(files, done)
            return

    def _try(self, files: Sequence[Landed]) -> Written | LakeError:
        try:
            with self._attempts.reading(files):
                return self._loader.load(self._snapshot, files, self.result.schema, self.result.zones)
        except LakeError as error:
            return error

    def _divide(self, files: Sequence[Landed], error: LakeError) -> None:
        if not isinstance(error, InputError) or error.transient or isinstance(error, _NO_FILES_FAULT):
            raise error
        if len(files) > 1:
            middle = len(files) // 2
            self._load(files[:middle])
            if self._go_on or not self.result.bad:
                self._load(files[middle:])
        elif isinstance(error, SourceEmpty):
            self.result.good.extend(files)
        else:
            file, version = files[0], self._snapshot.version
            self.result.bad.append(Refusal(file.key, file.etag, error.reason, str(error), version))

    def _accept(self, files: Sequence[Landed], written: Written) -> None:
        known = self.result.schema
        self.result.zones = zones_after(known, self.result.zones, written.zones)
        self.result.schema = written.schema if known is None else merge(known, written.schema, evolve=written.evolves)
        self.result.good.extend(files)
        self.result.written.append(written)

    def intact(self, files: Sequence[Landed]) -> list[Landed]:
        """Return the files that still have the listed version."""

        def is_intact(file: Landed) -> bool:
            try:
                return self._landed_in.stat(file.key).etag == file.etag
            except ObjectNotFound:
                return False

        with ThreadPoolExecutor(min(_AT_ONCE, len(files)), thread_name_prefix="intake") as pool:
            return [file for file, holds in zip(files, pool.map(is_intact, files), strict=True) if holds]
