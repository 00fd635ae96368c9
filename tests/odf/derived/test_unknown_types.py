"""Chains with a column type that this version does not know: no run, plan or ingest takes them for empty ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kubothek.errors import UnsupportedVersion
from kubothek.odf import Block
from kubothek.odf.dataset import Root, again
from kubothek.odf.derived import inputs_of
from kubothek.odf.spec.blocks import Dialect
from kubothek.odf.spec.data_schema import DataField, DataType, DataTypeInt8, DataTypeInt16
from kubothek.odf.spec.events import SetDataSchema
from kubothek.odf.sync import StoreRepository, pull
from kubothek.storage import Store
from kubothek.table.log import DatasetLog
from tests.odf.derived.world import derived, layout, opened, push, root, rows
from tests.odf.derived.world import pull as run
from tests.two_stores import other

__all__ = ["other"]

pytestmark = pytest.mark.slow

_TAG = 99
_NAMED = rf"column 'x': written by a newer version of Open Data Fabric \(data type {_TAG}\); read it with a newer"


def _with_unknown_type(store: Store) -> None:
    """Give a chain one more column, of a type that nobody knows yet."""
    blocks = [*Root(store, DatasetLog(store, "flights")).blocks()]
    last = blocks[0]
    (schema,) = [each.content.event.schema for each in blocks if isinstance(each.content.event, SetDataSchema)]
    assert schema is not None

    def encoded(kind: DataType) -> bytes:
        fields = (*schema.fields, DataField(name="x", type=kind))
        content = replace(
            last.content,
            sequence_number=last.content.sequence_number + 1,
            prev_block_hash=last.hash,
            event=SetDataSchema(schema=replace(schema, fields=fields)),
        )
        return Block.encode(content, Dialect.ALIGNED).data

    one, other = encoded(DataTypeInt8()), encoded(DataTypeInt16())
    (place,) = (number for number, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1])
    block = Block.decode(one[:place] + bytes([_TAG]) + one[place + 1 :])
    store.put(layout("flights").block(block.hash), block.data)
    store.put(layout("flights").head, str(block.hash).encode())


@pytest.mark.parametrize("first", [True, False], ids=["nothing consumed", "more"])
def test_unknown_column_type_is_named_by_runs_and_plans(store: Store, other: Store, first: bool) -> None:
    root(other)
    push(other, {1: ("AA", 20)})
    log = DatasetLog(store, "flights")
    pull(store, log, StoreRepository(other, layout("flights")))
    derived(store)
    if not first:
        assert run(store).done.records == 1
    _with_unknown_type(other)
    pull(store, log, StoreRepository(other, layout("flights")))

    with pytest.raises(UnsupportedVersion, match=f"input 'flights': {_NAMED}"):
        run(store)
    (trouble,) = opened(store).pending(inputs_of(store)).troubles
    assert trouble.code == "UnsupportedVersion"
    with pytest.raises(UnsupportedVersion, match=_NAMED):
        Root(store, log).push(again(rows({2: ("BB", 30)})))
