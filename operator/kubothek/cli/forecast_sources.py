"""Forecast for the standing sources of Datasets."""

from __future__ import annotations

from collections.abc import Iterator

from kubothek.api.dataset import Dataset
from kubothek.api.sources import StandingSource
from kubothek.api.values import parse_quantity, render_bytes
from kubothek.cli.forecast_stores import Stores, wrong
from kubothek.cli.steps import Step, Verb
from kubothek.controller.tasks.sources import reading_of
from kubothek.errors import LakeError
from kubothek.ingest.watch import Backlog, Landing, Ledger, Terms, look, page_key
from kubothek.local.manifests import Key
from kubothek.storage import Store
from kubothek.table.log import DatasetLog
from kubothek.words import count


class Sources(Stores):
    """The steps of standing sources."""

    def _source_steps(self, key: Key, dataset: Dataset) -> Iterator[Step]:
        """Yield the waiting files of each source."""
        store = self._open(self._home(dataset))
        for source in dataset.spec.sources:
            reference = source.store_ref or dataset.spec.store_ref
            home = Key("ObjectStore", key.namespace, reference.name)
            landed_in = self._open(home)
            if source.suspend or dataset.spec.suspend:
                yield Step(key, Verb.SUSPENDED, f"source {source.name!r} is not inspected")
            elif landed_in is None or isinstance(landed_in, LakeError):
                yield Step(key, Verb.BLOCKED, f"source {source.name!r} needs {home}, {wrong(landed_in)}")
            elif isinstance(store, Store):
                waiting = _waiting(store, landed_in, dataset, source)
                if waiting.files:
                    size = render_bytes(waiting.bytes)
                    yield Step(key, Verb.COMMIT, f"source {source.name!r}: {count(waiting.files, 'file')} ({size})")
                else:
                    yield Step(key, Verb.KEEP, f"source {source.name!r}: nothing new")


def _waiting(store: Store, landed_in: Store, dataset: Dataset, source: StandingSource) -> Backlog:
    own = (f"{dataset.uuid}/",) if store.url == landed_in.url else ()
    terms = Terms(
        source=source.name,
        landing=Landing.of(source.prefix or "", source.glob or "", foreign=own),
        reading=reading_of(dataset, source),
        max_files=source.batch.max_files,
        max_bytes=parse_quantity(source.batch.max_bytes),
    )
    ledger = Ledger(store, dataset.uuid, source.name)
    page = ledger.page(page_key(DatasetLog(store, dataset.uuid), source.name))
    return look(ledger, page, landed_in, terms)[0]
