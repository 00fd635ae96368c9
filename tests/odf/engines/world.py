"""An engine that listens, and a derivative's two ways to be run: in the process, and through the contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from kubothek.odf.dataset.slicing import Types, numbered, slice_file, slice_schema
from kubothek.odf.derived import Pulled, inputs_of
from kubothek.odf.derived.running import OURS, Engine, Task
from kubothek.odf.engines import ForeignEngine
from kubothek.odf.engines.server.service import EngineServer
from kubothek.odf.engines.server.transforming import split
from kubothek.odf.transform import TransformRequest, TransformResult
from kubothek.storage import Store
from tests.odf.derived.world import derived, opened, transform

IMAGE = "ghcr.io/acme/engine@sha256:" + "5" * 64
LONG = 60.0


@contextmanager
def serving(volume: Path) -> Iterator[str]:
    """The address of our engine, which sees this directory."""
    volume.mkdir(exist_ok=True)
    with EngineServer("127.0.0.1:0", str(volume)) as server:
        yield f"127.0.0.1:{server.port}"


def driven(address: str, volume: Path, *, timeout: float = LONG, patience: float = LONG) -> ForeignEngine:
    """An engine of another party, as a coordinator of ours drives it."""
    return ForeignEngine(address, IMAGE, alias="late", volume=volume, timeout=timeout, patience=patience)


def declared(store: Store, query: str, *inputs: str | tuple[str, str], name: str = "late") -> None:
    """A derivative that another engine is to run."""
    derived(store, name, transform(query, *inputs, engine="spark"), foreign=True)


def pull(store: Store, engine: Engine, name: str = "late") -> Pulled:
    return opened(store, name).pull(inputs_of(store), engine=engine)


class Both:
    """Runs everything twice: through the contract, and in this process. What differs is an error."""

    def __init__(self, foreign: ForeignEngine) -> None:
        self.version = foreign.version
        self._foreign = foreign
        self.runs = 0
        self.files = 0
        self.states = 0

    def succeeds(self, version: str | None) -> bool:
        return self._foreign.succeeds(version)

    def goes_on_from(self, version: str | None) -> bool:
        return self._foreign.goes_on_from(version)

    def execute(self, store: Store, task: Task, request: TransformRequest) -> TransformResult:
        found = self._foreign.execute(store, task, request)
        rows = found.rows.read_all()
        ours = self._in_process(store, task, request)
        expected = ours.rows.read_all()
        data, checkpoint = _content(request.scratch / "data"), _content(request.new_checkpoint)
        assert found.watermark == ours.watermark
        if not expected.num_rows:
            assert not data
        else:
            assert data == _slice(expected, task), "the file that the engine left is the slice, byte for byte"
        state = _state_of(checkpoint, request.scratch)
        assert state == (_own(request).read_bytes() if ours.checkpoint else None), "and so is its state"
        self.runs += 1
        self.files += bool(data)
        self.states += state is not None
        reader = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches())
        return TransformResult(rows=reader, watermark=found.watermark, checkpoint=found.checkpoint)

    def _in_process(self, store: Store, task: Task, request: TransformRequest) -> TransformResult:
        checkpoint = None
        if request.checkpoint is not None:
            with request.checkpoint.open("rb") as file:
                _, checkpoint = split(file, request.scratch / "split")
        own = TransformRequest(
            transform=request.transform,
            vocabulary=request.vocabulary,
            inputs=request.inputs,
            system_time=request.system_time,
            previous_watermark=request.previous_watermark,
            checkpoint=checkpoint,
            new_checkpoint=_own(request),
            scratch=request.scratch,
        )
        return OURS.execute(store, task, own)


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _own(request: TransformRequest) -> Path:
    return request.scratch / "own"


def _slice(rows: pa.Table, task: Task) -> bytes:
    schema = slice_schema(rows.schema, task.vocabulary, Types.KAMU)
    (batch,) = rows.combine_chunks().to_batches()
    made = numbered(batch, schema, task.vocabulary, task.next_offset, task.system_time)
    return slice_file(pa.Table.from_batches([made]), task.vocabulary).to_pybytes()


def _state_of(checkpoint: bytes, scratch: Path) -> bytes | None:
    if not checkpoint:
        return None
    whole = scratch / "whole"
    whole.write_bytes(checkpoint)
    with whole.open("rb") as file:
        _, state = split(file, scratch / "state")
    return None if state is None else state.read_bytes()
