"""Request and result of the engine of derivative datasets, as plain data (EN-06, EN-12 … EN-15)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.sources import TransformSql
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.validation.state import Vocabulary

Records: TypeAlias = Callable[[], pa.RecordBatchReader]
"""Returns a new reader of all records at each call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformInput:
    """One input, and its new part.

    ``query_alias``         its name in queries
    ``vocabulary``          that of the input
    ``schema``              as its SetDataSchema says: [offset, op, system_time, event_time, data…]
    ``rows``                the records of the interval in the order of their offsets, columns as in ``schema``;
                            None: no records
    ``watermarks``          (system time, watermark) of each data block of the interval with one, oldest first (DT-04)
    ``blocks``              (system time, first offset, last offset) of each data block of the interval with records
    ``previous_watermark``  that of the input before the interval, None if it had none
    """

    id: DatasetId
    alias: str
    query_alias: str
    vocabulary: Vocabulary
    schema: pa.Schema
    rows: Records | None
    watermarks: Sequence[tuple[Timestamp, Timestamp]]
    blocks: Sequence[tuple[Timestamp, int, int]]
    previous_watermark: Timestamp | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformRequest:
    """One run.

    ``vocabulary``          that of the output
    ``system_time``         of the run; the result must not depend on it, so it is not used for data
    ``previous_watermark``  that of the output before this run
    ``checkpoint``          that of the previous run; None if there is no previous run, or it left none
    ``new_checkpoint``      where this run writes its checkpoint
    ``scratch``             a directory for data that does not fit into memory
    """

    transform: TransformSql
    vocabulary: Vocabulary
    inputs: Sequence[TransformInput]
    system_time: Timestamp
    previous_watermark: Timestamp | None
    checkpoint: Path | None
    new_checkpoint: Path
    scratch: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformResult:
    """The result of a run.

    ``rows``        [op: int32, event_time, data…] in their final order, perhaps none; to be read once, to the end.
                    An engine that returns no rows may leave out the columns
    ``watermark``   the least of the inputs', None until all have one; never below the previous one
    ``checkpoint``  whether ``new_checkpoint`` is written; it is complete before the rows are read
    """

    rows: pa.RecordBatchReader
    watermark: Timestamp | None
    checkpoint: bool
