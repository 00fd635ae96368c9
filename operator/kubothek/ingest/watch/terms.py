"""What a source asks for, and how its files become rows: what a round is told."""

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
    """A version of a file that cannot be taken, and why: reason and message of its error.

    ``version`` is that of the table for which it was read.
    """

    key: str
    etag: str
    reason: str
    message: str
    version: int

    def is_of(self, file: Landed) -> bool:
        """Return whether it is about this version of a file."""
        return (self.key, self.etag) == (file.key, file.etag)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a source asks for.

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
    """How landed files become data files, and these a change."""

    def check(self, snapshot: Snapshot) -> None:
        """Raise InputError for what is wrong whatever the files hold: such an error is no file's fault."""

    def load(
        self, snapshot: Snapshot, files: Sequence[Landed], schema: pa.Schema | None, zones: Mapping[str, str]
    ) -> Written:
        """Write the rows of these versions of files as new data files.

        ``schema`` is the stored schema that they have to go with, None if there is none yet, ``zones`` are those
        of its columns (``lake.zones``). Raises InputError;
        SourceEmpty if they have no rows; SourceChanged or SourceNotFound if they are other versions by now.
        """

    def change(self, snapshot: Snapshot, written: Sequence[Written]) -> Change:
        """Return the change that brings into the table what several loads wrote; none at all changes no row."""
