"""A small ledger for tests: planes by their number, under any merge strategy."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pyarrow as pa

from kubothek.odf import Layout, Multihash, OwnerKey, Verdict, verify
from kubothek.odf.dataset import Ingested, Root, Rows, again, create
from kubothek.odf.problems import Severity
from kubothek.odf.spec.events import AddPushSource, DatasetKind, DatasetSnapshot, MetadataEvent, SetInfo
from kubothek.odf.spec.sources import (
    MergeStrategy,
    MergeStrategyAppend,
    MergeStrategyLedger,
    MergeStrategySnapshot,
    ReadStepNdJson,
)
from kubothek.storage import Store
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys
from kubothek.table.scan.read import scan

UUID = "planes"
LAYOUT = Layout(keys.chain(UUID))
OWNER = OwnerKey(bytes(range(32)))
APPEND = MergeStrategyAppend()
LEDGER = MergeStrategyLedger(primary_key=("id",))
SNAPSHOT = MergeStrategySnapshot(primary_key=("id",))


def source(merge: MergeStrategy, name: str = "default") -> AddPushSource:
    return AddPushSource(source_name=name, read=ReadStepNdJson(ddl_schema=("id INT", "model STRING")), merge=merge)


def begun(*events: MetadataEvent) -> DatasetSnapshot:
    return DatasetSnapshot(name=UUID, kind=DatasetKind.ROOT, metadata=(*events, SetInfo(description="Planes")))


def log_of(store: Store) -> DatasetLog:
    """With a clock of its own that goes on by a second each time, so that blocks of two commits never have one time."""
    seconds = count()
    start = datetime.now(UTC)
    return DatasetLog(store, UUID, clock=lambda: start + timedelta(seconds=next(seconds)))


def made(store: Store, merge: MergeStrategy = SNAPSHOT, **options: Any) -> Root:
    return create(store, DatasetLog(store, UUID), begun(source(merge)), OWNER, **options)


def opened(store: Store, **options: Any) -> Root:
    return Root(store, DatasetLog(store, UUID), **options)


def planes(models: Mapping[int, str | None], **columns: Any) -> Rows:
    names = pa.table({"id": pa.array([*models], pa.int32()), "model": pa.array([*models.values()], pa.string())})
    for name, values in columns.items():
        names = names.append_column(name, values)
    return again(names)


def push(store: Store, models: Mapping[int, str | None], commit_id: str | None = None) -> Ingested:
    """As a job would: with nothing in its hands but the store."""
    return opened(store).push(planes(models), commit_id=commit_id)


def table(store: Store) -> dict[int, str]:
    """What the view shows, by number. Fails if a number is there twice."""
    rows = scan(store, DatasetLog(store, UUID).snapshot(), ["id", "model"], None).read_all().to_pydict()
    numbers, models = rows["id"], rows["model"]
    assert len(set(numbers)) == len(numbers), rows
    return dict(zip(numbers, models, strict=True))


def sound(store: Store, layout: Layout = LAYOUT) -> Verdict:
    """The chain that the head names is sound, with nothing that the reference would refuse or that is worth a note."""
    named = DatasetLog(store, UUID).snapshot().head.chain
    assert named is not None
    verdict = verify(store, layout, Multihash.parse(named.head), threads=1)
    assert not [each for each in verdict.problems if each.severity >= Severity.REFUSED], verdict.problems
    assert not [each for each in verdict.problems if each.rule != "PS-03"], verdict.problems
    assert named.length == verdict.blocks
    assert named.offset == (verdict.records - 1 if verdict.records else None)
    return verdict
