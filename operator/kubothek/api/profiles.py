"""The profile of a job, merged from layers.

The layers are the operator's defaults, the Engine `default` of the namespace, the named Engine, and the sizes of a run.
Each overrides the ones before, and the operator's limits cap the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubothek.api.engine import EngineSpec
from kubothek.api.sizes import Sizes
from kubothek.api.values import parse_quantity

_FROM_ONE_LAYER: Final = ("odf", "scratch")
"""Fields that are taken from one layer only, as their parts belong together."""
_OWN: Final = ("suspend", "warm")
"""Fields of an Engine that other Engines do not inherit."""


def layered(layers: Iterable[Mapping[str, Any]]) -> EngineSpec:
    """Merge layers, which are sparse specs as in manifests; later ones have precedence.

    Maps are merged key by key, lists replaced (RFC 7386). Raises ValidationError if a layer is not a spec of an Engine.
    """
    found: dict[str, Any] = {}
    for layer in layers:
        found = {**_merged(found, layer), **{key: layer[key] for key in _FROM_ONE_LAYER if key in layer}}
    return EngineSpec.model_validate(found)


def inherited(layer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a layer that another Engine inherits."""
    return {key: value for key, value in layer.items() if key not in _OWN}


def said(spec: EngineSpec | Sizes) -> dict[str, Any]:
    """Return a spec as a layer: only the fields that the manifest sets."""
    return spec.model_dump(by_alias=True, exclude_unset=True, exclude_none=True)


def capped(spec: EngineSpec, limits: Sizes) -> tuple[EngineSpec, tuple[str, ...]]:
    """Return the profile within limits, and the cuts, such as ``executor.instances: 40 becomes 10``.

    The limit of executors applies to ``dynamicAllocation`` as well. The limits of drivers apply to external engines,
    which run as their sidecars.
    """
    cuts: list[str] = []
    changes: dict[str, Any] = {}
    for part, limit in (("driver", limits.driver), ("executor", limits.executor), ("odf", limits.driver)):
        model = getattr(spec, part)
        cut = {} if model is None else _cut(part, model.model_dump(), limit.model_dump(exclude_none=True), cuts)
        if cut:
            changes[part] = model.model_copy(update=cut)
    most, dynamic = limits.executor.instances, spec.dynamic_allocation
    if most is not None and dynamic is not None:
        requested = {name: getattr(dynamic, name) for name in ("initial", "min", "max")}
        given = {name: value for name, value in requested.items() if value is not None}
        cut = _cut("dynamicAllocation", given, dict.fromkeys(requested, most), cuts)
        if cut:
            changes["dynamic_allocation"] = dynamic.model_copy(update=cut)
    return (spec.model_copy(update=changes) if changes else spec), tuple(cuts)


def _cut(part: str, requested: Mapping[str, Any], limit: Mapping[str, Any], cuts: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, most in limit.items():
        value = requested.get(name)
        if value is not None and parse_quantity(value) > parse_quantity(most):
            found[name] = most
            cuts.append(f"{part}.{name}: {value} becomes {most}")
    return found


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        before = merged.get(key)
        merged[key] = _merged(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return merged
