"""The limits that a namespace sets for all pods, by ResourceQuotas and LimitRanges.

Quotas with scopes apply to some pods only; the API server alone checks them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal

BOUNDING: Final = ("LimitRange", "ResourceQuota")
"""The kinds of the core group that set limits for pods."""

_EXPONENTS: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_POWERS: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_QUANTITY: Final = re.compile(r"([+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)([numkMGTPE]|[KMGTPE]i)?")
_NAMES: Final = {"cpu": "requests.cpu", "memory": "requests.memory", "count/pods": "pods"}
"""Aliases of resources in a quota."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The maximum of a resource for a namespace, pod or container."""

    whose: str
    """``ResourceQuota 'team'``"""
    per: Literal["namespace", "Pod", "Container"]
    resource: str
    """``pods``, ``requests.cpu``, ``limits.memory`` … of a namespace; ``cpu`` or ``memory`` of a pod or container."""
    most: Decimal
    """The maximum, in cores, bytes or pods."""
    written: str
    """The maximum as its author wrote it."""
    filled_in: bool = False
    """Whether it is the default limit of containers instead of a maximum."""


def bounds_of(kind: str, manifest: Mapping[str, Any]) -> tuple[Bound, ...]:
    """Return the bounds of a ResourceQuota or LimitRange; ``kind`` is separate, as items of a listing lack it.

    Invalid quantities are ignored, as the API server refuses them anyway.
    """
    spec = manifest.get("spec") or {}
    whose = f"{kind} {(manifest.get('metadata') or {}).get('name', '')!r}"
    return tuple(_of_quota(whose, spec) if kind == "ResourceQuota" else _of_range(whose, spec))


def quantity(text: object) -> Decimal | None:
    """Parse a quantity of Kubernetes: ``500m``, ``1.5Gi``, ``2e3``; None if it is invalid."""
    found = _QUANTITY.fullmatch(str(text))
    if found is None:
        return None
    number, suffix = Decimal(found[1]), found[2] or ""
    return number * 2 ** _POWERS[suffix] if suffix in _POWERS else number.scaleb(_EXPONENTS[suffix])


def _of_quota(whose: str, spec: Mapping[str, Any]) -> Iterator[Bound]:
    if spec.get("scopes") or spec.get("scopeSelector"):
        return
    for name, written in (spec.get("hard") or {}).items():
        if (most := quantity(written)) is not None:
            yield Bound(whose, "namespace", _NAMES.get(name, name), most, str(written))


def _of_range(whose: str, spec: Mapping[str, Any]) -> Iterator[Bound]:
    for item in spec.get("limits") or ():
        per = item.get("type")
        if per not in ("Pod", "Container"):
            continue
        for name, written in (item.get("max") or {}).items():
            if (most := quantity(written)) is not None:
                yield Bound(whose, per, name, most, str(written))
        # Without a default the API server uses the maximum.
        defaults = {**(item.get("max") or {}), **(item.get("default") or {})} if per == "Container" else {}
        for name, written in defaults.items():
            if (most := quantity(written)) is not None:
                yield Bound(whose, per, name, most, str(written), filled_in=True)
