"""One round of a standing source: list the landed files, ingest the oldest in batches, one commit per batch.

    page that the head names → listing without known files → oldest files → batches → commits

A batch is read, checked and written like the source of any commit. Files that changed since the listing are left for
the next round. The commit points the head at the new page of the ledger (:mod:`kubothek.ingest.watch.ledger`). So even
if rounds are killed, repeated or run concurrently, the rows of a file version are in the table exactly once.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import Contended, DatasetNotFound, HeadMissing
from kubothek.ingest.watch.attempts import Attempts
from kubothek.ingest.watch.backlog import Backlog
from kubothek.ingest.watch.landing import Landed
from kubothek.ingest.watch.ledger import Ledger, Page, entries_of
from kubothek.ingest.watch.sorting import Sorted, Sorter
from kubothek.ingest.watch.terms import Loader, Refusal, Terms
from kubothek.storage import Store
from kubothek.table.log import Committed, DatasetLog, Transaction
from kubothek.table.log.model import keys

BATCHES: Final = 16
"""How many batches one round takes at most: then others get their turn at the dataset. Before the first commit of a
dataset a batch without a good file commits nothing and does not count."""
_ATTEMPTS: Final = 3
"""How often a round lists again because the head moved before its first commit."""


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a round.

    ``listed_at``    when its listing began, by this machine's clock
    ``page``         what the source has ingested in total
    ``waiting``      what it left: more than one round may ingest, or what follows a file at which it stalled
    ``last``         the last commit; None if there was none. ``commits``: their number, with ``files`` and ``rows``
    ``quarantined``  number of the landed files in quarantine; ``refused``: those that this round quarantined
    ``stalled``      the file at which it stopped
    """

    listed_at: datetime
    page: Page
    waiting: Backlog
    last: Committed | None = None
    commits: int = 0
    files: int = 0
    rows: int = 0
    quarantined: int = 0
    refused: tuple[Refusal, ...] = ()
    stalled: Refusal | None = None

    @property
    def current_until(self) -> datetime:
        """The time up to which all landed files are in the table, or in quarantine."""
        since = self.waiting.since()
        return self.listed_at if since is None else min(since, self.listed_at)


def page_key(log: DatasetLog, source: str) -> str | None:
    """Return the page that the head names for a source; None without a head."""
    try:
        return log.snapshot().head.intake(source)
    except (DatasetNotFound, HeadMissing):
        return None  # the first commit finds out whether a head should exist


def waiting_files(
    ledger: Ledger, page: Page, landed_in: Store, terms: Terms, *, passed_over: Collection[str] = ()
) -> tuple[Backlog, int]:
    """What landed and is not on the page, and how many of the landed files are in quarantine.

    ``passed_over`` are keys of files that are left out.
    """
    waiting = Backlog(limit=BATCHES * terms.max_files + 1)
    quarantined = 0
    left_out = pa.array(passed_over, pa.string())
    for piece, known in ledger.known(page, terms.landing.listed(landed_in), terms.reading):
        new = piece.filter(pa.array(~(known.ingested | known.quarantined)))
        waiting = waiting.with_more(new.filter(pc.invert(pc.is_in(new["key"], value_set=left_out))))
        quarantined += int(known.quarantined.sum())
    return waiting, quarantined


class Round:
    """One round; ``clock`` returns aware times."""

    def __init__(
        self,
        log: DatasetLog,
        store: Store,
        landed_in: Store,
        terms: Terms,
        loader: Loader,
        *,
        clock: Callable[[], datetime],
        rng: random.Random | None = None,
    ) -> None:
        self._log = log
        self._landed_in = landed_in
        self._terms = terms
        self._loader = loader
        self._clock = clock
        self._ledger = Ledger(store, log.uuid, terms.source, rng)
        self._attempts = Attempts(store, log.uuid, terms.source, terms.deadline)

    def run(self) -> Report:
        """Ingest the landed files, at most ``BATCHES`` batches of them.

        Raises the errors of the commit protocol, Conflict and Contended for concurrent writers, and errors of the
        source's or table's settings that no single file causes. Earlier commits stay.
        """
        for _ in range(_ATTEMPTS):
            report = self._take(self._list())
            if report is not None:
                return report
        raise Contended(
            f"source {self._terms.source!r} of {self._log.uuid!r}: other jobs take from it at the same time; "
            "what they leave is taken the next time"
        )

    def _list(self) -> Report:
        """Return what waits. The page is read first: a commit after that makes the first swap fail, or adds nothing."""
        listed_at = self._clock()
        page = self._ledger.page(page_key(self._log, self._terms.source))
        waiting, quarantined = waiting_files(self._ledger, page, self._landed_in, self._terms)
        return Report(listed_at, page, waiting, quarantined=quarantined)

    def _take(self, report: Report) -> Report | None:
        """Commit batches; None if the first finds the head at another page than the look did.

        Without a table nothing can be committed before the first file with columns. What comes before it is passed
        over, and left for the next round.
        """
        terms, waiting = self._terms, report.waiting
        passed_over: list[str] = []
        if waiting.files:
            self._attempts.load()
        while batches := list(islice(waiting.batches(terms.max_files, terms.max_bytes), BATCHES)):
            for batch in batches:
                began = self._begin(report.page, batch)
                if began.snapshot.head.intake(terms.source) != (report.page.key or None):
                    return report if report.commits else None
                report = self._commit(report, began, self._sort(began, batch))
                if report.stalled is not None and not terms.quarantine:
                    return report
            if report.commits or began.snapshot.schema is not None:
                break
            passed_over += [file.key for batch in batches for file in batch]
            waiting, _ = waiting_files(self._ledger, report.page, self._landed_in, terms, passed_over=passed_over)
        if passed_over and report.commits:
            waiting, _ = waiting_files(self._ledger, report.page, self._landed_in, terms)
            report = replace(report, waiting=waiting)
        return report

    def _begin(self, page: Page, batch: Sequence[Landed]) -> Transaction:
        digest = hashlib.sha256(orjson.dumps([[file.key, file.etag] for file in batch])).hexdigest()
        return self._log.begin_new(f"{keys.OWN_ID_PREFIX}intake:{self._terms.source}:{page.batch + 1}", digest)

    def _sort(self, began: Transaction, batch: Sequence[Landed]) -> Sorted:
        """Load the batch. A file that is known to be bad is not tried again."""
        known = self._terms.stalled
        if known is not None and known.version != began.snapshot.version:
            known = None  # the table may have changed so that the file now fits
        place = next((i for i, file in enumerate(batch) if known and known.is_of(file)), None)
        self._loader.check(began.snapshot)
        sorter = Sorter(self._loader, self._landed_in, began.snapshot, self._attempts, go_on=self._terms.quarantine)
        sorter.sort(batch[:place])
        if known is not None and place is not None and not sorter.result.bad:
            sorter.result.bad.append(known)
        return sorter.result

    def _commit(self, report: Report, began: Transaction, done: Sorted) -> Report:
        """Commit rows and page in one swap."""
        terms, bad = self._terms, done.bad if self._terms.quarantine else []
        stalled = done.bad[0] if done.bad and not terms.quarantine else None
        if not done.good and not bad:
            return replace(report, stalled=stalled)
        if done.schema is None:  # without a column no table, and so no head, can exist
            return replace(report, stalled=stalled or (bad[0] if bad else report.stalled))
        page = self._ledger.write(
            report.page,
            entries_of(
                [(file.key, file.etag) for file in done.good],
                [(each.key, each.etag, f"{each.reason}: {each.message}") for each in bad],
                terms.reading,
            ),
            ingested=len(done.good),
            last_file=done.good[-1].key if done.good else "",
            now=self._clock(),
        )
        change = replace(self._loader.change(began.snapshot, done.written), intake={terms.source: page.key})
        committed = began.commit(change)
        self._attempts.forget((each.key, each.etag) for each in bad)
        return replace(
            report,
            page=page,
            waiting=report.waiting.without([*(file.key for file in done.good), *(each.key for each in bad)]),
            last=committed,
            commits=report.commits + 1,
            files=report.files + len(done.good),
            rows=report.rows + committed.added.rows,
            quarantined=report.quarantined + len(bad),
            refused=(*report.refused, *bad),
            stalled=stalled,
        )
