"""An existing root dataset: pushes, polls and watermarks."""

from __future__ import annotations

from collections.abc import Callable

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
        """Merge pushed rows as the push source of this name says.

        ``rows``        as its read and preprocess steps return them, or what reads them
        ``event_time``  of rows that have none; None: the time of the commit
        ``commit_id``   identifies this push permanently: its rows are taken once; ``digest`` detects other content

        Raises InputError for an unknown source, MergeInvalid, SchemaMismatch, DataTypeMismatch, LedgerOnly, Drift,
        Diverged, and what a transaction raises; the dataset is then unchanged.
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
        is_next: Callable[[SourceState | None], bool] = lambda before: True,
    ) -> Ingested:
        """Merge the result of a poll of the polling source, and store its new state. Otherwise as :meth:`push`.

        ``rows``     None: there was no data, which retracts nothing either
        ``is_next``  whether the result follows this state of the source; if not, nothing is committed
        """

        def make(ground: Ground) -> Made | None:
            if (source := ground.chain.state.polling_source) is None:
                raise InputError(f"dataset {self.uuid!r} has no polling source")
            if not is_next(ground.chain.state.source_states.get(DEFAULT_SOURCE)):
                return None
            return ingest(
                ground,
                Ingest(rows=rows, merge=source.merge, source=DEFAULT_SOURCE, state=state, event_time=event_time),
            )

        return self._commit("poll", make, commit_id, digest)

    def set_watermark(self, watermark: Timestamp, *, commit_id: str | None = None) -> Ingested:
        """Declare that all events up to this time have been seen (TIM-06, AD-08); no commit if it is declared already.

        Raises EventInvalid for one before the present watermark, which never goes back.
        """

        def make(ground: Ground) -> Made | None:
            ground.chain.state.require_known()
            if (before := ground.chain.state.watermark) is not None and watermark < before:
                raise EventInvalid(f"the watermark is {before} and never goes back, to {watermark} neither")
            if watermark == before:
                return None
            extension = Extension(ground.chain, ground.now)
            extension.add_data(None, watermark, extension.lasting_source_state, ground.checkpoint)
            return events_made(ground, extension)

        return self._commit("watermark", make, commit_id, str(watermark))
