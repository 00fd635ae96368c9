"""One run of the engine, for a commit or its replay: a batch goes in, records and a checkpoint come out.

The SQL of a chain may be another party's. Our engine runs it in a worker process, under limits that the kernel keeps.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import (
    InputMissing,
    LakeError,
    ObjectNotFound,
    StoreError,
    TransformTooLarge,
    UnsupportedVersion,
    VersionIncomplete,
)
from kubothek.odf.chain import ADVICE
from kubothek.odf.derived.batching import Batch, InputBatch
from kubothek.odf.spec.decode import NEWER, REMEDY
from kubothek.odf.spec.events import Checkpoint
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.multihash import Codec, Multihash
from kubothek.odf.spec.sources import Transform, TransformSql
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.transform import ENGINE_VERSION, TransformInput, TransformRequest, TransformResult, execute
from kubothek.odf.validation.state import Vocabulary
from kubothek.odf.view import History, Part
from kubothek.sandbox import limited
from kubothek.sandbox.arrow import as_arrow, from_arrow
from kubothek.sandbox.limited import Ask, Cause, Work
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.storage.hashed import hashed

MEMORY: Final = 4 << 30
"""Bytes of a worker, 1 GB of which is its database's."""
SECONDS: Final = 3600.0
"""Until a worker is stopped."""
_IN_A_POD: Final = "KUBERNETES_SERVICE_HOST"
"""The kubelet sets this variable in every container."""
_CHUNK: int = 1 << 22
OURS_BEGIN: Final = "kubothek-"
OCI: Final = "oci://"
"""Prefixes of the versions of our own engine, and of images that a coordinator ran by the engine contract (EN-11)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Input of a run: exactly what its result depends on. Plain data, serialisable.

    ``vocabulary``  of the output, ``previous_watermark`` that it had before
    ``dataset_id``  of the output, ``next_offset`` of its first new record: passed on to engines of other parties
    """

    transform: TransformSql
    vocabulary: Vocabulary
    batch: Batch
    system_time: Timestamp
    previous_watermark: Timestamp | None
    dataset_id: DatasetId
    next_offset: int


class Engine(Protocol):
    """Engine for transformations. ``version``: as in a chain (EN-11)."""

    version: str

    def succeeds(self, version: str | None) -> bool:
        """Return whether it replaces the engine of this version; the chain then records its own version."""

    def goes_on_from(self, version: str | None) -> bool:
        """Return whether it accepts a state of the engine of this version."""

    def execute(self, store: Store, task: Task, request: TransformRequest) -> TransformResult:
        """Execute one run: ``task``, with files for it in ``request``."""


class _Ours:
    """The engine of this project; a state that is none of its own it refuses itself.

    It runs in a worker. In a pod it runs in process: there the kubelet and the kernel limit time and memory, by the
    pod's deadline and its cgroup. So it does on a platform without workers.
    """

    version: str = ENGINE_VERSION

    def succeeds(self, version: str | None) -> bool:
        return version is not None and version.startswith((OURS_BEGIN, OCI))

    def goes_on_from(self, version: str | None) -> bool:
        return True

    def execute(self, store: Store, task: Task, request: TransformRequest) -> TransformResult:
        in_process = _IN_A_POD in os.environ or not limited.available()
        return execute(request) if in_process else _in_worker(store, task, request)


OURS: Final[Engine] = _Ours()


@dataclass(frozen=True, slots=True)
class Run:
    """Result of a run; its rows can be read once. The checkpoint exists before they are read."""

    result: TransformResult
    _path: Path

    @property
    def checkpoint_file(self) -> Path | None:
        """Return the new checkpoint; None if there is none."""
        return self._path if self.result.checkpoint else None


@contextmanager
def running(
    store: Store,
    task: Task,
    checkpoint: Path | None,
    engine: Engine = OURS,
) -> Iterator[Run]:
    """Execute the run; its files exist for the duration of the context.

    ``checkpoint``  that the run before left

    Raises TransformInvalid and what the engine raises, InputMissing if a slice of an input is gone, StoreError.
    """
    with TemporaryDirectory(prefix="kubothek-transform-", ignore_cleanup_errors=True) as directory:
        new = Path(directory) / "checkpoint"
        scratch = Path(directory) / "scratch"
        scratch.mkdir()
        request = request_of(store, task, checkpoint, new, scratch)
        yield Run(engine.execute(store, task, request), new)


def request_of(store: Store, task: Task, checkpoint: Path | None, new: Path, scratch: Path) -> TransformRequest:
    """What an engine is given of a task."""
    return TransformRequest(
        transform=task.transform,
        vocabulary=task.vocabulary,
        inputs=tuple(given(store, each) for each in task.batch.inputs),
        system_time=task.system_time,
        previous_watermark=task.previous_watermark,
        checkpoint=checkpoint,
        new_checkpoint=new,
        scratch=scratch,
    )


def sql_of(transform: Transform) -> TransformSql:
    """Return the SQL. Raises UnsupportedVersion for a transformation of a later version of the specification."""
    if not isinstance(transform, TransformSql):
        raise UnsupportedVersion(f"the transformation is {NEWER}; {REMEDY}")
    return transform


def given(store: Store, each: InputBatch) -> TransformInput:
    """Return one input in the form for an engine."""
    schema = each.shape.schema
    assert schema is not None, "there is data, and a schema before it"
    read = History(store, each.parts, each.shape.vocabulary, schema, records=each.records).as_read(schema.names)

    def records() -> pa.RecordBatchReader:
        return records_of(store, each)

    return TransformInput(
        id=each.id,
        alias=each.alias,
        query_alias=each.alias,
        vocabulary=each.shape.vocabulary,
        schema=read,
        rows=records if each.parts else None,
        watermarks=each.watermarks,
        blocks=each.blocks,
        previous_watermark=each.previous_watermark,
    )


def records_of(
    store: Store,
    each: InputBatch,
    first: int | None = None,
    last: int | None = None,
    *,
    where: pc.Expression | None = None,
) -> pa.RecordBatchReader:
    """Return the records of an input in a batch, ordered by offset: all of them, those from ``first`` to ``last``, or
    those that match ``where``. Raises InputMissing while reading.
    """
    schema, names = each.shape.schema, each.shape.vocabulary
    assert schema is not None, "there is data, and a schema before it"
    parts = each.parts
    if first is not None and last is not None:
        parts = tuple(part for part in parts if part.start <= last and part.end >= first)
        where = (pc.field(names.offset) >= first) & (pc.field(names.offset) <= last)
    history = History(store, parts, names, schema, records=each.records)
    batches = readable(store, each.alias, parts, history.scan(schema.names, where))
    return pa.RecordBatchReader.from_batches(history.as_read(schema.names), batches)


def readable(
    store: Store, alias: str, parts: Sequence[Part], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of slices; a read error becomes InputMissing if a slice, not the store, is at fault."""
    try:
        yield from batches
    except (VersionIncomplete, StoreError) as error:
        for part in parts:
            if (wrong := _damage(store, part)) is not None:
                raise InputMissing(f"a slice of input {alias!r} {wrong}: {part.key}; {ADVICE}") from error
        raise


def _damage(store: Store, part: Part) -> str | None:
    """Return what is wrong with a slice, None if it is sound. Raises StoreError."""
    try:
        with hashed(store, part.key) as found:
            named = str(Multihash(Codec.SHA3_256, found.digest))
            return None if part.key.endswith(named) else "is damaged"
    except ObjectNotFound:
        return "is gone"


# --- workers ---------------------------------------------------------------------------------------------------------

limited.preload(__name__)
limited.preload("kubothek.storage.s3", if_loaded=True)


def _in_worker(store: Store, task: Task, request: TransformRequest) -> TransformResult:
    work = limited.run(
        _executed,
        store.config,
        task,
        request.checkpoint,
        request.new_checkpoint,
        request.scratch,
        memory=MEMORY,
        seconds=SECONDS,
        named=_ended,
        maps_files=True,  # checkpoints
    )
    try:
        head = b""
        while b"\n" not in head:
            head += next(work)
        told, _, first = head.partition(b"\n")
        watermark, checkpoint = orjson.loads(told)
        rows = from_arrow(chain([first] if first else [], work))
    except BaseException:
        work.close()
        raise
    reader = pa.RecordBatchReader.from_batches(rows.schema, _closing(rows, work))
    return TransformResult(
        rows=reader, watermark=None if watermark is None else Timestamp(watermark), checkpoint=checkpoint
    )


def _closing(rows: pa.RecordBatchReader, work: Work) -> Iterator[pa.RecordBatch]:
    try:
        yield from rows
    finally:
        work.close()


def _executed(
    ask: Ask, config: StoreConfig, task: Task, checkpoint: Path | None, new: Path, scratch: Path
) -> Iterator[bytes]:
    """In a worker: the run. Its files are the caller's, who removes them."""
    result = execute(request_of(open_store(config), task, checkpoint, new, scratch))
    watermark = None if result.watermark is None else result.watermark.nanoseconds
    yield orjson.dumps([watermark, result.checkpoint]) + b"\n"
    yield from as_arrow(result.rows)


def _ended(cause: Cause) -> LakeError:
    if cause is Cause.TIME:
        return TransformTooLarge(f"the transformation took longer than {SECONDS:g} s and was stopped")
    return TransformTooLarge(f"the transformation needs more than {MEMORY >> 20} MiB of memory and was stopped")


# --- checkpoints -----------------------------------------------------------------------------------------------------


def fetch_checkpoint(store: Store, layout: Layout, physical: Multihash, path: Path) -> None:
    """Download a checkpoint into a file. Raises InputMissing if it is gone or has another hash."""
    key, hasher = layout.checkpoint(physical), hashlib.sha3_256()
    try:
        with store.open(key) as source, path.open("wb") as file:
            while chunk := source.read(_CHUNK):
                hasher.update(chunk)
                file.write(chunk)
    except ObjectNotFound:
        raise InputMissing(f"there is no {key}; restore rebuilds it from the inputs") from None
    if Multihash(Codec.SHA3_256, hasher.digest()) != physical:
        raise InputMissing(f"checkpoint {key} is damaged: delete it, then restore rebuilds it from the inputs")


def checkpoint_of(path: Path) -> Checkpoint:
    """Return the checkpoint as in an event."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha3_256").digest()
    return Checkpoint(physical_hash=Multihash(Codec.SHA3_256, digest), size=path.stat().st_size)


def store_checkpoint(store: Store, layout: Layout, checkpoint: Checkpoint, path: Path) -> None:
    """Store a checkpoint under its hash. Raises StoreError."""
    with path.open("rb") as file:
        store.upload(layout.checkpoint(checkpoint.physical_hash), file)
