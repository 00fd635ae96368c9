"""A chain from an Arrow schema over an ODF schema to an upsert stream: exchanged, continued, and derived from."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kubothek.odf import Layout, verify
from kubothek.odf.dataset import Root, Table, export
from kubothek.odf.spec.blocks import Dialect
from kubothek.odf.spec.events import AddPushSource, DisablePushSource, SetDataSchema
from kubothek.odf.spec.sources import MergeStrategyUpsertStream, ReadStepNdJson
from kubothek.odf.spec.versions import SpecVersion
from kubothek.odf.sync import Reach, StoreRepository, pull, pull_remote, push_remote
from kubothek.storage import Store
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys
from tests.gateway.running import WRITER, running
from tests.odf.dataset.planes import LAYOUT, UUID, made, opened, planes, push, sound, table
from tests.odf.derived.world import derived, settle, transform

pytestmark = pytest.mark.slow

UPSERTS = AddPushSource(
    source_name="upserts",
    read=ReadStepNdJson(ddl_schema=("id INT", "model STRING", "seats BIGINT")),
    merge=MergeStrategyUpsertStream(primary_key=("id",)),
)


def seats(*values: int | None) -> pa.Array[Any]:
    return pa.array(values, pa.int64())


def mixed(store: Store) -> None:
    """Arrow schema and Snapshot; then ODF schema with another column; then an upsert stream."""
    made(store, version=SpecVersion.V0_34)
    push(store, {1: "A", 2: "B"})
    opened(store).write_in(SpecVersion.V0_39)
    opened(store).push(planes({1: "A", 2: "B2"}, seats=seats(7, 8)))
    opened(store).append_events([DisablePushSource(source_name="default"), UPSERTS])
    opened(store).push(planes({2: "B3", 3: "C"}, seats=seats(8, 9)), "upserts")


def test_chain_of_mixed_versions_is_exchanged_continued_and_equal(store: Store, other: Store) -> None:
    mixed(store)
    verdict = sound(store)
    assert table(store) == {1: "A", 2: "B3", 3: "C"}
    blocks = [*opened(store).blocks()][::-1]
    schemas = [each.content.event for each in blocks if isinstance(each.content.event, SetDataSchema)]
    assert [each.schema is None for each in schemas] == [True, False]
    assert {each.dialect for each in blocks} == set(Dialect)
    assert all(each.canonical for each in blocks)

    export(opened(store), other, "there/")
    assert verify(other, Layout("there/")).sound
    pull(other, DatasetLog(other, UUID), StoreRepository(store, LAYOUT), table=Table())
    copy = Root(other, DatasetLog(other, UUID))
    assert [each.data for each in copy.blocks()] == [each.data for each in opened(store).blocks()]
    assert verify(other, LAYOUT).records == verdict.records
    assert table(other) == table(store)

    copy.push(planes({3: "C2", 4: "D"}, seats=seats(9, None), op=pa.array([0, 0], pa.int32())), "upserts")
    assert copy.push(planes({1: None}, seats=seats(None), op=pa.array([1], pa.int32())), "upserts").records == 1
    sound(other)
    pull(store, DatasetLog(store, UUID), StoreRepository(other, LAYOUT), table=Table())
    assert opened(store).state.head == Root(other, DatasetLog(other, UUID)).state.head
    assert table(store) == table(other) == {2: "B3", 3: "C2", 4: "D"}
    sound(store)


def test_chain_of_mixed_versions_is_pushed_and_pulled_back(store: Store, other: Store) -> None:
    mixed(store)
    with running(other) as gateway:
        push_remote(opened(store), gateway.smart("fresh"), reach=Reach(token=WRITER))
        copy = Root(other, DatasetLog(other, "fresh"))
        assert [each.data for each in copy.blocks()] == [each.data for each in opened(store).blocks()]
        copy.push(planes({3: "C2"}, seats=seats(9), op=pa.array([0], pa.int32())), "upserts")
        pull_remote(store, DatasetLog(store, UUID), gateway.smart("fresh"), reach=Reach(token=WRITER), table=Table())
    sound(store)
    assert verify(other, Layout(keys.chain("fresh"))).head == opened(store).state.head
    assert table(store) == {1: "A", 2: "B3", 3: "C2"}


def test_chain_of_mixed_versions_is_derived_from(store: Store) -> None:
    mixed(store)
    derived(store, "late", transform("SELECT event_time, id, model FROM planes", UUID))
    settle(store)
    opened(store).push(planes({4: "D"}, seats=seats(1)), "upserts")
    settle(store)
    found = verify(store, Layout(keys.chain("late")))
    assert found.sound
    assert found.records == opened(store).state.next_offset
