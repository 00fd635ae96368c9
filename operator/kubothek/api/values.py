"""Common types of specs: durations, quantities, names and references."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated

from pydantic import Field, StringConstraints, WithJsonSchema
from pydantic.functional_validators import AfterValidator

from kubothek.api.meta import NAME_LIMIT, Strict
from kubothek.api.rules import Rule, UniqueBy

DURATION_PATTERN = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"
QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$"
NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"

_SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}
_BYTES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12} | {
    f"{letter}i": 2 ** (10 * power) for power, letter in enumerate("KMGT", start=1)
}


def parse_duration(text: str) -> timedelta:
    """Parse a duration such as ``1h30m``. Raises ValueError."""
    if not re.fullmatch(DURATION_PATTERN.strip("^$"), text):
        raise ValueError(f"{text!r} is not a duration: write a number and ms, s, m or h, such as 90s or 1h30m")
    parts = re.findall(r"([0-9.]+)(ms|s|m|h)", text)
    return timedelta(seconds=float(sum(Decimal(number) * _SECONDS[unit] for number, unit in parts)))


def parse_time(text: str | None) -> datetime | None:
    """Parse a ``metav1.Time`` (RFC 3339); None for an empty or absent one. Raises ValueError."""
    return datetime.fromisoformat(text) if text else None


def parse_quantity(quantity: int | str) -> int:
    """Return a quantity such as ``128Mi`` in bytes, rounded down. Raises ValueError."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMGT]i|[kMGT])?", str(quantity))
    if not match:
        raise ValueError(
            f"{quantity!r} is not a quantity: write a number of bytes, or one with Ki, Mi, Gi, Ti, k, M, G or T"
        )
    return int(Decimal(match[1]) * _BYTES[match[2] or ""])


def render_bytes(size: int) -> str:
    """Render a size in binary units and three digits: ``0 B``, ``1.50 GiB``."""
    value, units = float(size), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    if units[0] == "B":
        return f"{size} B"
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {units[0]}"


def percent(part: int, total: int) -> str | None:
    """Render a share such as ``97%``; 100% and 0% only if it is all or nothing. None if ``whole`` is 0."""
    if not total:
        return None
    if 0 < part < total:
        return f"{min(99, max(1, round(100 * part / total)))}%"
    return "100%" if part else "0%"


def _a_quantity(value: int | str) -> int | str:
    parse_quantity(value)
    return value


Duration = Annotated[str, StringConstraints(pattern=DURATION_PATTERN, max_length=32)]
"""A length of time, such as ``90s`` or ``1h30m``."""
TagName = Annotated[
    str, StringConstraints(min_length=1, max_length=63, pattern=r"^[a-zA-Z]([-a-zA-Z0-9_.]*[a-zA-Z0-9])?$")
]
"""The name of a version."""

Quantity = Annotated[
    int | str,
    AfterValidator(_a_quantity),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "pattern": QUANTITY_PATTERN,
            "maxLength": 32,
        }
    ),
]
"""A number of bytes in Kubernetes' notation, such as ``128Mi``."""

ColumnName = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[^/\x00-\x1f]+$")]
"""The name of a column. A ``/`` in the name of a partition column makes a Kartothek dataset unreadable."""


def distinct(field: str, attribute: str, parent: str = "") -> Rule:
    """Return the rule that a list of columns names each once; ``parent`` begins the path, such as ``table.``."""
    return Rule(
        cel=f"!has(self.{field}) || self.{field}.all(name, self.{field}.exists_one(other, other == name))",
        message=f"{parent}{field} names a column twice: remove one",
        holds=lambda self: len(set(names := getattr(self, attribute) or ())) == len(names),
    )


class Reference(Strict):
    """A resource of this project in the same namespace."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=NAME_LIMIT, pattern=NAME_PATTERN)]
    """Its name."""


class ObjectReference(Strict):
    """A Secret, claim or other object of the cluster in the same namespace."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=253)]
    """Its name."""


class Column(Strict):
    """One column of an explicit schema."""

    name: ColumnName
    """The name of the column."""
    type: Annotated[
        str,
        StringConstraints(
            max_length=64,
            pattern=r"^(bool|u?int(8|16|32|64)|float(32|64)|string|binary|date32|"
            r"timestamp\[us(, ?tz=[A-Za-z0-9_+\-/:]+)?\]|decimal128\([0-9]{1,2}, ?[0-9]{1,2}\))$",
        ),
    ]
    """Its Arrow type: bool, int8 to int64, uint8 to uint64, float32, float64, string, binary, date32, timestamp[us]
    (UTC without a zone), timestamp[us, tz=Europe/Berlin] or decimal128(precision, scale)."""
    nullable: bool = True
    """Whether values may be missing."""


Columns = Annotated[tuple[Column, ...] | None, Field(alias="schema", min_length=1, max_length=1000), UniqueBy("name")]
"""The columns of a table, in order: the field ``schema``, a name that pydantic reserves."""
