"""Our own engine, with large runs divided over many processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from kubothek.odf.derived.batching import Batch
from kubothek.odf.derived.running import OURS, Task, records_of
from kubothek.odf.distributed.transform import Crew, execute_divided, plan_of
from kubothek.odf.distributed.transform.running import PART_RECORDS
from kubothek.odf.transform import ENGINE_VERSION, TransformRequest, TransformResult
from kubothek.storage import Store
from kubothek.storage.parallel import Spread
from kubothek.table.log.model import keys


@dataclass(slots=True)
class DividedEngine:
    """Engine that divides large runs. Its output is byte-identical to that of one process, so the version is the same.

    ``uuid``        of the derivative dataset
    ``spread``      called for each run to divide; returns the same each time
    ``from_bytes``  size of a run's slices from which it is divided
    ``records``     approximate number of records in a part
    ``divided``     number of divided runs so far, and ``whole``, of large runs that could not be divided
    """

    uuid: str
    spread: Callable[[], Spread]
    from_bytes: int
    records: int = PART_RECORDS
    version: str = ENGINE_VERSION
    divided: int = field(default=0, init=False)
    whole: int = field(default=0, init=False)

    def succeeds(self, version: str | None) -> bool:
        """Return the answer of our own engine."""
        return OURS.succeeds(version)

    def goes_on_from(self, version: str | None) -> bool:
        """Return the answer of our own engine."""
        return OURS.goes_on_from(version)

    def execute(self, store: Store, task: Task, request: TransformRequest) -> TransformResult:
        """Execute one run. Raises what our own engine raises, and what the spread raises."""
        if task.batch.bytes < self.from_bytes or not task.batch.records:
            return OURS.execute(store, task, request)
        plan = plan_of(request)
        if plan.division is None:
            self.whole += 1
            return OURS.execute(store, task, request)
        self.divided += 1
        crew = Crew(spread=self.spread(), store=store, directory=keys.parts(self.uuid), records=self.records)
        return execute_divided(request, plan, _Slices(task.batch), crew)


@dataclass(frozen=True, slots=True)
class _Slices:
    """Reader of a batch's records."""

    batch: Batch

    def __call__(self, store: Store, number: int, first: int, last: int) -> pa.RecordBatchReader:
        return records_of(store, self.batch.inputs[number], first, last)
