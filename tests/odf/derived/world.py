"""Small ledgers for tests: flights and carriers come in, and what SQL makes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from kubothek.catalog import Lake
from kubothek.odf import Layout, OwnerKey, Verdict, verify
from kubothek.odf.dataset import Ingested, Root, again
from kubothek.odf.dataset import create as create_root
from kubothek.odf.derived import Derivative, Limits, Pulled, create, inputs_of
from kubothek.odf.problems import Severity
from kubothek.odf.spec.events import (
    AddPushSource,
    DatasetKind,
    DatasetSnapshot,
    ExecuteTransform,
    MetadataEvent,
    SetTransform,
    TransformInput,
)
from kubothek.odf.spec.sources import (
    MergeStrategy,
    MergeStrategyAppend,
    MergeStrategySnapshot,
    ReadStepNdJson,
    TransformSql,
)
from kubothek.storage import Store
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys
from kubothek.table.scan.read import scan

LATE = "SELECT event_time, id, carrier, delay FROM flights WHERE delay > 10"
PER_CARRIER = (
    "SELECT max(event_time) AS event_time, carrier, count(*) AS flights, sum(delay) AS delay "
    "FROM flights GROUP BY carrier"
)
APPEND = MergeStrategyAppend()
SNAPSHOT = MergeStrategySnapshot(primary_key=("id",))
COLUMNS = ("id INT", "carrier STRING", "delay INT")


def owner(name: str) -> OwnerKey:
    return OwnerKey(name.encode().ljust(32, b"."))


def source(merge: MergeStrategy = SNAPSHOT) -> AddPushSource:
    return AddPushSource(source_name="default", read=ReadStepNdJson(ddl_schema=COLUMNS), merge=merge)


def root(store: Store, name: str = "flights", merge: MergeStrategy = SNAPSHOT) -> Root:
    snapshot = DatasetSnapshot(name=name, kind=DatasetKind.ROOT, metadata=(source(merge),))
    return create_root(store, DatasetLog(store, name), snapshot, owner(name))


def rows(flights: Mapping[int, tuple[str, int]], **columns: Any) -> pa.Table:
    made = pa.table(
        {
            "id": pa.array([*flights], pa.int32()),
            "carrier": pa.array([carrier for carrier, _ in flights.values()], pa.string()),
            "delay": pa.array([delay for _, delay in flights.values()], pa.int32()),
        }
    )
    for name, values in columns.items():
        made = made.append_column(name, values)
    return made


def push(store: Store, flights: Mapping[int, tuple[str, int]], name: str = "flights", **columns: Any) -> Ingested:
    return Root(store, DatasetLog(store, name)).push(again(rows(flights, **columns)))


def transform(query: str = LATE, *inputs: str | tuple[str, str], engine: str = "duckdb") -> SetTransform:
    named = [(each, None) if isinstance(each, str) else each for each in inputs or ("flights",)]
    return SetTransform(
        inputs=tuple(TransformInput(dataset_ref=name, alias=alias) for name, alias in named),
        transform=TransformSql(engine=engine, query=query),
    )


def derived(
    store: Store, name: str = "late", event: SetTransform | None = None, *more: MetadataEvent, **options: Any
) -> Derivative:
    metadata = (event or transform(), *more)
    snapshot = DatasetSnapshot(name=name, kind=DatasetKind.DERIVATIVE, metadata=metadata)
    return create(store, DatasetLog(store, name), snapshot, owner(name), inputs_of(store), **options)


def opened(store: Store, name: str = "late") -> Derivative:
    return Derivative(store, DatasetLog(store, name))


def pull(store: Store, name: str = "late", limits: Limits | None = None) -> Pulled:
    """As a job would: with nothing in its hands but the store."""
    return opened(store, name).pull(inputs_of(store), *([limits] if limits else []))


def settle(store: Store, name: str = "late", limits: Limits | None = None) -> int:
    """Run until there is nothing left; how many runs committed something."""
    for runs in range(1000):
        if pull(store, name, limits).done.up_to_date:
            return runs
    raise AssertionError("it never ends")


def table(store: Store, name: str = "late", columns: Sequence[str] = ("id", "carrier", "delay")) -> Counter[Any]:
    """What the view shows."""
    snapshot = DatasetLog(store, name).snapshot()
    if snapshot.schema is None or not snapshot.head.partitions:
        return Counter()
    found = scan(store, snapshot, list(columns), None).read_all().to_pydict()
    return Counter(zip(*(found[column] for column in columns), strict=True))


def answer(store: Store, query: str, columns: Sequence[str] = ("id", "carrier", "delay")) -> Counter[Any]:
    """What plain SQL makes of the present tables of the inputs."""
    found = Lake(store).sql(query).read_all().to_pydict()
    return Counter(zip(*(found[column] for column in columns), strict=True))


def runs(store: Store, name: str = "late") -> list[ExecuteTransform]:
    """The events of its runs, oldest first."""
    events = [block.content.event for block in opened(store, name).blocks()]
    return [event for event in events if isinstance(event, ExecuteTransform)][::-1]


def layout(name: str) -> Layout:
    return Layout(keys.chain(name))


def sound(store: Store, name: str = "late") -> Verdict:
    """The chain is sound, with nothing that the reference would refuse."""
    verdict = verify(store, layout(name), threads=1)
    assert not [each for each in verdict.problems if each.severity >= Severity.REFUSED], verdict.problems
    return verdict
