"""The first runs of a derivative over many records: in one process, and divided over Spark's workers.

The same query as in :mod:`benchmarks.transform`, over a ledger. Of both, everything is counted: the input is read, the
slice and the state are written. Spark's session is there already, as it is from a job's second run on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.cpu import cpu_of_all
from benchmarks.harness import Case, Table, compare
from benchmarks.transform import QUERY, derived, make_source
from kubothek.odf.derived import inputs_of
from kubothek.odf.derived.dividing import DividedEngine
from kubothek.odf.derived.running import OURS, Engine
from kubothek.spark.session import running
from kubothek.spark.sweep import spread_with_spark
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log.model import keys

_PUSHED = 2_500_000
_WORKERS = 2
_ALONE = "SELECT event_time, carrier, delay, distance FROM flights WHERE delay > 200"
_numbers = count()
"""Of derivatives; a room may have some of an earlier comparison, so a name has the process in it as well."""


def run(records: int, *, room: Path | None = None, rounds: int = 3, seconds: float = 60) -> Iterator[Table]:
    """One table. ``room``: where the input stays, so that another run need not make it."""
    with TemporaryDirectory(prefix="kubothek-divided-") as directory:
        yield _compared(Path(directory) if room is None else room, records, rounds=rounds, seconds=seconds)


def _compared(room: Path, records: int, *, rounds: int, seconds: float) -> Table:
    """By keys, and record by record."""
    room.mkdir(parents=True, exist_ok=True)
    store = open_store(StoreConfig(room.absolute().as_uri()))
    if not any(store.list(keys.head("flights"))):
        make_source(store, records, _PUSHED)
    with running({"spark.master": f"local[{_WORKERS}]"}) as session:
        workers = spread_with_spark(session, store.config)

        def divided(uuid: str) -> Engine:
            return DividedEngine(uuid, lambda: workers, from_bytes=1)

        engines: dict[str, Callable[[str], Engine]] = {
            "one process": lambda uuid: OURS,
            f"Spark, {_WORKERS} workers": divided,
        }
        cases = [
            Case(f"{what}, {by}", partial(_made, store, query, engine))
            for what, query in (("windowed", QUERY), ("filter", _ALONE))
            for by, engine in engines.items()
        ]
        title = f"First runs, {records:,} records"
        return compare(title, cases, rounds=rounds, seconds=seconds, cpu=cpu_of_all)


def _made(store: Store, query: str, engine: Callable[[str], Engine]) -> None:
    uuid = f"made-{os.getpid()}-{next(_numbers)}"
    inputs, by = inputs_of(store), engine(uuid)
    derived(store, uuid, query, lambda derivative: derivative.pull(inputs, engine=by).more)
