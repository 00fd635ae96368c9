"""A note in the bucket of the files that a job is reading, in case its process dies without an error.

A job writes the note before it reads files, and removes it afterwards. A job that finds a note knows that another job
died while it read these files. It reads the suspects in smaller groups, at last one by one; a file on which ``DEATHS``
jobs died is unreadable. The note only decides which files are tried. The ledger that the head names records which files
are ingested or in quarantine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from time import monotonic
from typing import Final, NamedTuple

import orjson

from kubothek.errors import LakeError, ObjectNotFound, SourceCorrupt
from kubothek.ingest.watch.landing import Landed
from kubothek.ingest.watch.terms import Refusal
from kubothek.storage import Store
from kubothek.table.log.model import keys

DEATHS: Final = 2
_GROUPS: Final = 16
"""Number of groups that suspects are divided into; a death counts for each file if at most this many were being
read."""
_NAME: Final = "reading.json"
_NEAR_DEADLINE: Final = 0.9
"""The share of its deadline after which a job that is stopped has reached it; its pod needs the rest to start."""
_HUNG: Final = 0.5
"""The share of its deadline after which a job that still reads the same files hangs at them."""
_OF_ITS_PROCESSES: Final = "SparkFailed"
"""The reason of an error for dead executors, which counts as a death of the process."""

_Id = tuple[str, str]


_UNDO: Final[dict[int, Callable[[], None]]] = {}
"""By the id of an Attempts that is reading, the function that restores its previous note."""


def give_up() -> None:
    """Leave notes as if this process had not read: it is stopped from outside, which is no file's fault.

    The note of files at which it hung until its deadline stays.
    """
    for undo in list(_UNDO.values()):
        undo()


class _Suspect(NamedTuple):
    """The number of jobs that died while reading a file, and the maximum number of files to read together with it."""

    deaths: int
    together: int


class Attempts:
    """The deaths of jobs on files of one source; at most one job of a source reads at a time.

    ``deadline``: seconds from now after which this job is stopped; None: it has no deadline.
    """

    def __init__(self, store: Store, uuid: str, source: str, deadline: float | None = None) -> None:
        self._deadline = deadline
        self._started = monotonic()
        self._store = store
        self._key = keys.intake(uuid, source) + _NAME
        self._suspects: dict[_Id, _Suspect] = {}
        self._is_loaded = False

    def load(self) -> None:
        """Read the note of an earlier job, once."""
        if self._is_loaded:
            return
        self._is_loaded = True
        try:
            found = orjson.loads(self._store.get(self._key))
            self._suspects = {(key, etag): _Suspect(int(deaths), int(n)) for key, etag, deaths, n in found["files"]}
        except (ObjectNotFound, ValueError, KeyError, TypeError):
            self._suspects = {}  # no note, or one of another version: no file is suspect

    def unreadable(self, file: Landed, version: int) -> Refusal | None:
        """Return why the file must not be tried again; None if it may be."""
        suspect = self._suspects.get(_id(file))
        if suspect is None or suspect.deaths < DEATHS:
            return None
        return Refusal(
            file.key,
            file.etag,
            SourceCorrupt.reason,
            f"{file.key!r}: {suspect.deaths} jobs died without an error while they read this file (out of memory, a "
            "fault of a parser, or no end before the deadline of the Engine); correct or split the file, or give the "
            "driver more memory or time and upload it again",
            version,
        )

    def divided(self, files: Sequence[Landed]) -> Iterator[Sequence[Landed]]:
        """Yield the files in their order, suspects in small groups and the others together."""
        for suspect, group in groupby(files, lambda file: self._suspects.get(_id(file))):
            some = list(group)
            size = suspect.together if suspect else len(some)
            yield from (some[start : start + size] for start in range(0, len(some), size))

    @contextmanager
    def reading(self, files: Sequence[Landed]) -> Iterator[None]:
        """Keep the note while files are read; it stays if the process dies, or on an error that is not a LakeError."""
        before = {_id(file): self._suspects.pop(_id(file), None) for file in files}
        counts, together = len(files) <= _GROUPS, max(1, len(files) // _GROUPS)
        dead = {each: _Suspect((was.deaths if was else 0) + counts, together) for each, was in before.items()}
        self._write(self._suspects | dead)
        unchanged = self._suspects | {each: was for each, was in before.items() if was is not None}
        _UNDO[id(self)] = partial(self._give_up, unchanged, monotonic())
        try:
            yield
        except LakeError as error:
            if error.reason != _OF_ITS_PROCESSES:
                self._write(self._suspects)
            raise
        except (KeyboardInterrupt, SystemExit):
            self._suspects = unchanged
            self._write(self._suspects)
            raise
        finally:
            _UNDO.pop(id(self), None)
        self._write(self._suspects)

    def forget(self, files: Iterable[_Id]) -> None:
        """Drop the entries of files that are in the ledger now."""
        if known := [each for each in files if each in self._suspects]:
            for each in known:
                del self._suspects[each]
            self._write(self._suspects)

    def _give_up(self, unchanged: dict[_Id, _Suspect], since: float) -> None:
        """Restore the note, unless this job read the same files ``since`` then and reached its deadline."""
        now, limit = monotonic(), self._deadline
        if limit is None or now - self._started < limit * _NEAR_DEADLINE or now - since < limit * _HUNG:
            self._write(unchanged)

    def _write(self, suspects: dict[_Id, _Suspect]) -> None:
        if suspects:
            entries = [[*each, *suspect] for each, suspect in suspects.items()]
            self._store.put(self._key, orjson.dumps({"files": entries}))
        else:
            self._store.delete([self._key])


def _id(file: Landed) -> _Id:
    return file.key, file.etag
