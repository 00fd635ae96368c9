"""The version of the specification in which a chain is written: chosen, kept, raised by what the chain gets."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kubothek.errors import EventInvalid
from kubothek.odf.dataset import Root, create
from kubothek.odf.spec.blocks import Dialect
from kubothek.odf.spec.events import AddData, AddPushSource, SetDataSchema
from kubothek.odf.spec.sources import MergeStrategyUpsertStream, ReadStepNdJson
from kubothek.odf.spec.versions import SpecVersion
from kubothek.storage import Store
from kubothek.table.log import DatasetLog
from tests.odf.dataset.planes import OWNER, SNAPSHOT, UUID, begun, made, opened, planes, push, sound, source, table

pytestmark = pytest.mark.slow

UPSERTS = AddPushSource(
    source_name="upserts",
    read=ReadStepNdJson(ddl_schema=("id INT", "model STRING")),
    merge=MergeStrategyUpsertStream(primary_key=("id",)),
)


def forms(root: Root) -> list[tuple[str, Dialect]]:
    """The events and manifests, oldest first; an ODF schema as such."""
    found = [
        (
            "ODF" if isinstance(event := block.content.event, SetDataSchema) and event.schema else event.kind,
            block.dialect,
        )
        for block in root.blocks()
    ]
    return found[::-1]


def test_new_chain_is_written_in_the_newest_version(store: Store) -> None:
    made(store)
    assert push(store, {1: "A"}).records == 1
    names = ["Seed", "AddPushSource", "SetInfo", "ODF", "AddData"]
    assert forms(opened(store)) == [(name, Dialect.ALIGNED) for name in names]
    assert opened(store).state.version == SpecVersion.V0_39, "the head keeps it"
    sound(store)
    push(store, {1: "B"})
    assert table(store) == {1: "B"}
    assert opened(store).compact().blocks
    assert {dialect for _, dialect in forms(opened(store))} == {Dialect.ALIGNED}
    sound(store)


def test_chain_is_upgraded_in_the_middle_and_back(store: Store) -> None:
    made(store, version=SpecVersion.V0_34)
    push(store, {1: "A"})
    old = forms(opened(store))
    assert {dialect for _, dialect in old} == {Dialect.UNALIGNED}
    root = opened(store)
    head = root.state.head
    assert not root.write_in(SpecVersion.V0_34).version > root.snapshot.version
    assert root.write_in(SpecVersion.V0_39).head == head, "no block says so"
    push(store, {1: "A", 2: "B"})
    assert forms(opened(store)) == [*old, ("AddData", Dialect.ALIGNED)], "the columns are the same"
    wider = planes({1: "A", 2: "B"}, seats=pa.array([7, 8], pa.int64()))
    assert opened(store).push(wider).records
    assert forms(opened(store))[-2:] == [("ODF", Dialect.ALIGNED), ("AddData", Dialect.ALIGNED)]
    sound(store)
    opened(store).write_in(SpecVersion.V0_34)
    assert opened(store).state.version == SpecVersion.V0_34
    opened(store).push(planes({3: "C"}, seats=pa.array([9], pa.int64())))
    event, dialect = forms(opened(store))[-1]
    assert (event, dialect) == (AddData.kind, Dialect.UNALIGNED)
    sound(store)


def test_event_of_a_later_version_raises_the_version(store: Store) -> None:
    made(store, version=SpecVersion.V0_34)
    push(store, {1: "A"})
    assert opened(store).state.version is None
    opened(store).append_events([UPSERTS])
    root = opened(store)
    assert root.state.version == SpecVersion.V0_37
    assert forms(root)[-1] == ("AddPushSource", Dialect.UNALIGNED)
    push(store, {1: "B"})
    assert forms(opened(store))[-1] == ("AddData", Dialect.ALIGNED)


def test_event_that_the_chosen_version_lacks_is_refused(store: Store) -> None:
    snapshot = begun(source(SNAPSHOT), UPSERTS)
    with pytest.raises(EventInvalid, match=r"AddPushSource needs version 0\.37 .* written in version 0\.34"):
        create(store, DatasetLog(store, UUID), snapshot, OWNER, version=SpecVersion.V0_34)
    create(store, DatasetLog(store, UUID), snapshot, OWNER, version=SpecVersion.V0_37)
