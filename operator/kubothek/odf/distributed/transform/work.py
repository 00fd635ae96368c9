"""The work of one process: on a part of the records, or on a part of the keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol
from uuid import uuid4

import pyarrow as pa

from kubothek.odf.distributed.transform.plan import Division, Plan
from kubothek.odf.distributed.transform.ranges import Range, of_span, segments_of, within
from kubothek.odf.distributed.transform.stages import SORT, Stage, step_of
from kubothek.odf.spec.sources import TransformSql
from kubothek.odf.transform.answering import Given, answered
from kubothek.odf.transform.checkpoint import Reader, Writer
from kubothek.odf.transform.contract import TransformInput
from kubothek.odf.transform.delta import Delta
from kubothek.odf.transform.exchange import Inflow
from kubothek.odf.transform.late import Horizon
from kubothek.odf.transform.output import Output
from kubothek.odf.transform.places import Mapped, Opened
from kubothek.odf.transform.queries import engine_of, fingerprint
from kubothek.odf.transform.scan import KEY
from kubothek.odf.transform.session import Session
from kubothek.odf.transform.state import SEGMENT, Changed, Span, State
from kubothek.odf.validation.state import Vocabulary
from kubothek.storage import Store

ROWS: Final = "rows"
"""The table with the rows of a part's output."""
STATE: Final = "state:"
"""The prefix of the tables with a part of the state."""


class Reads(Protocol):
    """Reads records of an input, by its position, from one offset to another; can be sent to other processes."""

    def __call__(self, store: Store, number: int, first: int, last: int) -> pa.RecordBatchReader: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One run; plain data that is sent to the processes of its parts.

    ``inputs``     without their rows, which ``reads`` gives
    ``directory``  the prefix of the results of parts in the store
    ``step``       the number of the exchange at which parts of keys begin, counted from 1
    ``sent``       the keys of files with rows for this exchange
    ``state``      that of the previous checkpoint, None if there is none
    """

    transform: TransformSql
    vocabulary: Vocabulary
    inputs: tuple[TransformInput, ...]
    horizon: Horizon
    plan: Plan
    reads: Reads
    directory: str
    memory: str
    threads: int | None
    step: int = 0
    sent: tuple[str, ...] = ()
    state: str | None = None


@dataclass(frozen=True, slots=True)
class Left:
    """The result of a part.

    ``made``    the key of the file with its part of the output, and of the state, whose ``tables`` it has
    ``sent``    that of the file with tables of rows for other exchanges, with a sample of their ``keys``
    """

    made: str | None
    tables: tuple[Changed, ...] = ()
    sent: str | None = None
    keys: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)

    def sample(self, step: int) -> list[bytes]:
        """Return some keys of the rows for an exchange; empty if there are none."""
        return [key for table, keys in self.keys.items() if step_of(table) == step for key in keys]


def of_records(work: Work, store: Store, part: Range) -> Left:
    """Run the queries on a part of the records: to the end, or up to the first exchange.

    Raises what the engine and the records raise.
    """
    with _running(work) as (session, room):
        state = State(session, None, fingerprint(work.transform))
        stage = Stage(0, state, lambda table: iter(()))
        delta = _answered(work, session, state, stage, store, part)
        if work.plan.division is Division.KEYS:
            return _sent(work, store, Left(None), session, stage, room)
        with Writer(room / "part") as writer:
            _table(writer, ROWS, Output(session, delta, work.vocabulary).rows(work.vocabulary.op))
            writer.finish({})
        return Left(_stored(work, store, room / "part"))


def of_keys(work: Work, store: Store, span: Span) -> Left:
    """Run the queries on all rows of a range of keys, from one exchange to the end or to the next exchanges.

    Raises what the engine raises, StoreError.
    """
    with _running(work) as (session, room), ExitStack() as stack:
        before = None if work.state is None else Reader(Opened(stack.enter_context(store.open(work.state))))
        state = State(session, before, fingerprint(work.transform), span)
        stage = Stage(work.step, state, lambda table: _received(work, store, span, table))
        delta = _answered(work, session, state, stage, store, None)
        tables = list[Changed]()
        with Writer(room / "part") as writer:
            if work.step == work.plan.output:
                output = Output(session, delta, work.vocabulary)
                _table(writer, ROWS, output.rows_with_order(work.vocabulary.op))
            for changed, rows in state.changes():
                _table(writer, STATE + changed.name, map(_numbered, rows))
                tables.append(changed)
            writer.finish({})
        left = Left(_stored(work, store, room / "part"), tuple(tables))
        return _sent(work, store, left, session, stage, room) if stage.sent else left


@contextmanager
def _running(work: Work) -> Iterator[tuple[Session, Path]]:
    with TemporaryDirectory(prefix="kubothek-part-", ignore_cleanup_errors=True) as directory:
        session = Session(engine_of(work.transform), Path(directory), work.memory, work.threads)
        try:
            yield session, Path(directory)
        finally:
            session.close()


def _answered(work: Work, session: Session, state: State, stage: Stage, store: Store, part: Range | None) -> Delta:
    """Return the delta for a part of the records, or for none."""

    def given(number: int, each: TransformInput) -> Given:
        if part is None or part.input != number:
            return Given(each.query_alias, each.schema, each.vocabulary, None)

        def rows() -> pa.RecordBatchReader:
            first = each.blocks[0][1] if part.first is None else part.first
            found = work.reads(store, number, first, part.last + 1)
            return pa.RecordBatchReader.from_batches(found.schema, within(part, found, each.vocabulary))

        return Given(each.query_alias, each.schema, each.vocabulary, rows)

    inputs = [given(number, each) for number, each in enumerate(work.inputs)]
    delta = answered(session, state, work.horizon, work.transform, inputs, stage)
    if not work.plan.gathers:
        return delta
    (name,) = stage(session, Inflow(delta.name, [KEY]))
    return replace(delta, name=name)


def _received(work: Work, store: Store, span: Span, table: str) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a range of keys that other parts sent."""
    for key in work.sent:
        with store.open(key) as stream:
            reader = Reader(Opened(stream))
            wanted = segments_of(span, _firsts(reader, table))
            yield from (of_span(span, batch) for _, batch in reader.segments(table, wanted))


def _firsts(reader: Reader, table: str) -> list[bytes]:
    """Return the first key of each segment of the rows that a part sent."""
    stored = reader.tables.get(table)
    found: list[Any] = [] if stored is None else stored.index.column(SORT).to_pylist()
    return found


def _numbered(row: tuple[int, pa.RecordBatch]) -> pa.RecordBatch:
    number, batch = row
    return batch.append_column(SEGMENT, pa.repeat(pa.scalar(number, pa.int64()), batch.num_rows))


def _table(writer: Writer, name: str, batches: Iterable[pa.RecordBatch]) -> None:
    table = writer.table(name, {})
    for batch in batches:
        table.add(batch)
    table.close()


def _sent(work: Work, store: Store, left: Left, session: Session, stage: Stage, room: Path) -> Left:
    """Store the rows for other exchanges, and return the result with them."""
    file = room / "sent"
    with Writer(file) as writer:
        for table, query in stage.sent.items():
            _table(writer, table, session.rows(query))
        writer.finish({})
    reader = Reader(Mapped(file))
    keys = {table: tuple(_firsts(reader, table)) for table in stage.sent}
    return replace(left, sent=_stored(work, store, file), keys=keys)


def _stored(work: Work, store: Store, file: Path) -> str:
    """Store a file under a unique name: a part may run twice, also at the same time."""
    key = work.directory + uuid4().hex
    with file.open("rb") as content:
        store.upload(key, content)
    return key
