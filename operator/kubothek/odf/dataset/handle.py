"""A root dataset that is there: what comes into it from outside."""

from __future__ import annotations

from kubothek.errors import EventInvalid, InputError
from kubothek.odf.dataset.base import Ingested, Ledger
from kubothek.odf.dataset.extension import DEFAULT_SOURCE, Extension
from kubothek.odf.dataset.ingesting import Elsewhere, Ground, Ingest, Made, events_made, ingest
from kubothek.odf.dataset.rows import Rows
from kubothek.odf.spec.events import SourceState
from kubothek.odf.spec.timestamps import Timestamp


class Root(Ledger):
    """One root dataset; see :class:`~kubothek.odf.dataset.base.Ledger`."""

    def push(
        self,
        rows: Rows | Elsewhere,
        source: str = DEFAULT_SOURCE,
        *,
        event_time: Timestamp | None = None,
        state: SourceState | None = None,
        commit_id: str | None = None,
        digest: str = "",
    ) -> Ingested:
        """Merge rows that were handed in as the push source of this name says.

        ``rows``        as its read and preprocess steps leave them, or who reads them
        ``event_time``  of rows that have none; None: the time of the commit
        ``commit_id``   names this push for ever: under it rows are taken once, ``digest`` tells others apart

        Raises InputError for a source that is not there, MergeInvalid, SchemaMismatch, DataTypeMismatch, LedgerOnly,
        Drift, Diverged, and what a transaction raises, all with the dataset as before.
        """

        def make(ground: Ground) -> Made | None:
            sources = ground.chain.state.push_sources
            if source not in sources:
                names = ", ".join(map(repr, sources)) or "none"
                raise InputError(f"dataset {self.uuid!r} has no push source {source!r}; its push sources are: {names}")
            what = Ingest(rows=rows, merge=sources[source].merge, source=source, state=state, event_time=event_time)
            return ingest(ground, what)

        return self._commit("push", make, commit_id, digest)

    def add_polled(
        self,
        rows: Rows | Elsewhere | None,
        state: SourceState | None,
        *,
        event_time: Timestamp | None = None,
        commit_id: str | None = None,
        digest: str = "",
    ) -> Ingested:
        """Merge what a poll of the polling source gave, and keep how far it came. As :meth:`push` otherwise.

        ``rows``  None: there was no data, which takes nothing back either
        """

        def make(ground: Ground) -> Made | None:
            if (source := ground.chain.state.polling_source) is None:
                raise InputError(f"dataset {self.uuid!r} has no polling source")
            return ingest(
                ground,
                Ingest(rows=rows, merge=source.merge, source=DEFAULT_SOURCE, state=state, event_time=event_time),
            )

        return self._commit("poll", make, commit_id, digest)

    def set_watermark(self, watermark: Timestamp, *, commit_id: str | None = None) -> Ingested:
        """All events up to this time have been seen (TIM-06, AD-08); nothing happens if that was said already.

        Raises EventInvalid for one before the present watermark, which never goes back.
        """

        def make(ground: Ground) -> Made | None:
            if (before := ground.chain.state.watermark) is not None and watermark < before:
                raise EventInvalid(f"the watermark is {before} and never goes back, to {watermark} neither")
            if watermark == before:
                return None
            extension = Extension(ground.chain, ground.now)
            extension.add_data(None, watermark, extension.lasting_source_state, ground.checkpoint)
            return events_made(ground, extension)

        return self._commit("watermark", make, commit_id, str(watermark))
