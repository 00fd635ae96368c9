"""What is done apart from each other: to a part of the records, and to a part of the keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol
from uuid import uuid4

import pyarrow as pa

from kubothek.lake.ledger.formats.sources import TransformSql
from kubothek.lake.ledger.transform.answering import Answer, Given, answered
from kubothek.lake.ledger.transform.checkpoint import Reader, Writer
from kubothek.lake.ledger.transform.contract import TransformInput
from kubothek.lake.ledger.transform.divided.plan import Division
from kubothek.lake.ledger.transform.divided.ranges import Range, of_span, segments_of, within
from kubothek.lake.ledger.transform.exchange import SORT, Exchange, Received, Sent, straight
from kubothek.lake.ledger.transform.late import Horizon
from kubothek.lake.ledger.transform.output import Output
from kubothek.lake.ledger.transform.places import Mapped, Opened
from kubothek.lake.ledger.transform.queries import engine_of, fingerprint
from kubothek.lake.ledger.transform.session import Session
from kubothek.lake.ledger.transform.state import SEGMENT, Changed, Span, State
from kubothek.lake.ledger.validity.state import Vocabulary
from kubothek.lake.store import Store

ROWS: Final = "rows"
"""The table with the rows of a part: those that are sent, or those of its output."""
STATE: Final = "state:"
"""How the names of the tables begin that a part has of the state."""


class Reads(Protocol):
    """Reads records of an input, by its place, from one offset to another; plain data that travels."""

    def __call__(self, store: Store, number: int, first: int, last: int) -> pa.RecordBatchReader: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One run; plain data that travels to whoever does a part of it.

    ``inputs``     without their rows, which ``reads`` gives
    ``directory``  the prefix of what parts leave in the store
    ``sent``       the keys of what the parts of the records left
    ``state``      that of the checkpoint before, None if there is none
    """

    transform: TransformSql
    vocabulary: Vocabulary
    inputs: tuple[TransformInput, ...]
    horizon: Horizon
    division: Division
    reads: Reads
    directory: str
    memory: str
    threads: int | None
    sent: tuple[str, ...] = ()
    state: str | None = None


@dataclass(frozen=True, slots=True)
class Left:
    """What a part left: the key of its file, some keys of its rows, the tables of the state that it has."""

    key: str
    sample: tuple[bytes, ...] = ()
    tables: tuple[Changed, ...] = ()


def of_records(work: Work, store: Store, part: Range) -> Left:
    """The queries on a part of the records: to the end, or up to where rows come together by a key.

    Raises what the engine and the records raise.
    """
    with _running(work) as (session, room):
        sent = Sent() if work.division is Division.KEYS else None
        state = State(session, None, fingerprint(work.transform))
        answer = _answered(work, session, state, sent or straight, store, part)
        file = room / "part"
        if sent is None:
            made = Output(session, answer.delta, work.vocabulary).rows(work.vocabulary.op)
            _write(file, made)
            return Left(_stored(work, store, file))
        _write(file, session.rows(sent.query))
        return Left(_stored(work, store, file), tuple(_firsts(Reader(Mapped(file)))))


def of_keys(work: Work, store: Store, span: Span) -> Left:
    """The queries on all rows of a range of keys, from where they come together to the end. Raises what the engine
    raises, StoreError.
    """
    with _running(work) as (session, room), ExitStack() as stack:
        before = None if work.state is None else Reader(Opened(stack.enter_context(store.open(work.state))))
        state = State(session, before, fingerprint(work.transform), span)
        answer = _answered(work, session, state, Received(_received(work, store, span)), store, None)
        output = Output(session, answer.delta, work.vocabulary)
        file, tables = room / "part", list[Changed]()
        with Writer(file) as writer:
            _table(writer, ROWS, output.rows_with_order(work.vocabulary.op))
            for changed, rows in state.changes():
                _table(writer, STATE + changed.name, map(_numbered, rows))
                tables.append(changed)
            writer.finish({})
        return Left(_stored(work, store, file), (), tuple(tables))


@contextmanager
def _running(work: Work) -> Iterator[tuple[Session, Path]]:
    with TemporaryDirectory(prefix="kubothek-part-", ignore_cleanup_errors=True) as directory:
        session = Session(engine_of(work.transform), Path(directory), work.memory, work.threads)
        try:
            yield session, Path(directory)
        finally:
            session.close()


def _answered(
    work: Work, session: Session, state: State, exchange: Exchange, store: Store, part: Range | None
) -> Answer:
    """Of a part of the records, or of none."""

    def given(number: int, each: TransformInput) -> Given:
        if part is None or part.input != number:
            return Given(each.query_alias, each.schema, each.vocabulary, None)

        def rows() -> pa.RecordBatchReader:
            first = each.blocks[0][1] if part.first is None else part.first
            found = work.reads(store, number, first, part.last + 1)
            return pa.RecordBatchReader.from_batches(found.schema, within(part, found, each.vocabulary))

        return Given(each.query_alias, each.schema, each.vocabulary, rows)

    inputs = [given(number, each) for number, each in enumerate(work.inputs)]
    return answered(session, state, work.horizon, work.transform, inputs, exchange)


def _received(work: Work, store: Store, span: Span) -> Iterator[pa.RecordBatch]:
    """All rows of a range of keys that parts of the records sent."""
    for key in work.sent:
        with store.open(key) as stream:
            reader = Reader(Opened(stream))
            wanted = segments_of(span, _firsts(reader))
            yield from (of_span(span, batch, SORT) for _, batch in reader.segments(ROWS, wanted))


def _firsts(reader: Reader) -> list[bytes]:
    """What each segment of the rows that a part of the records sent begins with."""
    stored = reader.tables.get(ROWS)
    found: list[Any] = [] if stored is None else stored.index.column(SORT).to_pylist()
    return found


def _numbered(row: tuple[int, pa.RecordBatch]) -> pa.RecordBatch:
    number, batch = row
    return batch.append_column(SEGMENT, pa.repeat(pa.scalar(number, pa.int64()), batch.num_rows))


def _write(file: Path, batches: Iterable[pa.RecordBatch]) -> None:
    with Writer(file) as writer:
        _table(writer, ROWS, batches)
        writer.finish({})


def _table(writer: Writer, name: str, batches: Iterable[pa.RecordBatch]) -> None:
    table = writer.table(name, {})
    for batch in batches:
        table.add(batch)
    table.close()


def _stored(work: Work, store: Store, file: Path) -> str:
    """Under a name that nobody else has: a part may be done twice, also at the same time."""
    key = work.directory + uuid4().hex
    with file.open("rb") as content:
        store.upload(key, content)
    return key
