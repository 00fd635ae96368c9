"""The events that manifests hold: as strict as the chain's own reader, and the same fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kubothek.api.kinds import InvalidResource, parse
from kubothek.api.ledger_events import (
    ATTRIBUTES,
    DATA_TYPE,
    EVENTS,
    FLAG,
    INT32,
    TEXT,
    UINT32,
    UINT64,
    Choice,
    ListOr,
    Many,
    OneOf,
    checked_event,
)
from kubothek.errors import FormatInvalid, UnsupportedVersion
from kubothek.odf.spec import events as chain
from kubothek.odf.spec.data_schema import DataType, ExtraAttributes
from kubothek.odf.spec.fields import Choice as ChainChoice
from kubothek.odf.spec.fields import Simple, Table, Type, Union, Vector, fields_of, union_of
from kubothek.odf.spec.manifests import plain_value, read_event
from tests.api.manifests import DERIVED, POLLED, PUSHED, READ, Case, derivative, ledger

COLUMN = {"name": "id", "type": "string", "extra": {"kamu.dev/archetype": {"kind": "x"}}}
MQTT = {"kind": "Mqtt", "host": "broker", "port": 1883, "topics": [{"path": "a/#", "qos": "AtLeastOnce"}]}


@pytest.mark.requirement("MF-02")
@pytest.mark.parametrize("kind", EVENTS.members)
def test_ledger_event_fields_match_chain_format(kind: str) -> None:
    assert _shape(EVENTS.members[kind]) == _fields(getattr(chain, kind))


def _shape(kind: Any, inside: bool = False) -> Any:
    """A kind of the table as plain data: a field's name ends in `?` if it may be absent."""
    if kind is DATA_TYPE and not inside:
        return "DataType"
    match kind:
        case OneOf():
            return {name: _shape(fields) for name, fields in kind.members.items()}
        case Many():
            return [_shape(kind.item)]
        case ListOr():
            return _shape(kind.other)
        case Choice():
            return kind.names
        case Mapping():
            return {name: _shape(each) for name, each in kind.items()}
    return kind


def _fields(record: type) -> Any:
    return {f"{field.text}{'?' if field.optional else ''}": _type(field.type) for field in fields_of(record)}


def _type(kind: Type, inside: bool = False) -> Any:
    """The same of a type of the chain."""
    if kind == union_of(DataType) and not inside:
        return "DataType"
    match kind:
        case Union():
            return {member.kind: _fields(member) for member in kind.members}  # type: ignore[attr-defined]
        case Table(record=record) if record is ExtraAttributes:
            return ATTRIBUTES
        case Table():
            return _fields(kind.record)
        case Vector():
            return [_type(kind.item)]
        case ChainChoice():
            return tuple(each.value for each in kind.values)
    numbers = {Simple.NUMBER: UINT64, Simple.INT32: INT32, Simple.UINT32: UINT32}
    return {Simple.TEXT: TEXT, Simple.FLAG: FLAG, **numbers}[kind]


@pytest.mark.requirement("MF-02")
def test_column_types_of_manifest_equal_those_of_chain() -> None:
    assert _shape(DATA_TYPE, inside=True) == _type(union_of(DataType), inside=True)


@pytest.mark.requirement("MF-02", "MF-03")
@pytest.mark.parametrize(
    ("event", "told"),
    [
        (PUSHED | {"merge": {"kind": "append"}}, None),
        (
            PUSHED | {"merge": {"kind": "Upsert"}},
            "merge.kind: must be one of Append, Ledger, Snapshot, ChangelogStream, UpsertStream, not 'Upsert'",
        ),
        (PUSHED | {"merge": {"kind": "Ledger"}}, "merge.primaryKey: is required"),
        (PUSHED | {"sourceName": 7}, "sourceName: must be a text, not 7"),
        (PUSHED | {"sourceName": None}, "sourceName: is required"),
        (PUSHED | {"source": "x"}, "source: is not a known field; known are sourceName, read, preprocess, merge"),
        (PUSHED | {"preprocess": None}, None),
        (PUSHED | {"read": READ | {"header": "yes"}}, "read.header: must be true or false, not 'yes'"),
        (PUSHED | {"read": {"kind": "csv", "schema": "id BIGINT"}}, "read.schema: must be a mapping"),
        (PUSHED | {"read": {"kind": "csv", "ddlSchema": "id BIGINT"}}, "read.ddlSchema: must be a list"),
        (PUSHED | {"read": {"kind": "csv", "schema": {"fields": [COLUMN | {"type": {"kind": "UInt8"}}]}}}, None),
        (PUSHED | {"read": {"kind": "csv", "schema": {"fields": [COLUMN]}}}, None),
        (
            PUSHED | {"read": {"kind": "csv", "schema": {"fields": [COLUMN | {"type": "Decimal"}]}}},
            "read.schema.fields[0].type.precision: is required",
        ),
        (
            PUSHED | {"read": {"kind": "csv", "schema": {"fields": [COLUMN | {"extra": "x"}]}}},
            "read.schema.fields[0].extra: must be a mapping of attributes, not 'x'",
        ),
        (
            PUSHED | {"read": {"kind": "csv", "schema": {"fields": [COLUMN | {"extra": {"x": 1}}]}}},
            "read.schema.fields[0].extra.x: is not an attribute: <domain>/<name>",
        ),
        (PUSHED | {"merge": {"kind": "UpsertStream", "primaryKey": ["id"]}}, None),
        (POLLED | {"fetch": MQTT | {"port": 1 << 31}}, "fetch.port: must be -2147483648 to 2147483647, not 2147483648"),
        (POLLED | {"fetch": MQTT}, None),
        (PUSHED | {"read": {"kind": "CSV"}}, "read.kind: must be one of Csv"),
        (PUSHED | {"read": "Csv"}, "read: must be a mapping with a kind: one of Csv"),
        (POLLED | {"prepare": [{"kind": "Decompress", "format": "gzip"}]}, None),
        (POLLED | {"prepare": [{"kind": "Pipe", "command": [1]}]}, "prepare[0].command[0]: must be a text, not 1"),
        (POLLED | {"prepare": [{"kind": "Pipe", "command": {}}]}, "prepare[0].command: must be a list"),
        (
            {"kind": "SetAttachments", "attachments": {"kind": "Embedded", "items": ["a"]}},
            "items[0]: must be a mapping",
        ),
    ],
)
def test_invalid_ledger_event_is_refused_like_in_chain(event: dict[str, Any], told: str | None) -> None:
    if told is None:
        checked = checked_event(event)
        read = read_event(event)
        assert read_event(checked) == read
        assert plain_value(Union((type(read),)), read) == checked
        return
    with pytest.raises(InvalidResource) as refused:
        parse(Case("", "Dataset", ledger(event)).manifest())
    assert "spec.ledger.metadata[0]: " in str(refused.value)
    assert told in str(refused.value)
    with pytest.raises((FormatInvalid, UnsupportedVersion)):
        read_event(event)


def _sql(**changes: Any) -> dict[str, Any]:
    kept = {name: value for name, value in (DERIVED["transform"] | changes).items() if value is not None}
    return DERIVED | {"transform": kept}


def _inputs(*inputs: dict[str, Any]) -> dict[str, Any]:
    return DERIVED | {"inputs": list(inputs)}


@pytest.mark.requirement("ST-01", "ST-02", "ST-03", "ST-04", "ST-05")
@pytest.mark.parametrize(
    ("event", "told"),
    [
        (_inputs(), "inputs: there must be 1 to 16"),
        (_inputs({"alias": "x"}), "inputs[0].datasetRef: is required"),
        (_inputs({"datasetRef": "acme/Flights"}), "inputs[0].datasetRef: 'acme/Flights' is neither the name of"),
        (
            _inputs({"datasetRef": "a"}, {"datasetRef": "a", "alias": "b"}),
            "inputs[1].datasetRef: 'a' is an input already",
        ),
        (_inputs({"datasetRef": "a"}, {"datasetRef": "b", "alias": "a"}), "inputs[1].alias: 'a' names another input"),
        (_sql(query=None), "transform.query: give either query, or queries"),
        (_sql(queries=[{"query": "SELECT 1"}]), "transform.query: give either query, or queries"),
        (_sql(query=None, queries=[]), "transform.queries: there must be one at least"),
        (_sql(query=None, queries=[{"query": "1"}, {"query": "2"}]), "transform.queries[0].alias: is required"),
        (_sql(query=None, queries=[{"query": "1", "alias": "x"}]), "transform.queries[0].alias: goes without"),
        (
            _sql(query=None, queries=[{"query": "1", "alias": "flights"}, {"query": "2"}]),
            "transform.queries[0].alias: 'flights' names an input or another query already",
        ),
        (
            _sql(temporalTables=[{"name": "planes", "primaryKey": ["tailnum"]}]),
            "transform.temporalTables[0].name: 'planes' is neither an input nor a query",
        ),
        (
            _sql(temporalTables=[{"name": "weather", "primaryKey": []}]),
            "transform.temporalTables[0].primaryKey: there must be one column at least",
        ),
        (_sql(engine=None), "transform.engine: is required"),
    ],
)
def test_invalid_transform_is_refused_with_path(event: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidResource) as refused:
        parse(Case("", "Dataset", derivative(event, only=True)).manifest())
    assert "spec.ledger.metadata[0]: " in str(refused.value)
    assert told in str(refused.value)


def test_transform_with_several_steps_is_parsed_unchanged() -> None:
    steps = [{"alias": "late", "query": "SELECT 1"}, {"query": "SELECT * FROM late"}]
    tables = [{"name": "late", "primaryKey": ["hour"]}]
    event = _sql(query=None, queries=steps, temporalTables=tables)
    assert checked_event(event) == event
    assert plain_value(Union((type(read_event(event)),)), read_event(event)) == event
