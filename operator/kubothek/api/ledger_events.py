"""The events of Open Data Fabric that a manifest may hold, as strict as the specification's JSON schemas.

This is a table instead of models: ``kubothek.odf.spec.events`` has the classes of the chain, which this package must
not import. A test compares the two field by field. The API server accepts any fields of an event; this module refuses
mistakes wherever manifests are parsed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kubothek.api.transforms import checked_transform

TEXT: Final = "a text"
FLAG: Final = "true or false"
ATTRIBUTES: Final = "a mapping of attributes"
_ATTRIBUTE: Final = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9_-]+")
_TYPES: Final[dict[str, type]] = {TEXT: str, FLAG: bool, ATTRIBUTES: dict}


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice of these names."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number between these."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class OneOf:
    """A mapping whose ``kind`` determines its fields; ``short``: the kind alone stands for a mapping without fields."""

    members: Mapping[str, Mapping[str, Any]]
    short: bool = False


@dataclass(frozen=True, slots=True)
class Many:
    """A list."""

    item: Any


@dataclass(frozen=True, slots=True)
class ListOr:
    """A list in the form of an earlier version of the specification, or its present form."""

    many: Many
    other: Any


_TEXTS: Final = Many(TEXT)
UINT64: Final = Number(0, (1 << 64) - 1)
UINT32: Final = Number(0, (1 << 32) - 1)
INT32: Final = Number(-(1 << 31), (1 << 31) - 1)
_EVENT_TIME: Final = OneOf(
    {"FromMetadata": {}, "FromPath": {"pattern": TEXT, "timestampFormat?": TEXT}, "FromSystemTime": {}}, short=True
)
_CACHE: Final = OneOf({"Forever": {}}, short=True)
_FETCH: Final = OneOf(
    {
        "Url": {
            "url": TEXT,
            "eventTime?": _EVENT_TIME,
            "cache?": _CACHE,
            "headers?": Many({"name": TEXT, "value": TEXT}),
        },
        "FilesGlob": {
            "path": TEXT,
            "eventTime?": _EVENT_TIME,
            "cache?": _CACHE,
            "order?": Choice(("ByEventTime", "ByName")),
        },
        "Container": {
            "image": TEXT,
            "command?": _TEXTS,
            "args?": _TEXTS,
            "env?": Many({"name": TEXT, "value?": TEXT}),
        },
        "Mqtt": {
            "host": TEXT,
            "port": INT32,
            "username?": TEXT,
            "password?": TEXT,
            "topics": Many({"path": TEXT, "qos?": Choice(("AtMostOnce", "AtLeastOnce", "ExactlyOnce"))}),
        },
        "EthereumLogs": {"chainId?": UINT64, "nodeUrl?": TEXT, "filter?": TEXT, "signature?": TEXT},
    }
)
_PREPARE: Final = OneOf(
    {"Decompress": {"format": Choice(("Gzip", "Zip")), "subPath?": TEXT}, "Pipe": {"command": _TEXTS}}
)
_UNIT: Final = {"unit?": Choice(("Second", "Millisecond", "Microsecond", "Nanosecond"))}
_MEMBERS: Final[dict[str, Mapping[str, Any]]] = {}
DATA_TYPE: Final = OneOf(_MEMBERS, short=True)
"""The type of a column (RFC-016); it contains itself."""
_FIELD: Final = {"name": TEXT, "type": DATA_TYPE, "extra?": ATTRIBUTES}
_PLAIN: Final = ("Bool", "Date", "Float16", "Float32", "Float64", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16")
_MEMBERS.update(
    {
        "Binary": {"fixedLength?": UINT64},
        **{name: {} for name in (*_PLAIN, "UInt32", "UInt64", "Null", "String")},
        "Decimal": {"precision": UINT32, "scale": INT32},
        "Duration": _UNIT,
        "List": {"itemType": DATA_TYPE, "fixedLength?": UINT64},
        "Map": {"keyType": DATA_TYPE, "valueType": DATA_TYPE, "keysSorted?": FLAG},
        "Option": {"inner": DATA_TYPE},
        "Struct": {"fields": Many(_FIELD)},
        "Time": _UNIT,
        "Timestamp": {**_UNIT, "timezone?": TEXT},
    }
)
_COLUMNS: Final = {"fields": Many(_FIELD), "extra?": ATTRIBUTES}
_SCHEMA: Final = {"ddlSchema?": _TEXTS, "schema?": ListOr(_TEXTS, _COLUMNS)}
"""Since specification 0.38 ``schema`` is an ODF schema; before, it was what ``ddlSchema`` is now."""
_JSON: Final = {**_SCHEMA, "dateFormat?": TEXT, "encoding?": TEXT, "timestampFormat?": TEXT}
_READ: Final = OneOf(
    {
        "Csv": {
            **_SCHEMA,
            "separator?": TEXT,
            "encoding?": TEXT,
            "quote?": TEXT,
            "escape?": TEXT,
            "header?": FLAG,
            "inferSchema?": FLAG,
            "nullValue?": TEXT,
            "dateFormat?": TEXT,
            "timestampFormat?": TEXT,
        },
        "GeoJson": _SCHEMA,
        "EsriShapefile": {**_SCHEMA, "subPath?": TEXT},
        "Parquet": _SCHEMA,
        "Json": {"subPath?": TEXT, **_JSON},
        "NdJson": _JSON,
        "NdGeoJson": _SCHEMA,
    }
)
_TRANSFORM: Final = OneOf(
    {
        "Sql": {
            "engine": TEXT,
            "version?": TEXT,
            "query?": TEXT,
            "queries?": Many({"alias?": TEXT, "query": TEXT}),
            "temporalTables?": Many({"name": TEXT, "primaryKey": _TEXTS}),
        }
    }
)
_MERGE: Final = OneOf(
    {
        "Append": {},
        "Ledger": {"primaryKey": _TEXTS},
        "Snapshot": {"primaryKey": _TEXTS, "compareColumns?": _TEXTS},
        "ChangelogStream": {"primaryKey": _TEXTS},
        "UpsertStream": {"primaryKey": _TEXTS},
    }
)
EVENTS: Final = OneOf(
    {
        "SetPollingSource": {
            "fetch": _FETCH,
            "prepare?": Many(_PREPARE),
            "read": _READ,
            "preprocess?": _TRANSFORM,
            "merge": _MERGE,
        },
        "AddPushSource": {"sourceName": TEXT, "read": _READ, "preprocess?": _TRANSFORM, "merge": _MERGE},
        "SetTransform": {"inputs": Many({"datasetRef": TEXT, "alias?": TEXT}), "transform": _TRANSFORM},
        "SetVocab": {
            "offsetColumn?": TEXT,
            "operationTypeColumn?": TEXT,
            "systemTimeColumn?": TEXT,
            "eventTimeColumn?": TEXT,
        },
        "SetInfo": {"description?": TEXT, "keywords?": _TEXTS},
        "SetLicense": {"shortName": TEXT, "name": TEXT, "spdxId?": TEXT, "websiteUrl": TEXT},
        "SetAttachments": {"attachments": OneOf({"Embedded": {"items": Many({"path": TEXT, "content": TEXT})}})},
    }
)
"""What ``spec.ledger.metadata`` may hold."""


def checked_event(value: dict[str, Any]) -> dict[str, Any]:
    """Return an event in the chain's form: kinds in PascalCase, no null fields. Raises ValueError with the path."""
    event: dict[str, Any] = _read(EVENTS, value, "")
    if event["kind"] == "SetTransform":
        checked_transform(event)
    return event


def _read(kind: Any, value: Any, where: str) -> Any:
    match kind:
        case OneOf():
            return _member(kind, value, where)
        case Many():
            if not isinstance(value, list):
                raise ValueError(f"{_at(where)}must be a list")
            return [_read(kind.item, item, f"{where}[{number}]") for number, item in enumerate(value)]
        case Choice():
            return _named(value, kind.names, where)
        case ListOr():
            return _read(kind.many if isinstance(value, list) else kind.other, value, where)
        case Number():
            if not isinstance(value, int) or isinstance(value, bool) or not kind.least <= value <= kind.most:
                raise ValueError(f"{_at(where)}must be {kind.least} to {kind.most}, not {value!r:.80}")
            return value
        case dict():
            return _fields(kind, value, where)
        case _:
            if not isinstance(value, _TYPES[kind]):
                raise ValueError(f"{_at(where)}must be {kind}, not {value!r:.80}")
            for key in value if isinstance(value, dict) else ():
                if not _ATTRIBUTE.fullmatch(key):
                    raise ValueError(f"{_at(f'{where}.{key}')}is not an attribute: <domain>/<name>")
            return value


def _member(kind: OneOf, value: Any, where: str) -> dict[str, Any]:
    if kind.short and isinstance(value, str):
        value = {"kind": value}
    if not isinstance(value, dict) or "kind" not in value:
        raise ValueError(f"{_at(where)}must be a mapping with a kind: one of {', '.join(kind.members)}")
    name = _named(value["kind"], tuple(kind.members), f"{where}.kind")
    rest = {key: each for key, each in value.items() if key != "kind"}
    return {"kind": name, **_fields(kind.members[name], rest, where)}


def _fields(fields: Mapping[str, Any], value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{_at(where)}must be a mapping")
    known = {name.removesuffix("?"): (kind, name.endswith("?")) for name, kind in fields.items()}
    if unknown := sorted(set(value) - set(known)):
        raise ValueError(f"{_at(f'{where}.{unknown[0]}')}is not a known field; known are {', '.join(known) or 'none'}")
    found = {}
    for name, (kind, optional) in known.items():
        if value.get(name) is not None:
            found[name] = _read(kind, value[name], f"{where}.{name}")
        elif not optional:
            raise ValueError(f"{_at(f'{where}.{name}')}is required")
    return found


def _named(value: Any, names: tuple[str, ...], where: str) -> str:
    """Return the canonical name of a spelling (MF-03)."""
    for name in names:
        if value in spellings(name):
            return name
    raise ValueError(f"{_at(where)}must be one of {', '.join(names)}, not {value!r:.80}")


def spellings(name: str) -> tuple[str, str, str]:
    """Return the allowed spellings of a kind or an enumerated value."""
    return name, name[0].lower() + name[1:], name.lower()


def _at(where: str) -> str:
    return f"{where.removeprefix('.')}: " if where else ""
