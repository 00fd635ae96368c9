"""An engine of another party, as a substitute for our own (EN-12 … EN-17, EN-20)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from kubothek.errors import InputError
from kubothek.odf.dataset.slicing import empty_file
from kubothek.odf.derived.batching import InputBatch
from kubothek.odf.derived.running import OCI, OURS_BEGIN, Task
from kubothek.odf.engines.calling import transformed
from kubothek.odf.engines.returned import returned_rows, returned_watermark
from kubothek.odf.engines.volume import Volume
from kubothek.odf.spec import engine_messages as messages
from kubothek.odf.spec.engine_wire import VOLUME
from kubothek.odf.spec.events import OffsetInterval
from kubothek.odf.transform import TransformRequest, TransformResult
from kubothek.odf.validation.state import Vocabulary
from kubothek.storage import Store

PATIENCE: Final = 300.0
TIMEOUT: Final = 3600.0


class ForeignEngine:
    """Engine in another container.

    ``address``   ``host:port`` on which it listens within ``patience`` seconds
    ``image``     its image, with the digest if known: recorded in the chain (EN-11)
    ``alias``     of the dataset, for the engine's log
    ``volume``    the shared directory, mounted at the same path on both sides
    ``timeout``   seconds that a run may take
    ``told``      called at each progress response
    """

    def __init__(
        self,
        address: str,
        image: str,
        *,
        alias: str,
        volume: Path = Path(VOLUME),
        patience: float = PATIENCE,
        timeout: float = TIMEOUT,
        told: Callable[[], None] = lambda: None,
    ) -> None:
        self.version = f"{OCI}{image}"
        self._address = address
        self._alias = alias
        self._volume = Volume(volume)
        self._patience = patience
        self._timeout = timeout
        self._told = told

    def succeeds(self, version: str | None) -> bool:
        """Return whether it replaces the engine of this version; a version that a user set is kept."""
        return version is None or version.startswith((OCI, OURS_BEGIN))

    def goes_on_from(self, version: str | None) -> bool:
        """Return whether it may receive a state of this version; the engine itself accepts or rejects that state."""
        return version is None or not version.startswith(OURS_BEGIN)

    def execute(self, store: Store, task: Task, request: TransformRequest) -> TransformResult:
        """Execute one run; the response is validated first.

        Raises TransformInvalid, EngineFailed, EngineMisbehaved, InputMissing, StoreError.
        """
        self._volume.clear()
        answer = transformed(
            self._address,
            self._message(store, task, request.checkpoint),
            patience=self._patience,
            timeout=self._timeout,
            told=self._told,
        )
        data = request.scratch / "data"
        there = self._volume.take(self._volume.data, data)
        watermark = returned_watermark(task, answer, remembers=request.checkpoint is not None)
        rows = returned_rows(task, answer, data if there else None)
        checkpoint = self._volume.take(self._volume.checkpoint, request.new_checkpoint)
        self._volume.clear()
        return TransformResult(rows=rows, watermark=watermark, checkpoint=checkpoint)

    def _message(self, store: Store, task: Task, checkpoint: Path | None) -> messages.TransformRequest:
        before = None if checkpoint is None else self._volume.give_file("checkpoint", checkpoint)
        return messages.TransformRequest(
            dataset_id=task.dataset_id,
            dataset_alias=self._alias,
            system_time=task.system_time,
            vocab=_vocabulary(task.vocabulary),
            transform=task.transform,
            query_inputs=tuple(self._inputs(store, task.batch.inputs)),
            next_offset=task.next_offset,
            prev_checkpoint_path=before,
            new_checkpoint_path=str(self._volume.checkpoint),
            new_data_path=str(self._volume.data),
        )

    def _inputs(self, store: Store, inputs: Sequence[InputBatch]) -> list[messages.TransformRequestInput]:
        return [self._input(store, number, each) for number, each in enumerate(inputs)]

    def _input(self, store: Store, number: int, each: InputBatch) -> messages.TransformRequestInput:
        schema = each.shape.schema
        if schema is None:
            raise InputError(f"input {each.alias!r} has no columns yet: an engine is asked when it has")
        interval = None
        if each.blocks:
            interval = OffsetInterval(start=each.blocks[0][1], end=each.blocks[-1][2])
        return messages.TransformRequestInput(
            dataset_id=each.id,
            dataset_alias=each.alias,
            query_alias=each.alias,
            vocab=_vocabulary(each.shape.vocabulary),
            offset_interval=interval,
            data_paths=tuple(self._volume.give_slice(store, part.key) for part in each.parts),
            schema_file=self._volume.give(f"schema-{number}", memoryview(empty_file(schema, each.shape.vocabulary))),
            explicit_watermarks=tuple(
                messages.Watermark(system_time=moment, event_time=mark) for moment, mark in each.watermarks
            ),
        )


def _vocabulary(names: Vocabulary) -> messages.DatasetVocabulary:
    return messages.DatasetVocabulary(
        offset_column=names.offset,
        operation_type_column=names.op,
        system_time_column=names.system_time,
        event_time_column=names.event_time,
    )
