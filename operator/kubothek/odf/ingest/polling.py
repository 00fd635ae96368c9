"""Ingestion from a polling source, file by file, until it is up to date."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256

import orjson

from kubothek.errors import InputError
from kubothek.odf.dataset import Root, Rows, again
from kubothek.odf.dataset.ingesting import Elsewhere
from kubothek.odf.sources.fetch import SOURCE_NAME, FetchContext, Fetched, UpToDate, poll
from kubothek.odf.sources.readers.content import ObjectContent
from kubothek.odf.spec.events import SetPollingSource, SourceState
from kubothek.odf.spec.timestamps import Timestamp

STREAM_SECONDS = 300.0
"""Seconds after which a poll of messages ends at the next commit, as more may arrive for ever."""

Spreading = Callable[[SetPollingSource, ObjectContent], Elsewhere | None]
"""Returns an ingestion of a stored file that is divided over processes; None: this process ingests it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """Result of a poll.

    ``version``      of the last commit, None if there was nothing new
    ``commits``      number of commits, with ``records`` in all
    ``uncacheable``  the source gives neither ETag nor date, so the poll did not fetch it again (FE-07)
    ``has_more``     the poll stopped before the source was up to date
    """

    version: int | None = None
    commits: int = 0
    records: int = 0
    uncacheable: bool = False
    has_more: bool = False


def poll_source(
    root: Root,
    context: FetchContext,
    told: Callable[[str, Polled], None] = lambda name, polled: None,
    elsewhere: Spreading = lambda source, stored: None,
    *,
    once: bool = False,
) -> Polled:
    """Ingest from the source until it has nothing new: one commit per file, with the source state for the next poll.

    ``once``       at most one file
    ``told``       called after each file, with its name and the totals so far
    ``elsewhere``  called for a file in a store, see :data:`Spreading`

    Commits stay if a later file cannot be read. Of concurrent polls, one commits a file and the others detect that.
    Raises what :func:`~kubothek.odf.sources.fetch.poll` and :meth:`Root.add_polled` raise; InputError without a source.
    """
    polled, start = Polled(), time.monotonic()
    while True:
        state = root.state
        state.require_known()  # before the source is asked
        if (source := state.polling_source) is None:
            raise InputError(f"dataset {root.uuid!r} has no polling source: give its chain a SetPollingSource")
        before = state.source_states.get(SOURCE_NAME)
        now = Timestamp.of(root.log.journal.clock())
        assert state.seed is not None, "a chain begins with one"
        session = sha256(str(state.seed.dataset_id).encode()).hexdigest()[:32]
        ingested = state.last_offset is not None
        found = poll(source, before, replace(context, now=now, ingested=ingested, session=session))
        if isinstance(found, UpToDate):
            return replace(polled, uncacheable=found.uncacheable)
        done = root.add_polled(
            _rows(source, found, elsewhere),
            found.state,
            event_time=found.event_time,
            commit_id=_id(before, state.last_offset, found),
            is_next=partial(_follows, found, before),
        )
        if not (done.up_to_date or done.repeated):
            polled = Polled(version=done.version, commits=polled.commits + 1, records=polled.records + done.records)
        told(found.name, polled)
        if found.has_more or found.acknowledge is not None:
            root.refresh()
        if found.acknowledge is not None and root.state.source_states.get(SOURCE_NAME) == found.state:
            found.acknowledge()
        if not found.has_more:
            return polled
        if root.state.source_states.get(SOURCE_NAME) == before:
            raise InputError(f"the polling source has more after {found.name!r}, and no state to continue from")
        if once or (found.acknowledge is not None and time.monotonic() - start >= STREAM_SECONDS):
            return replace(polled, has_more=True)


def _rows(source: SetPollingSource, found: Fetched, elsewhere: Spreading) -> Rows | Elsewhere | None:
    if found.rows is None:
        return None
    others = elsewhere(source, found.stored) if found.stored is not None else None
    return others or again(found.rows)


def _follows(found: Fetched, before: SourceState | None, state: SourceState | None) -> bool:
    """Return whether a file that is acknowledged follows this state: of concurrent polls, one commits a message."""
    return found.acknowledge is None or state == before


def _id(before: SourceState | None, offset: int | None, found: Fetched) -> str:
    """Return one id for each transition of the source state: concurrent polls then commit it once."""
    steps = [[state.kind, state.value] if state is not None else None for state in (before, found.state)]
    return f"poll:{sha256(orjson.dumps([steps, offset])).hexdigest()[:32]}"
