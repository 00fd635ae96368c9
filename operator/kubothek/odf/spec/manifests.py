"""Reading and writing of the YAML manifests of Open Data Fabric (MF-01 … MF-06).

As strict as the JSON schemas: an unknown, repeated or missing field, or a value of another type, is an error that names
the place. YAML is read as the subset that JSON is: no dates (a time is text), no anchors, and ``yes`` is a text.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from kubothek.errors import FormatInvalid, UnsupportedVersion
from kubothek.odf.spec import plain_yaml
from kubothek.odf.spec.blocks import Dialect
from kubothek.odf.spec.decode import NEWER, REMEDY
from kubothek.odf.spec.events import DatasetSnapshot, MetadataBlock, MetadataEvent
from kubothek.odf.spec.fields import Choice, Record, Simple, Table, Type, Union, Vector, fields_of, union_of
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.names import parse_alias
from kubothek.odf.spec.sources import Unknown
from kubothek.odf.spec.timestamps import Timestamp

_SNAPSHOT: Final = 1
_EVENT: Final = 1
_LARGEST: Final = (1 << 64) - 1
_EVENTS: Final = union_of(MetadataEvent)
_VERSIONS: Final[dict[str, tuple[int, ...]]] = {
    "DatasetSnapshot": (_SNAPSHOT,),
    "MetadataBlock": tuple(Dialect),
    "MetadataEvent": (_EVENT,),
}

_LATER_KINDS: Final = ("Mqtt", "EthereumLogs", "ChangelogStream", "UpsertStream")
_LATER_FIELDS: Final = frozenset({"ddlSchema", "rawArrowSchema", "extra"})
"""Additions of the specification after 0.36."""
_REWRITE: Final = f"{REMEDY}, or write it in the form of version 0.36, where read.schema is a list of DDL columns"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest: ``content`` is a DatasetSnapshot, a MetadataBlock or an event."""

    kind: str
    version: int
    content: Any


def read_manifest(text: str) -> Manifest:
    """Parse the one manifest of a YAML text. Raises FormatInvalid, which names the place."""
    document = plain_yaml.load(text)
    if isinstance(document, dict) and ("$schema" in document or {"headers", "spec"} <= set(document)):
        raise UnsupportedVersion(f"manifest: {NEWER} (a resource with headers and spec); {_REWRITE}")
    if not isinstance(document, dict) or set(document) != {"kind", "version", "content"}:
        raise FormatInvalid("a manifest has the fields kind, version and content, and no other")
    version, content = document["version"], document["content"]
    if (kind := _pascal(document["kind"], _VERSIONS)) is None:
        raise FormatInvalid(f"a manifest of kind {_shown(document['kind'])}: one of {', '.join(_VERSIONS)} is read")
    if isinstance(version, bool) or version not in _VERSIONS[kind]:
        raise FormatInvalid(
            f"{kind} of manifest version {version!r}: {' and '.join(map(str, _VERSIONS[kind]))} can be read"
        )
    if kind == "MetadataEvent":
        return Manifest(kind, version, read_value(_EVENTS, content, kind))
    record: Record = read_value(Table(DatasetSnapshot if kind == "DatasetSnapshot" else MetadataBlock), content, kind)
    if isinstance(record, DatasetSnapshot):
        parse_alias(record.name)
    return Manifest(kind, version, record)


def read_snapshot(text: str) -> DatasetSnapshot:
    """Parse the DatasetSnapshot of a YAML text. Raises FormatInvalid, also for a manifest of another kind."""
    manifest = read_manifest(text)
    if not isinstance(manifest.content, DatasetSnapshot):
        raise FormatInvalid(f"a manifest of kind {manifest.kind}, where one of DatasetSnapshot is asked for")
    return manifest.content


def read_event(value: object, where: str = "event") -> MetadataEvent:
    """Parse an event from plain data, as ``spec.ledger`` of a Dataset holds it. Raises FormatInvalid."""
    event: MetadataEvent = read_value(_EVENTS, value, where)
    return event


def write_snapshot(snapshot: DatasetSnapshot) -> str:
    """Return the YAML of a snapshot."""
    return _write("DatasetSnapshot", _SNAPSHOT, plain_value(Table(DatasetSnapshot), snapshot))


def write_block(block: MetadataBlock, dialect: Dialect = Dialect.UNALIGNED) -> str:
    """Return the YAML of a block, for people: what is hashed is its file."""
    return _write("MetadataBlock", dialect, plain_value(Table(MetadataBlock), block))


def _write(kind: str, version: int, content: Any) -> str:
    return plain_yaml.dump({"kind": kind, "version": int(version), "content": content})


# --- values ----------------------------------------------------------------------------------------------------------


def plain_value(kind: Type, value: Any) -> Any:
    """Convert a value to plain data: mappings, lists, texts, numbers, and Timestamps. Absent fields are left out."""
    if isinstance(kind, Union):
        if isinstance(value, Unknown):
            return {"kind": "Unknown", "tag": value.tag}
        return {"kind": value.kind, **plain_value(Table(type(value)), value)}
    if isinstance(kind, Table):
        values = ((field, getattr(value, field.name)) for field in fields_of(kind.record))
        return {field.text: plain_value(field.type, found) for field, found in values if found is not None}
    if isinstance(kind, Vector):
        return [plain_value(kind.item, item) for item in value]
    if isinstance(kind, Choice):
        return value.value
    if kind in (Simple.HASH, Simple.ID):
        return str(value)
    return base64.b64encode(value).decode() if kind is Simple.BYTES else value


def read_value(kind: Type, value: Any, where: str) -> Any:
    """Convert plain data to a value. Raises FormatInvalid, which names the place, ``where`` first."""
    if isinstance(kind, Union):
        return _union(kind, value, where)
    if isinstance(kind, Table):
        return _table(kind.record, value, where)
    if isinstance(value, dict) and "fields" in value and isinstance(kind, Vector | Simple):
        raise UnsupportedVersion(f"{where}: {NEWER} (a schema of logical types); {_REWRITE}")
    if isinstance(kind, Vector):
        if not isinstance(value, list):
            raise FormatInvalid(f"{where} must be a list, not {_shown(value)}")
        return tuple(read_value(kind.item, item, f"{where}[{number}]") for number, item in enumerate(value))
    if isinstance(kind, Choice):
        names = {choice.value: choice for choice in kind.values}
        if (name := _pascal(value, names)) is None:
            raise FormatInvalid(f"{where} must be one of {', '.join(names)}, not {_shown(value)}")
        return names[name]
    return _simple(kind, value, where)


def _union(union: Union, value: Any, where: str) -> Record:
    members = {member.kind: member for member in union.members}  # type: ignore[attr-defined]  # all have a kind
    if isinstance(value, str) and _pascal(value, (*members, *_LATER_KINDS)) is not None:
        raise UnsupportedVersion(f"{where}: {NEWER} ({value!r} in place of a mapping); {_REWRITE}")
    if not isinstance(value, dict) or "kind" not in value:
        raise FormatInvalid(f"{where} must be a mapping with a kind: one of {', '.join(members)}")
    if (name := _pascal(value["kind"], members)) is None:
        if (later := _pascal(value["kind"], _LATER_KINDS)) is not None:
            raise UnsupportedVersion(f"{where}.kind: {NEWER} ({later}); {_REWRITE}")
        raise FormatInvalid(f"{where}.kind must be one of {', '.join(members)}, not {_shown(value['kind'])}")
    return _table(members[name], {key: each for key, each in value.items() if key != "kind"}, where)


def _table(record: type, value: Any, where: str) -> Record:
    if not isinstance(value, dict):
        raise FormatInvalid(f"{where} must be a mapping, not {_shown(value)}")
    fields = fields_of(record)
    if unknown := set(value) - {field.text for field in fields}:
        if later := unknown & _LATER_FIELDS:
            raise UnsupportedVersion(f"{where}.{min(later)}: {NEWER}; {_REWRITE}")
        known = ", ".join(field.text for field in fields) or "none"
        raise FormatInvalid(f"{where} has the unknown field {min(map(str, unknown))!r}; known are: {known}")
    found = {}
    for field in fields:
        if value.get(field.text) is not None:
            found[field.name] = read_value(field.type, value[field.text], f"{where}.{field.text}")
        elif field.optional:
            found[field.name] = None
        else:
            raise FormatInvalid(f"{where}.{field.text} is missing")
    return record(**found)


def _simple(kind: Simple, value: Any, where: str) -> Any:
    if kind is Simple.FLAG:
        if not isinstance(value, bool):
            raise FormatInvalid(f"{where} must be true or false, not {_shown(value)}")
        return value
    if kind is Simple.NUMBER:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST:
            raise FormatInvalid(f"{where} must be a whole number from 0 to 2^64-1, not {_shown(value)}")
        return value
    if kind is Simple.MOMENT and isinstance(value, Timestamp):
        return value
    if not isinstance(value, str):
        raise FormatInvalid(f"{where} must be a text, not {_shown(value)}; quote it if it is meant to be one")
    if kind is Simple.TEXT:
        return value
    try:
        if kind is Simple.BYTES:
            return base64.b64decode(value, validate=True)
        return _PARSERS[kind](value)
    except (FormatInvalid, ValueError) as error:
        raise FormatInvalid(f"{where}: {error}") from None


_PARSERS: Final[dict[Simple, Any]] = {
    Simple.HASH: Multihash.parse,
    Simple.ID: DatasetId.parse,
    Simple.MOMENT: Timestamp.parse,
}


def _pascal(name: object, names: Any) -> str | None:
    """Return the known name that is meant, in PascalCase, camelCase or all lower case, nothing in between (MF-03)."""
    for known in names:
        if name in (known, known[0].lower() + known[1:], known.lower()):
            return str(known)
    return None


def _shown(value: object) -> str:
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    return f"{type(value).__name__} {value!r:.100}" if not isinstance(value, Enum) else value.name
