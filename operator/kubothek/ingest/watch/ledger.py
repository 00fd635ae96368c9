"""The ledger of a source: which file versions it has ingested, stored in the bucket.

For each source the head names one *page* (a small JSON object), and the page names sorted *runs* of entries. All are
written once, under new names, before the swap. The swap of the head that adds the rows also points it at the page that
lists their files. Rows and entries thus exist together or not at all, after any crash: **a version of a file was
ingested if and only if a run of the page that the head names has its key and ETag.** If the head names another page
than the one the change started from, the change is a conflict (:mod:`kubothek.table.log.prepare.draft`): two concurrent
jobs ingest nothing twice.

A new run absorbs the preceding runs that are less than twice as large. N entries are thus in about log2(N) runs, and
each is rewritten about log2(N) times. Entries are kept forever: a file that was removed and uploaded again unchanged is
the same version. An entry costs some tens of bytes; only row groups in the listing's range of keys are read.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import InvalidKey, ObjectNotFound, VersionIncomplete
from kubothek.ingest.watch.runs import ENTRIES, Run, RunReader, merged, write_run
from kubothek.storage import Store
from kubothek.storage.foreign_keys import check_foreign_keys
from kubothek.table.checked_types import checked
from kubothek.table.log.model import keys

_FORMAT: Final = 1
_BETWEEN: Final = pa.scalar("\x00")
"""A character that occurs in no key and no ETag."""


Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What one source had ingested as of one commit.

    ``key``        of the page itself; empty for a source that has ingested nothing
    ``batch``      number of commits of this source so far
    ``files``      number of ingested file versions, without quarantined ones
    ``last_file``  the newest file of the last batch that ingested any; ``last_time``: time of that batch
    """

    key: str = ""
    batch: int = 0
    files: int = 0
    last_file: str = ""
    last_time: datetime | None = None
    runs: tuple[Run, ...] = ()

    def render(self) -> bytes:
        """Return the stored form."""
        return orjson.dumps(
            {
                "format": _FORMAT,
                "batch": self.batch,
                "files": self.files,
                "last_file": self.last_file,
                "last_time": self.last_time.isoformat() if self.last_time else None,
                "runs": [[run.key, run.entries, run.first, run.last] for run in self.runs],
            }
        )

    @classmethod
    def parse(cls, key: str, data: bytes) -> Page:
        """Return the page. Raise VersionIncomplete if the bytes are no page of a known format."""
        try:
            found = orjson.loads(data)
            if found["format"] != _FORMAT:
                raise VersionIncomplete(f"{key}: ledger format {found['format']!r} needs a newer Kubothek")
            page = cls(
                key=key,
                batch=found["batch"],
                files=found["files"],
                last_file=found["last_file"],
                last_time=datetime.fromisoformat(found["last_time"]) if found["last_time"] else None,
                runs=tuple(Run(*run) for run in found["runs"]),
            )
            check_foreign_keys([run.key for run in page.runs], f"{key.rpartition('/')[0]}/")
            return checked(page)
        except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError, InvalidKey) as error:
            raise VersionIncomplete(f"{key}: not a page of a ledger: {error!r}") from error


class Known(NamedTuple):
    """Two masks over a piece of a listing: which files were ingested, which are in quarantine."""

    ingested: Mask
    quarantined: Mask


class Ledger:
    """The pages and runs of one source of one dataset."""

    def __init__(self, store: Store, uuid: str, source: str, rng: random.Random | None = None) -> None:
        self._store = store
        self._prefix = keys.intake(uuid, source)
        self._rng = rng or random.SystemRandom()

    def page(self, key: str | None) -> Page:
        """Return the page at this key; the empty one if there is no key. Raises VersionIncomplete if it is missing."""
        if key is None:
            return Page()
        try:
            return Page.parse(key, self._store.get(key))
        except ObjectNotFound as error:
            raise VersionIncomplete(
                f"{key}: the list of ingested files no longer exists; restore the object, or create the source under a "
                "new name, which ingests all files again"
            ) from error

    def known(self, page: Page, pieces: Iterator[pa.Table], reading: str) -> Iterator[tuple[pa.Table, Known]]:
        """Yield each piece of a sorted listing with what the page knows of it.

        Quarantine holds only for the ``reading`` that failed: with other read options, a file is tried again.
        """
        with ExitStack() as opened:
            readers = [(run, opened.enter_context(RunReader(self._store, run))) for run in page.runs]
            for piece in pieces:
                yield piece, _compared(piece, readers, reading)

    def quarantine(self, page: Page) -> Iterator[tuple[str, str]]:
        """Yield key and error of all files that were ever quarantined, the newest run first."""
        for run in reversed(page.runs):
            with RunReader(self._store, run) as reader:
                for entries in reader.with_errors():
                    bad = entries.filter(pc.is_valid(entries["error"]))
                    yield from ((row["key"], row["error"]) for row in bad.to_pylist())

    def write(self, page: Page, entries: pa.Table, *, ingested: int, last_file: str, now: datetime) -> Page:
        """Write a new run and the page after ``page`` with these entries (``ENTRIES``, at least one); return the page.

        ``ingested`` of them are ingested files; ``last_file`` is the newest of these.
        """
        name = f"{self._prefix}{page.batch + 1:020d}-{self._rng.getrandbits(48):012x}"
        kept, small = _tiers(page.runs, entries.num_rows)
        with ExitStack() as opened:
            readers = [opened.enter_context(RunReader(self._store, run)) for run in small]
            streams = [iter([entries.sort_by("key")]), *(reader.pieces() for reader in readers)]
            run = write_run(self._store, f"{name}.parquet", merged(streams))
        following = replace(
            page,
            key=f"{name}.json",
            batch=page.batch + 1,
            files=page.files + ingested,
            last_file=last_file or page.last_file,
            last_time=now if last_file else page.last_time,
            runs=(*kept, run),
        )
        self._store.put_if_absent(following.key, following.render())
        return following


def entries_of(good: Sequence[tuple[str, str]], bad: Sequence[tuple[str, str, str]], reading: str) -> pa.Table:
    """Return entries for ingested files (key, ETag) and for quarantined ones (key, ETag, error)."""
    rows = [(key, etag, None, None) for key, etag in good] + [(key, etag, error, reading) for key, etag, error in bad]
    return pa.table(dict(zip(ENTRIES.names, map(list, zip(*rows, strict=True)), strict=True)), schema=ENTRIES)


def _tiers(runs: Sequence[Run], entries: int) -> tuple[tuple[Run, ...], tuple[Run, ...]]:
    """Return the runs to keep and those to absorb: from the newest back, all that are less than twice as large."""
    at = len(runs)
    while at and runs[at - 1].entries < 2 * entries:
        at -= 1
        entries += runs[at].entries
    return tuple(runs[:at]), tuple(runs[at:])


def _compared(piece: pa.Table, readers: Sequence[tuple[Run, RunReader]], reading: str) -> Known:
    first, last, ids = piece["key"][0].as_py(), piece["key"][-1].as_py(), _ids(piece)
    ingested, quarantined = np.zeros(piece.num_rows, np.bool_), np.zeros(piece.num_rows, np.bool_)
    for run, reader in readers:
        if run.first <= last and first <= run.last:
            for entries in reader.between(first, last):
                ingested |= _among(ids, entries.filter(pc.is_null(entries["error"])))
                quarantined |= _among(ids, entries.filter(pc.equal(entries["reading"], pa.scalar(reading))))
    return Known(ingested, quarantined & ~ingested)


def _ids(table: pa.Table) -> pa.Array[pa.StringScalar]:
    columns: list[Any] = [table["key"].combine_chunks(), table["etag"].combine_chunks(), _BETWEEN]
    return cast("pa.StringArray", pc.binary_join_element_wise(*columns))


def _among(ids: pa.Array[pa.StringScalar], entries: pa.Table) -> Mask:
    return pc.is_in(ids, value_set=_ids(entries)).to_numpy(zero_copy_only=False)
