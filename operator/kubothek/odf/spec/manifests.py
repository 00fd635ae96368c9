"""Reading and writing of the YAML manifests of Open Data Fabric (MF-01 … MF-06).

As strict as the JSON schemas: an unknown, repeated or missing field, or a value of another type, is an error that names
the place. YAML is read as the subset that JSON is: no dates (a time is text), no anchors, and ``yes`` is a text.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from kubothek.errors import FormatInvalid, UnsupportedVersion
from kubothek.odf.spec import plain_yaml
from kubothek.odf.spec.blocks import Dialect
from kubothek.odf.spec.data_schema import DataType, ExtraAttributes
from kubothek.odf.spec.decode import NEWER, REMEDY
from kubothek.odf.spec.encode import RANGES
from kubothek.odf.spec.events import DatasetSnapshot, MetadataBlock, MetadataEvent
from kubothek.odf.spec.fields import Choice, Record, Simple, Table, Type, Union, Vector, fields_of, union_of
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.logical_types import attributes_of
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.names import parse_alias
from kubothek.odf.spec.sources import EventTimeSource, SourceCaching
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.spec.unknown import Unknown
from kubothek.odf.spec.versions import SpecVersion

_SNAPSHOT: Final = 1
_EVENT: Final = 1
_EVENTS: Final = union_of(MetadataEvent)
_VERSIONS: Final[dict[str, tuple[int, ...]]] = {
    "DatasetSnapshot": (_SNAPSHOT,),
    "MetadataBlock": tuple(Dialect),
    "MetadataEvent": (_EVENT,),
}

_FORMER: Final = {"ddlSchema": (list, SpecVersion.V0_38), "rawArrowSchema": (str, SpecVersion.V0_37)}
"""Fields that were named ``schema`` before the version: only the form of the value tells which field is meant."""
_ATTRIBUTE: Final = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9_-]+")
_SHORT: Final = tuple(map(union_of, (DataType, EventTimeSource, SourceCaching)))
"""Unions whose members can be written as their name alone (specification 0.38)."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest: ``content`` is a DatasetSnapshot, a MetadataBlock or an event."""

    kind: str
    version: int
    content: Any


def read_manifest(text: str) -> Manifest:
    """Parse the one manifest of a YAML text. Raises FormatInvalid, which names the place, and UnsupportedVersion."""
    document = plain_yaml.load(text)
    if isinstance(document, dict) and ("$schema" in document or {"headers", "spec"} <= set(document)):
        raise UnsupportedVersion(f"manifest: {NEWER} (a resource with headers and spec); {REMEDY}")
    if not isinstance(document, dict) or set(document) != {"kind", "version", "content"}:
        raise FormatInvalid("a manifest has the fields kind, version and content, and no other")
    version, content = document["version"], document["content"]
    if (kind := _pascal(document["kind"], _VERSIONS)) is None:
        raise FormatInvalid(f"a manifest of kind {_shown(document['kind'])}: one of {', '.join(_VERSIONS)} is read")
    if isinstance(version, bool) or version not in _VERSIONS[kind]:
        read = f"{kind} of manifest version {version!r}: {' and '.join(map(str, _VERSIONS[kind]))} can be read"
        if type(version) is int and version > max(_VERSIONS[kind]):
            raise UnsupportedVersion(f"{read}; it was {NEWER}; {REMEDY}")
        raise FormatInvalid(read)
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


def write_snapshot(snapshot: DatasetSnapshot, version: SpecVersion = SpecVersion.V0_34) -> str:
    """Return the YAML of a snapshot in the form of a version of the specification."""
    return _write("DatasetSnapshot", _SNAPSHOT, plain_value(Table(DatasetSnapshot), snapshot, version))


def write_block(
    block: MetadataBlock, dialect: Dialect = Dialect.UNALIGNED, version: SpecVersion = SpecVersion.V0_34
) -> str:
    """Return the YAML of a block in the form of a version of the specification, for people: its file is hashed."""
    return _write("MetadataBlock", dialect, plain_value(Table(MetadataBlock), block, version))


def _write(kind: str, version: int, content: Any) -> str:
    return plain_yaml.dump({"kind": kind, "version": int(version), "content": content})


# --- values ----------------------------------------------------------------------------------------------------------


def plain_value(kind: Type, value: Any, version: SpecVersion = SpecVersion.V0_34) -> Any:
    """Convert a value to plain data: mappings, lists, texts, numbers, and Timestamps. Absent fields are left out.

    ``version`` decides the names of fields that later versions of the specification renamed. A record that has both
    schemas, the field of the former name and that of the later one, has the later names in every version.
    """
    if isinstance(kind, Union):
        if isinstance(value, Unknown):
            return {"kind": "Unknown", "tag": value.tag}
        return {"kind": value.kind, **plain_value(Table(type(value)), value, version)}
    if isinstance(kind, Table):
        if isinstance(value, ExtraAttributes):
            return _attributes(value)
        values = [(field, getattr(value, field.name)) for field in fields_of(kind.record)]
        there = [(field, found) for field, found in values if found is not None]
        both = any(field.text == "schema" for field, _ in there)
        return {_text_of(field.text, version, both): plain_value(field.type, found, version) for field, found in there}
    if isinstance(kind, Vector):
        return [plain_value(kind.item, item, version) for item in value]
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
    if isinstance(value, str) and union in _SHORT:
        value = {"kind": value}
    if not isinstance(value, dict) or "kind" not in value:
        raise FormatInvalid(f"{where} must be a mapping with a kind: one of {', '.join(members)}")
    if (name := _pascal(value["kind"], members)) is None:
        raise FormatInvalid(f"{where}.kind must be one of {', '.join(members)}, not {_shown(value['kind'])}")
    return _table(members[name], {key: each for key, each in value.items() if key != "kind"}, where)


def _table(record: type, value: Any, where: str) -> Record:
    if not isinstance(value, dict):
        raise FormatInvalid(f"{where} must be a mapping, not {_shown(value)}")
    if record is ExtraAttributes:
        return ExtraAttributes(entries=_json(value, where))
    fields = fields_of(record)
    texts = {_written(field.text, value): field for field in reversed(fields)}
    if unknown := set(value) - set(texts):
        known = ", ".join(field.text for field in fields) or "none"
        raise FormatInvalid(f"{where} has the unknown field {min(map(str, unknown))!r}; known are: {known}")
    found = {}
    for text, field in reversed(texts.items()):
        if value.get(text) is not None:
            found[field.name] = read_value(field.type, value[text], f"{where}.{text}")
        elif not field.optional:
            raise FormatInvalid(f"{where}.{text} is missing")
    return record(**found)


def _written(text: str, value: dict[str, Any]) -> str:
    """Return the name that a field has in a mapping: its own, or its former name if the value is of its form."""
    form, _ = _FORMER.get(text, (None, None))
    return "schema" if form is not None and text not in value and isinstance(value.get("schema"), form) else text


def _simple(kind: Simple, value: Any, where: str) -> Any:
    if kind is Simple.FLAG:
        if not isinstance(value, bool):
            raise FormatInvalid(f"{where} must be true or false, not {_shown(value)}")
        return value
    if kind in RANGES:
        low, high = RANGES[kind]
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise FormatInvalid(f"{where} must be a whole number from {low} to {high}, not {_shown(value)}")
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


def _attributes(extra: ExtraAttributes) -> Any:
    """Return attributes as plain data; as their text if they are not what they should be, to be shown."""
    try:
        return dict(attributes_of(extra))
    except FormatInvalid:
        return extra.entries


def _text_of(text: str, version: SpecVersion, has_schema: bool) -> str:
    _, since = _FORMER.get(text, (None, SpecVersion.V0_34))
    return text if has_schema or version >= since else "schema"


def _json(value: dict[str, Any], where: str) -> str:
    """Return attributes as JSON text in its shortest form. Raises FormatInvalid for what is no JSON."""
    if wrong := [key for key in value if not _ATTRIBUTE.fullmatch(key)]:
        raise FormatInvalid(f"{where} has the attribute {wrong[0]!r}, which is not of the form <domain>/<name>")
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise FormatInvalid(f"{where} is not JSON: {error}") from None


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
