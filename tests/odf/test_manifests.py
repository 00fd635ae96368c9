"""YAML manifests: MF-01 … MF-06, and snapshots: SN-01 … SN-03, ST-02, ST-03, ST-05."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from kubothek.errors import EventInvalid, FormatInvalid, InputError, UnsupportedVersion
from kubothek.odf.spec import plain_yaml
from kubothek.odf.spec.blocks import Block, Dialect
from kubothek.odf.spec.events import DatasetKind, DatasetSnapshot, MetadataBlock, MetadataEvent, Seed, SetTransform
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.manifests import read_event, read_manifest, read_snapshot, write_block, write_snapshot
from kubothek.odf.spec.sources import MergeStrategyAppend, TransformSql
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.validation.snapshots import first_blocks
from tests.odf.making import KEY, NOON
from tests.odf.values import events, examples
from tests.odf.vectors import VECTORS

TEXTS = [vector for vector in VECTORS["blocks"] if vector["yaml"]]
OTHER = DatasetId(b"\x11" * 32)

ROOT = """
kind: DatasetSnapshot
version: 1
content:
  name: account/ca.covid19.daily-cases
  kind: root
  metadata:
    - kind: setPollingSource
      fetch:
        kind: url
        url: https://example.com/data.csv   # a comment
        headers: []
      prepare:
        - kind: decompress
          format: gzip
      read:
        kind: Csv
        schema: [id BIGINT, date DATE]
        header: true
        separator: ','
      preprocess:
        kind: Sql
        engine: datafusion
        query: >
          SELECT *
          FROM input
      merge:
        kind: Ledger
        primaryKey: [id]
    - kind: SetVocab
      eventTimeColumn: date
"""
DERIVATIVE = """
kind: DatasetSnapshot
version: 1
content:
  name: derived
  kind: Derivative
  metadata:
    - kind: SetTransform
      inputs:
        - {datasetRef: some.root}
        - {datasetRef: other.root, alias: b}
      transform: {kind: Sql, engine: spark, queries: [{alias: v, query: SELECT 1}, {query: SELECT * FROM v}]}
"""


@pytest.mark.requirement("MF-01")
@pytest.mark.parametrize("vector", TEXTS, ids=lambda vector: vector["name"])
def test_block_manifest_matches_published_form_and_reads_back(vector: dict[str, Any]) -> None:
    block = Block.decode(bytes.fromhex(vector["hex"]))
    text = write_block(block.content, block.dialect)
    # ``off`` is a truth value to readers of YAML 1.1: quoted here, not so by the reference
    assert text.replace("'off'", "off") == vector["yaml"]
    for each in (text, vector["yaml"]):
        manifest = read_manifest(each)
        assert (manifest.kind, manifest.version, manifest.content) == ("MetadataBlock", 2, block.content)


@pytest.mark.requirement("MF-01")
@examples(40, 500)
@given(event=events())
def test_random_event_survives_manifest_round_trip(event: MetadataEvent) -> None:
    content = MetadataBlock(system_time=Timestamp(0), sequence_number=0, event=event)
    assert read_manifest(write_block(content, Dialect.ALIGNED)).content == content


@pytest.mark.requirement("SN-01", "MF-03")
def test_snapshot_survives_manifest_round_trip() -> None:
    snapshot = read_snapshot(ROOT)
    assert (snapshot.name, snapshot.kind) == ("account/ca.covid19.daily-cases", DatasetKind.ROOT)
    assert [event.kind for event in snapshot.metadata] == ["SetPollingSource", "SetVocab"]
    assert read_snapshot(write_snapshot(snapshot)) == snapshot


@pytest.mark.requirement("MF-04")
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("version: 1", "version: 0", "DatasetSnapshot of manifest version 0: 1 can be read"),
        ("version: 1", "version: true", "manifest version True"),
        ("kind: DatasetSnapshot", "kind: Snapshot", "one of DatasetSnapshot, MetadataBlock, MetadataEvent"),
        ("kind: DatasetSnapshot", "kind: DATASETSNAPSHOT", "one of"),
        ("kind: DatasetSnapshot", "kind: [x]", "kind a list"),
        ("version: 1", "version: 1\nextra: 1", "and no other"),
        ("version: 1", "version: 1\nversion: 1", "line 4, column 1: field 'version' is repeated"),
        ("header: true", "header: true\n        header: true", "'header' is repeated"),
        ("header: true", "headers: true", r"metadata\[0\].read has the unknown field 'headers'; known are: ddlSchema"),
        ("header: true", "header: yes", "read.header must be true or false, not str 'yes'"),
        ("separator: ','", "separator: 1", "read.separator must be a text, not int 1"),
        ("separator: ','", "separator: 1.5", "must be a text, not float"),
        ("kind: Csv", "kind: cSv", r"read.kind must be one of Csv, GeoJson"),
        ("kind: Csv", "kind: [Csv]", "not a list"),
        ("kind: Ledger", "kind: Append", "unknown field 'primaryKey'; known are: none"),
        ("        primaryKey: [id]", "", r"metadata\[0\].merge.primaryKey is missing"),
        ("[id BIGINT, date DATE]", "id BIGINT", "schema must be a mapping, not str"),
        ("[id BIGINT, date DATE]", "[1]", r"schema\[0\] must be a text"),
        ("format: gzip", "format: GZIP", "must be one of Gzip, Zip, not str 'GZIP'"),
        ("name: account/ca.covid19.daily-cases", "name: a_b", "'a_b' is no name"),
        ("kind: root", "kind: Rooot", "must be one of Root, Derivative"),
        ("headers: []", "headers: &x []", None),
        ("merge:", "merge: *x #", "anchors and aliases are not read"),
        ("kind: root", "kind: !!python/name:os.system x", "could not determine a constructor"),
        ("kind: root", "? [a]\n  : b\n  kind: root", "the name of a field must be a text"),
        ("schema: [id BIGINT, date DATE]", "schema: {}", "schema.fields is missing"),
        ("  name", "\tname", "line"),
        ("version: 1", "version: 1\n---", "document"),
    ],
)
def test_manifest_that_violates_schema_is_refused_with_reason(old: str, new: str, message: str | None) -> None:
    assert old in ROOT
    text = ROOT.replace(old, new, 1)
    if message is None:
        read_snapshot(text)
        return
    with pytest.raises(FormatInvalid, match=message):
        read_snapshot(text)


@pytest.mark.requirement("MF-05")
@pytest.mark.parametrize(("kind", "version", "read"), [("DatasetSnapshot", 2, "1"), ("MetadataBlock", 4, "2 and 3")])
def test_manifest_of_newer_version_is_unsupported_not_invalid(kind: str, version: int, read: str) -> None:
    message = (
        f"{kind} of manifest version {version}: {read} can be read; it was written by a newer version of Open Data"
    )
    with pytest.raises(UnsupportedVersion, match=message):
        read_manifest(f"kind: {kind}\nversion: {version}\ncontent: {{}}\n")


@pytest.mark.requirement("MF-04")
@pytest.mark.parametrize("text", ["", "[]", "x", "kind: x", "[" * 1000, "\0", "a: " + "9" * 5000, "? a", "- &a\n- *a"])
def test_text_that_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(FormatInvalid):
        read_manifest(text)


@pytest.mark.requirement("MF-04")
def test_manifest_error_names_path_of_invalid_value() -> None:
    add = {"kind": "AddData", "newWatermark": "yesterday"}
    with pytest.raises(FormatInvalid, match=r"event.newWatermark: 'yesterday' is no RFC 3339 time"):
        read_event(add)
    with pytest.raises(FormatInvalid, match=r"event.prevOffset must be a whole number from 0"):
        read_event({"kind": "AddData", "prevOffset": -1})
    with pytest.raises(FormatInvalid, match=r"event.prevOffset must be a whole number"):
        read_event({"kind": "AddData", "prevOffset": True})
    for schema in ("no base64!", "Ω"):
        with pytest.raises(FormatInvalid, match=r"event.schema: "):
            read_event({"kind": "SetDataSchema", "schema": schema})
    with pytest.raises(FormatInvalid, match=r"event.prevCheckpoint: 'x' does not start with the letter"):
        read_event({"kind": "AddData", "prevCheckpoint": "x"})
    with pytest.raises(FormatInvalid, match="event must be a mapping with a kind"):
        read_event(["AddData"])
    with pytest.raises(FormatInvalid, match="where one of DatasetSnapshot is asked for"):
        read_snapshot("kind: MetadataEvent\nversion: 1\ncontent: {kind: SetInfo}")


@pytest.mark.requirement("MF-06")
def test_manifest_numbers_follow_json() -> None:
    assert plain_yaml.load("[010, 0x10, 1e3, yes, null, ~, .5, -3, 2024-01-01]") == [
        10, "0x10", 1000.0, "yes", None, None, 0.5, -3, "2024-01-01"
    ]  # fmt: skip


# --- creation --------------------------------------------------------------------------------------------------------


def _resolve(reference: str) -> DatasetId | None:
    return {"some.root": OTHER, "other.root": KEY.dataset_id}.get(reference)


@pytest.mark.requirement("SN-01")
def test_snapshot_becomes_seed_and_one_block_per_event_at_one_time() -> None:
    blocks = first_blocks(read_snapshot(ROOT), KEY.dataset_id, NOON, _resolve)
    assert [block.content.event.kind for block in blocks] == ["Seed", "SetPollingSource", "SetVocab"]
    assert blocks[0].content.event == Seed(dataset_id=KEY.dataset_id, dataset_kind=DatasetKind.ROOT)
    assert {block.content.system_time for block in blocks} == {NOON}
    assert [block.content.prev_block_hash for block in blocks] == [None, blocks[0].hash, blocks[1].hash]
    source: Any = blocks[1].content.event
    assert source.preprocess.query is None  # ST-03
    assert [step.query for step in source.preprocess.queries] == ["SELECT * FROM input\n"]


@pytest.mark.requirement("ST-02")
def test_transform_inputs_are_stored_by_id_with_alias() -> None:
    blocks = first_blocks(read_snapshot(DERIVATIVE), KEY.dataset_id, NOON, _resolve)
    event = blocks[1].content.event
    assert isinstance(event, SetTransform)
    assert [(each.dataset_ref, each.alias) for each in event.inputs] == [
        (str(OTHER), "some.root"),
        (str(KEY.dataset_id), "b"),
    ]


@pytest.mark.requirement("SN-03")
def test_missing_transform_inputs_are_named_together() -> None:
    with pytest.raises(InputError, match=r"do not exist: some.root, other.root"):
        first_blocks(read_snapshot(DERIVATIVE), KEY.dataset_id, NOON, lambda _: None)


@pytest.mark.requirement("SN-02")
@pytest.mark.parametrize(
    "event",
    [
        {"kind": "Seed", "datasetId": str(OTHER), "datasetKind": "Root"},
        {"kind": "AddData", "prevOffset": 1},
        {"kind": "ExecuteTransform", "queryInputs": []},
        {"kind": "DisablePollingSource"},
        {"kind": "DisablePushSource", "sourceName": "x"},
        {"kind": "SetTransform", "inputs": [{"datasetRef": "some.root"}],
         "transform": {"kind": "Sql", "engine": "x", "query": "y"}},
        {"kind": "AddPushSource", "sourceName": "x", "read": {"kind": "Csv"},
         "merge": {"kind": "Ledger", "primaryKey": []}},
    ],
    ids=lambda event: event["kind"],
)  # fmt: skip
def test_root_snapshot_with_forbidden_event_is_refused(event: dict[str, Any]) -> None:
    snapshot = DatasetSnapshot(name="x", kind=DatasetKind.ROOT, metadata=(read_event(event),))
    with pytest.raises(EventInvalid):
        first_blocks(snapshot, KEY.dataset_id, NOON, _resolve)


@pytest.mark.requirement("ST-05")
def test_transform_with_both_query_and_queries_is_refused() -> None:
    both = read_event({
        "kind": "AddPushSource", "sourceName": "x", "read": {"kind": "Csv"}, "merge": {"kind": "append"},
        "preprocess": {"kind": "Sql", "engine": "x", "query": "y", "queries": []},
    })  # fmt: skip
    assert getattr(both, "merge", None) == MergeStrategyAppend()
    assert isinstance(getattr(both, "preprocess", None), TransformSql)
    snapshot = DatasetSnapshot(name="x", kind=DatasetKind.ROOT, metadata=(both,))
    with pytest.raises(EventInvalid, match="both query and queries"):
        first_blocks(snapshot, KEY.dataset_id, NOON, _resolve)


def test_escaped_surrogate_pair_becomes_one_character() -> None:
    """JSON escapes what is beyond 16 bits as a pair of surrogates (RFC 8259, 7)."""
    text = '{"kind": "MetadataEvent", "version": 1, "content": {"kind": "SetInfo", "description": "%s"}}'
    assert read_manifest(text % r"a \ud83d\ude00 b").content.description == "a \U0001f600 b"
    for wrong in (r"\ud83d", r"\ude00\ud83d", r"\ud83dx\ude00"):
        with pytest.raises(FormatInvalid, match=r"line 1, column \d+: the text has a lone surrogate"):
            read_manifest(text % wrong)
    with pytest.raises(FormatInvalid, match="lone surrogate"):
        read_manifest('{"kind": "MetadataEvent", "version": 1, "\\ud83d": {}}')
