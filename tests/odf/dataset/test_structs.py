"""Columns of structs by an ODF ``read.schema``: null structs, required fields, lists within them, every strategy."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from kubothek.errors import DataTypeMismatch
from kubothek.odf import verify
from kubothek.odf.dataset import Root, Table, create
from kubothek.odf.ingest.pushing import push_files
from kubothek.odf.sources.readers import FileContent
from kubothek.odf.spec.manifests import read_event
from kubothek.odf.spec.versions import SpecVersion
from kubothek.odf.sync import StoreRepository, pull
from kubothek.storage import Store
from kubothek.table.log import DatasetLog
from kubothek.table.scan.read import scan
from tests.odf.dataset.planes import LAYOUT, OWNER, UUID, begun
from tests.two_stores import other

__all__ = ["other"]

pytestmark = [pytest.mark.slow, pytest.mark.requirement("OS-01", "OS-06")]

PLACE = {
    "kind": "Struct",
    "fields": [
        {"name": "city", "type": "String"},
        {"name": "codes", "type": {"kind": "Option", "inner": {"kind": "List", "itemType": "Int64"}}},
        {"name": "size", "type": {"kind": "Option", "inner": "Int32"}},
    ],
}
FIELDS = [{"name": "id", "type": "Int32"}, {"name": "place", "type": {"kind": "Option", "inner": PLACE}}]
KEYED = ("Ledger", "Snapshot", "UpsertStream")


def placed(store: Store, strategy: str) -> Root:
    merge = {"kind": strategy} | ({"primaryKey": ["id"]} if strategy in KEYED else {})
    read = {"kind": "NdJson", "schema": {"fields": FIELDS}}
    event = {"kind": "AddPushSource", "sourceName": "default", "read": read, "merge": merge}
    return create(store, DatasetLog(store, UUID), begun(read_event(event)), OWNER, version=SpecVersion.V0_39)


def pushed(root: Root, *rows: dict[str, Any]) -> int:
    return push_files(root, [FileContent.of_bytes(b"\n".join(map(orjson.dumps, rows)), "places.ndjson")]).records


def shown(store: Store) -> list[tuple[int, Any]]:
    found = scan(store, DatasetLog(store, UUID).snapshot(), ["id", "place"], None).read_all().to_pylist()
    return sorted(((row["id"], row["place"]) for row in found), key=str)


@pytest.mark.parametrize("strategy", ["Append", *KEYED])
def test_null_structs_with_required_fields_are_kept_and_hashed_as_stored(
    store: Store, other: Store, strategy: str
) -> None:
    root = placed(other, strategy)
    oslo = {"city": "Oslo", "codes": [1, 2], "size": 7}
    assert pushed(root, {"id": 1, "place": oslo}, {"id": 2, "place": None}, {"id": 3, "place": None}) == 3
    empty = {"city": "Rome", "codes": None, "size": None}
    more = pushed(root, {"id": 1, "place": empty}, {"id": 2, "place": None}, {"id": 4, "place": oslo | {"codes": []}})
    assert more == {"Append": 3, "Ledger": 1, "Snapshot": 4, "UpsertStream": 3}[strategy]
    pull(store, DatasetLog(store, UUID), StoreRepository(other, LAYOUT), table=Table())
    for each in (store, other):
        assert verify(each, LAYOUT).problems == (), "no slice has another hash than its event says"
    assert shown(store) == shown(other)
    assert (4, oslo | {"codes": []}) in shown(store)
    assert (2, None) in shown(store)


@pytest.mark.parametrize("strategy", ["Append", "Snapshot"])
def test_required_field_that_is_null_is_refused(store: Store, strategy: str) -> None:
    root = placed(store, strategy)
    with pytest.raises(DataTypeMismatch, match="'city'"):
        pushed(root, {"id": 1, "place": {"city": None, "size": 1}}, {"id": 2, "place": None})
