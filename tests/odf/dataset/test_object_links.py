"""Large objects that records link to (RFC-017): columns, objects, summaries, compaction and collection."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from kubothek.errors import UnsupportedVersion
from kubothek.odf import Multihash, verify
from kubothek.odf.dataset import Root, again, create
from kubothek.odf.dataset.extension import require_known
from kubothek.odf.problems import Problem, Severity
from kubothek.odf.spec.data_schema import (
    DataField,
    DataSchema,
    DataTypeInt8,
    DataTypeList,
    DataTypeOption,
    DataTypeString,
    DataTypeStruct,
    ExtraAttributes,
)
from kubothek.odf.spec.events import AddData, AddPushSource, SetDataSchema
from kubothek.odf.spec.logical_types import from_arrow
from kubothek.odf.spec.multihash import Codec
from kubothek.odf.spec.object_links import SUMMARY, TYPE, link_columns, links_objects, summary_fault
from kubothek.odf.spec.sources import MergeStrategyAppend, ReadStepNdJson
from kubothek.odf.spec.versions import SpecVersion
from kubothek.odf.validation.rules_definition import data_schema
from kubothek.storage import Store
from kubothek.table.log import DatasetLog, StoreSettings, write_settings
from tests.gc.aging import GRACE, AgingStore
from tests.odf.chains import ROOT, block, chain, found
from tests.odf.dataset.planes import LAYOUT, OWNER, UUID, begun
from tests.odf.dataset.test_collector import log_of, swept
from tests.odf.making import SCHEMA, later

pytestmark = pytest.mark.slow

LINK = {"kind": "ObjectLink", "linkType": {"kind": "Multihash"}}
SCAN = Multihash.sha3(b"a large scan")


def attribute(key: str, value: Any) -> ExtraAttributes:
    return ExtraAttributes(entries=json.dumps({key: value}))


def linking(kind: Any = LINK, column: Any = None) -> SetDataSchema:
    schema = from_arrow(SCHEMA)
    field = DataField(name="scan", type=column or DataTypeString(), extra=attribute(TYPE, kind))
    return SetDataSchema(schema=DataSchema(fields=(*schema.fields, field)))


@pytest.mark.requirement("OL-01")
@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (linking(), []),
        (linking({"kind": "Did"}), []),
        (linking({"kind": "Later"}, DataTypeInt8()), []),
        (linking({"kind": "ObjectLink"}), [("LinkType", "OL-01")]),
        (linking({"kind": "ObjectLink", "linkType": "Multihash"}), [("LinkType", "OL-01")]),
        (linking(LINK, DataTypeInt8()), [("LinkType", "OL-01")]),
    ],
)
def test_object_link_column_is_stored_as_text(event: SetDataSchema, expected: list[tuple[str, str]]) -> None:
    assert found(chain(ROOT), event) == expected
    assert link_columns(event.schema) == ((("scan",),) if "ObjectLink" in str(event) else ())
    assert links_objects(event) == ("ObjectLink" in str(event))


@pytest.mark.requirement("OL-01")
def test_link_within_values_is_noted_and_keeps_objects() -> None:
    inner = DataField(name="file", type=DataTypeString(), extra=attribute(TYPE, LINK))
    kind = DataTypeOption(inner=DataTypeList(item_type=DataTypeStruct(fields=(inner,))))
    event = linking({"kind": "Later"}, kind)
    assert link_columns(event.schema) == ()
    assert links_objects(event)
    notes = [each for each in data_schema(chain(ROOT), event) if each.rule == "OL-01"]
    assert [(each.code, each.column) for each in notes] == [("LinkedObjectUnchecked", "scan")]


@pytest.mark.requirement("OL-04")
@pytest.mark.parametrize(
    ("summary", "wrong"),
    [
        ({"numObjectsNaive": 3, "sizeNaive": 1005}, False),
        ({"numObjectsNaive": 3}, False),
        ({"numObjectsNaive": -1}, True),
        ({"sizeNaive": "1"}, True),
        ([], True),
    ],
)
def test_linked_objects_summary_has_count_and_size(summary: Any, wrong: bool) -> None:
    event = AddData(new_watermark=later(3), extra=attribute(SUMMARY, summary))
    assert links_objects(event)
    assert (summary_fault(event) is not None) == wrong
    assert found(chain(ROOT, linking()), event) == [("LinkSummary", "OL-04")] * wrong


def links(store: Store, values: Iterable[str], log: DatasetLog | None = None, extended: Any = LINK) -> Root:
    """A dataset with these links."""
    fields: list[Any] = [pa.field("id", pa.int32()), pa.field("scan", pa.string())]
    columns = pa.schema(fields)
    first = SetDataSchema(schema=_with_common(columns, extended))
    read = ReadStepNdJson(schema=from_arrow(columns))
    source = AddPushSource(source_name="default", read=read, merge=MergeStrategyAppend())
    root = create(store, log or DatasetLog(store, UUID), begun(first, source), OWNER, version=SpecVersion.V0_39)
    texts = list(values)
    rows = pa.table({"id": pa.array(range(len(texts)), pa.int32()), "scan": pa.array(texts, pa.string())})
    root.push(again(rows))
    assert sum(isinstance(each.content.event, SetDataSchema) for each in root.blocks()) == 1
    return root


def _with_common(columns: pa.Schema, extended: Any) -> DataSchema:
    common = [
        pa.field("offset", pa.int64()),
        pa.field("op", pa.int32(), False),
        pa.field("system_time", pa.timestamp("ms", "UTC"), False),
        pa.field("event_time", pa.timestamp("ms", "UTC")),
    ]
    made = from_arrow(pa.schema([*common, *columns]))
    last = replace(made.fields[-1], extra=attribute(TYPE, extended))
    return replace(made, fields=(*made.fields[:-1], last))


def problems(store: Store) -> list[tuple[str, str | None, int | None]]:
    verdict = verify(store, LAYOUT)
    found: list[Problem] = [each for each in verdict.problems if each.rule.startswith("OL")]
    return [(each.code, each.column, each.row) for each in found]


@pytest.mark.requirement("OL-02", "OL-03")
def test_verification_checks_linked_objects(store: Store) -> None:
    links(store, [str(SCAN), str(SCAN), "nothing"])
    assert problems(store) == [("LinkForm", "scan", 2), ("LinkedObjectMissing", None, None)]
    assert verify(store, LAYOUT).sound, "a copy without the objects is sound"
    store.put(LAYOUT.data(SCAN), b"a large scan")
    assert problems(store) == [("LinkForm", "scan", 2)]
    store.put(LAYOUT.data(SCAN), b"another scan")
    assert problems(store) == [("LinkForm", "scan", 2), ("LinkedObject", None, None)]
    assert not verify(store, LAYOUT).sound


@pytest.mark.requirement("OL-03")
def test_links_whose_objects_cannot_be_judged_are_noted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    other_hash = Multihash(Codec.ARROW0_SHA3_256, SCAN.digest)
    links(store, [str(SCAN), str(other_hash)])
    for link in (SCAN, other_hash):
        store.put(LAYOUT.data(link), b"a large scan")
    assert problems(store) == [("LinkedObjectMissing", None, None)]
    monkeypatch.setattr("kubothek.odf.validation.link_checks._MOST", 1)
    (note, *_) = [each for each in verify(store, LAYOUT).problems if each.code == "LinkedObjectUnchecked"]
    assert (note.severity, note.number) == (Severity.NOTE, 4)


@pytest.mark.requirement("OL-03")
@pytest.mark.parametrize("extended", [LINK, {"kind": "Did"}], ids=["link", "text"])
def test_collection_keeps_linked_objects(extended: Any) -> None:
    store = AgingStore()
    write_settings(store, StoreSettings(grace=GRACE))
    links(store, [str(SCAN)], log_of(store), extended)
    store.put(LAYOUT.data(SCAN), b"a large scan")
    store.put(LAYOUT.missing_links, b"")
    store.pass_by(3 * GRACE)
    swept(store)
    assert (LAYOUT.data(SCAN) in store.objects) == (extended is LINK)
    assert LAYOUT.missing_links in store.objects


def test_block_with_unknown_parts_is_not_written_again() -> None:
    known = block(chain(ROOT), AddData(new_watermark=later(3)))
    require_known(known)
    with pytest.raises(UnsupportedVersion, match="event: field 9"):
        require_known(replace(known, unknown=("MetadataBlock.event: field 9",)))
