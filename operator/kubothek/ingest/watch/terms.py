"""The parameters of a round: the settings of a source, and how its files become rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from kubothek.ingest.watch.landing import Landed, Landing
from kubothek.table.log import Change, Snapshot
from kubothek.table.operations import Written


@dataclass(frozen=True, slots=True)
class Refusal:
    """A file version that cannot be ingested, with reason and message of its error.

    ``version`` is the table version for which it was read.
    """

    key: str
    etag: str
    reason: str
    message: str
    version: int

    def is_of(self, file: Landed) -> bool:
        """Return whether it concerns this version of a file."""
        return (self.key, self.etag) == (file.key, file.etag)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The settings of a source.

    ``reading``     digest of everything that decides whether a file can be read: format, columns …
    ``max_files``   of one batch, ``max_bytes`` likewise
    ``quarantine``  whether a file that cannot be read is passed over; if not, it and everything younger waits
    ``deadline``    seconds after which the job that asks is stopped; None: it has no deadline
    ``stalled``     the file at which the last round stopped, if it would be read in the same way now
    """

    source: str
    landing: Landing
    reading: str
    max_files: int
    max_bytes: int
    quarantine: bool = False
    deadline: float | None = None
    stalled: Refusal | None = None


class Loader(Protocol):
    """Conversion of landed files into data files, and of these into a change."""

    def check(self, snapshot: Snapshot) -> None:
        """Raise InputError for settings that are invalid for any file."""

    def load(
        self, snapshot: Snapshot, files: Sequence[Landed], schema: pa.Schema | None, zones: Mapping[str, str]
    ) -> Written:
        """Write the rows of these versions of files as new data files.

        ``schema`` is the stored schema that they must fit, None if there is none yet; ``zones`` are those of its
        columns (:mod:`kubothek.table.time_zones`). Raises InputError; SourceEmpty if they have no rows; SourceChanged
        or SourceNotFound if they have changed since the listing.
        """

    def change(self, snapshot: Snapshot, written: Sequence[Written]) -> Change:
        """Return the change that adds the rows of several loads to the table; without loads, it changes no row."""
