"""Messages of the smart protocol, in three dialects (ODF 0.34.1, RFC-008).

``KAMU``       the reference of 0.34: snake_case, the first answers in an envelope of Ok and Err
``VERSIONED``  the reference since it sends ``x-odf-smtp-version``: more answers are in that envelope
``SPEC``       the published AsyncAPI: camelCase, no envelopes, errors of one form

Here a message is a dict of snake_case names; :func:`render` and :func:`parse` convert it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Any, Final, Self

import orjson

from kubothek.errors import FormatInvalid, InputError
from kubothek.odf.named import Kind, Named
from kubothek.odf.spec.multihash import Codec, Multihash
from kubothek.odf.spec.timestamps import Timestamp

VERSION_HEADER: Final = "x-odf-smtp-version"
VERSION: Final = "1"
_TYPES: Final = {Kind.DATA: "DataSlice", Kind.CHECKPOINT: "Checkpoint"}
_KINDS: Final = {name: kind for kind, name in _TYPES.items()}

Message = dict[str, Any]


class Dialect(Enum):
    """Dialect of the other side."""

    KAMU = auto()
    VERSIONED = auto()
    SPEC = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Size of a transfer, before compression."""

    blocks: int
    objects: int
    records: int
    block_bytes: int
    object_bytes: int

    def to_json(self) -> Message:
        """Return the JSON form."""
        return {
            "num_blocks": self.blocks,
            "num_objects": self.objects,
            "num_records": self.records,
            "bytes_in_raw_blocks": self.block_bytes,
            "bytes_in_raw_objects": self.object_bytes,
        }


@dataclass(frozen=True, slots=True)
class Transfer:
    """Source or target of an object's transfer; without a URL there is no transfer, because the object exists."""

    url: str | None
    headers: tuple[tuple[str, str], ...] = ()
    expires: datetime | None = None

    def to_json(self) -> Message:
        """Return the JSON form."""
        expires = None if self.expires is None else str(Timestamp.of(self.expires))
        headers = [{"name": name, "value": value} for name, value in self.headers]
        return {"url": self.url, "headers": headers, "expires_at": expires}

    @classmethod
    def of_json(cls, found: Any) -> Self:
        """Parse the JSON form. Raises FormatInvalid."""
        try:
            expires = found.get("expires_at")
            return cls(
                str(found["url"]),
                tuple((str(each["name"]), str(each["value"])) for each in found.get("headers") or ()),
                None if expires is None else datetime.fromisoformat(expires).astimezone(UTC),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise FormatInvalid(f"no URL for a transfer: {error!r}") from None


class Refused(InputError):
    """The other side does not go on with a transfer, for a reason of the protocol: ``code`` names it."""

    reason = "TransferRefused"

    def __init__(self, code: str, details: Mapping[str, Any]) -> None:
        said = details.get("error_message") or ", ".join(f"{name} {value}" for name, value in details.items())
        super().__init__(f"{code}: {said}" if said else code)
        self.code = code
        self.details = details


def reference(named: Named) -> Message:
    """Return the reference to an object in messages."""
    return {"object_type": _TYPES[named.kind], "physical_hash": str(named.hash), "size": named.size}


def named_of(found: Any) -> Named:
    """Return the object of a reference; without a size, as in the AsyncAPI, that is 0. Raises FormatInvalid."""
    try:
        kind, text, size = _KINDS[found["object_type"]], found["physical_hash"], found.get("size", 0)
    except (AttributeError, KeyError, TypeError) as error:
        raise FormatInvalid(f"no reference to an object: {error!r}") from None
    if not isinstance(text, str) or not isinstance(size, int) or size < 0:
        raise FormatInvalid("not a reference to an object: its hash or its size is missing or invalid")
    hashed = Multihash.parse(text)
    if hashed.codec != Codec.SHA3_256:
        raise FormatInvalid(f"objects are named by SHA3-256, not by {hashed.codec.name}")
    return Named(kind, hashed, size)


def optional_hash(message: Message, name: str) -> Multihash | None:
    """Return the hash in a field, None if the field is absent. Raises FormatInvalid."""
    text = message.get(name)
    if text is None:
        return None
    if not isinstance(text, str):
        raise FormatInvalid(f"{name} is no hash")
    return Multihash.parse(text)


def accepted(content: Message, dialect: Dialect, *, first: bool = False) -> bytes:
    """Return an answer of success; ``first``: the answer to the first request."""
    enveloped = dialect is Dialect.VERSIONED or (first and dialect is Dialect.KAMU)
    return render({"Ok": content} if enveloped else content, dialect)


def refused(code: str, details: Message, dialect: Dialect) -> bytes:
    """Return an answer that rejects a request."""
    if dialect is Dialect.SPEC:
        said = str(details.get("error_message", code))
        return orjson.dumps({"errorDetails": {"errorCode": code, "description": said, "extras": details}})
    return orjson.dumps({"Err": {code: details}})


def internal(message: str, dialect: Dialect, phase: str) -> bytes:
    """Return an answer for an internal error; ``phase`` such as ``Pull(InitialRequest)``."""
    details: Message = {"error_message": message}
    if dialect is Dialect.VERSIONED:
        side, _, step = phase.rstrip(")").partition("(")
        details = {"phase": {side: step}, **details}
    return refused("Internal", details, dialect)


def render(message: Message, dialect: Dialect) -> bytes:
    """Return a message as sent: compact JSON, fields in the order of the reference's."""
    return orjson.dumps(_spec(message) if dialect is Dialect.SPEC else message)


def parse(text: str | bytes) -> tuple[Message, Dialect]:
    """Return a message and its dialect: KAMU unless it shows another one. Raises FormatInvalid, Refused."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise FormatInvalid(f"a message that is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise FormatInvalid("a message that is no JSON object")
    spec = any(name != name.lower() for name in found if name not in ("Ok", "Err"))
    try:
        message = _snake(found) if spec else found
    except RecursionError:
        raise FormatInvalid("a message that is nested too deeply") from None
    if "Err" in message or "error_details" in message:
        raise _refusal(message)
    if "Ok" in message:
        message = message["Ok"]
        if not isinstance(message, dict):
            raise FormatInvalid("an Ok without a message")
    return message, Dialect.SPEC if spec else Dialect.KAMU


def _refusal(message: Message) -> Exception:
    if isinstance(details := message.get("error_details"), dict):
        return Refused(str(details.get("error_code")), {"error_message": str(details.get("description"))})
    if isinstance(said := message.get("Err"), dict) and len(said) == 1:
        ((code, details),) = said.items()
        return Refused(code, details if isinstance(details, dict) else {})
    return FormatInvalid("an error that says nothing")


_RENAMED: Final = {"transfer_plan": "size_estimation"}
_OWN: Final = frozenset({"num_records", "is_truncated"})
"""Fields of the reference that are omitted for the AsyncAPI; its readers ignore the other additional fields."""
_ENUMS: Final = frozenset({"Running", "Complete"})


def _spec(value: Any) -> Any:
    """Return the value with the AsyncAPI's names."""
    if isinstance(value, list):
        return [_spec(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {
        name: each for name, each in value.items() if name not in ("num_records", "is_truncated") and each is not None
    }
    return {_camel(_RENAMED.get(name, name)): _spec(each) for name, each in kept.items()}


def _snake(value: Any) -> Any:
    if isinstance(value, list):
        return [_snake(each) for each in value] if value and isinstance(value[0], dict) else value
    if not isinstance(value, dict):
        return value
    back = {new: old for old, new in _RENAMED.items()}
    names = {name: name if name in _ENUMS else re.sub(r"([A-Z])", lambda m: f"_{m[1].lower()}", name) for name in value}
    return {back.get(names[name], names[name]): _snake(each) for name, each in value.items()}


def _camel(name: str) -> str:
    if name in _ENUMS:
        return name
    first, *rest = name.split("_")
    return first + "".join(each.capitalize() for each in rest)
