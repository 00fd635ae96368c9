"""The rows of a query as one file in a store, exactly once.

A run of a query is retried until it succeeds, and two attempts may run at once. Each writes its own file,
``<directory>/<run>-<attempt>.<ending>``. Then it creates the record ``.kubothek/++queries/<run>.json``, if absent,
which names the result. That PUT is the moment at which the result exists. An attempt that finds the record deletes the
files of other attempts.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from tempfile import TemporaryFile
from typing import IO, Any, Final, Protocol, cast

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from kubothek.errors import IdReused, InputError, ObjectNotFound, PreconditionFailed, QueryInvalid
from kubothek.sql.read import Read
from kubothek.storage.base import Store
from kubothek.table.log.model import keys
from kubothek.table.schema import require_distinct

_OURS: Final = ".kubothek"
ENDINGS: Final = {"Parquet": "parquet", "CSV": "csv", "JSONLines": "jsonl"}


class Answer(Protocol):
    """Rows that can be read once: of a statement, or of a cube query."""

    @property
    def reads(self) -> tuple[Read, ...]: ...

    def rows(self) -> pa.RecordBatchReader:
        """Return the rows as a stream."""

    def lines(self) -> pa.RecordBatchReader:
        """Return each row as one JSON object in the one column of the stream."""


@dataclass(frozen=True, slots=True)
class Destination:
    """The place of an attempt's file.

    ``run``        name of the run, never reused
    ``digest``     of everything that defines the run
    ``directory``  below the store's root
    ``format``     one of ``ENDINGS``
    """

    run: str
    attempt: int
    digest: str
    directory: str
    format: str

    @property
    def record(self) -> str:
        """The key of the record."""
        return f"{_OURS}/++queries/{self.run}.json"

    def key(self, attempt: int) -> str:
        """Return the key of an attempt's file."""
        return f"{self.directory}/{self.run}-{attempt}.{ENDINGS[self.format]}"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run; ``reads`` are its scans."""

    digest: str
    location: str
    rows: int
    bytes: int
    reads: tuple[Read, ...]


def digest(*parts: object) -> str:
    """Return the SHA-256 of the parts that define a run."""
    return sha256(orjson.dumps([str(part) for part in parts])).hexdigest()


def find(store: Store, destination: Destination) -> Result | None:
    """Return the result of the run, if it exists. Raises IdReused if it belongs to another query."""
    try:
        found = orjson.loads(store.get(destination.record))
    except ObjectNotFound:
        return None
    reads = tuple(Read(*read)._replace(filters=tuple(*read[5:])) for read in found.pop("reads"))
    result = Result(**found, reads=reads)
    if result.digest != destination.digest:
        raise IdReused(f"the run {destination.run!r} had another statement or destination; create another Query")
    return result


def publish(
    store: Store, destination: Destination, query: Answer, report: Callable[[int], None] = lambda rows: None
) -> Result:
    """Run the query and publish its rows as the result; if another attempt came first, return that one's result.

    ``report`` gets the number of rows so far. Raises QueryInvalid, InputError with nothing written.
    """
    _require_free(store, destination)
    key = destination.key(destination.attempt)
    with TemporaryFile() as file:
        rows = _write(query, destination.format, file, report)
        size = file.tell()
        file.seek(0)
        store.upload(key, cast("io.BufferedIOBase", file))
    result = Result(destination.digest, key, rows, size, query.reads)
    try:
        store.put_if_absent(destination.record, orjson.dumps(asdict(result), default=tuple))
    except PreconditionFailed:
        won = find(store, destination)
        assert won is not None, "records stay"
        return won
    return result


def clean_up(store: Store, destination: Destination, result: Result) -> None:
    """Delete the files of attempts that did not become the result, this one's too if it lost."""
    keys_ = (destination.key(attempt) for attempt in range(1, destination.attempt + 1))
    store.delete([key for key in keys_ if key != result.location])


def _require_free(store: Store, destination: Destination) -> None:
    """Raise InputError for a directory of Kubothek, or of a dataset, where garbage collection deletes files."""
    top = destination.directory.partition("/")[0]
    if top == _OURS:
        raise InputError(
            f"location.path {destination.directory!r} is in {_OURS}, which is Kubothek's own: name another"
        )
    for head in (keys.head(top), keys.packed_head(top)):
        try:
            store.stat(head)
        except ObjectNotFound:
            continue
        raise InputError(
            f"location.path {destination.directory!r} is in the directory of dataset {top!r}: name another"
        )


# --- formats --------------------------------------------------------------------------------------------------------


def _write(query: Answer, form: str, file: IO[bytes], report: Callable[[int], None]) -> int:
    """Write the rows to a file; return their number."""
    reader = query.lines() if form == "JSONLines" else query.rows()
    _require_storable(reader.schema, form)
    rows = 0
    with _writer(reader.schema, form, file) as write:
        for batch in reader:
            write(batch)
            rows += batch.num_rows
            report(rows)
    return rows


@contextmanager
def _writer(schema: pa.Schema, form: str, file: IO[bytes]) -> Iterator[Callable[[pa.RecordBatch], None]]:
    if form == "JSONLines":
        yield lambda batch: _write_lines(batch, file)
    elif form == "CSV":
        with pyarrow.csv.CSVWriter(file, schema) as text:
            yield text.write_batch
    else:
        with pq.ParquetWriter(file, schema, compression="zstd") as parquet:
            yield parquet.write_batch


def _write_lines(batch: pa.RecordBatch, file: IO[bytes]) -> None:
    lines: Any = pc.binary_join_element_wise(batch.column(0), "", "\n")  # type: ignore[call-overload]
    text = lines.buffers()[2]
    file.write(memoryview(text)[: pc.sum(pc.binary_length(lines)).as_py()])


def _require_storable(schema: pa.Schema, form: str) -> None:
    require_distinct(schema.names)
    nested = [field.name for field in schema if pa.types.is_nested(field.type)]
    if form == "CSV" and nested:
        raise QueryInvalid(f"column {nested[0]!r} holds lists or structs, which CSV cannot: use JSONLines or Parquet")
