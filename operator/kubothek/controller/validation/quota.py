"""Rules about jobs that can never start because of their namespace's ResourceQuotas and LimitRanges.

The present usage of a quota does not matter: jobs wait until it is released (``QuotaExceeded``, as the API server
reports it). Only the minimum that a Spark job requests counts, without what others add to its pods. A job that passes
may still have to wait, but one that fails can never start.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from kubothek.api import pod_sizes
from kubothek.api.bounds import Bound
from kubothek.api.engine import Engine, EngineSpec
from kubothek.api.pod_sizes import Container
from kubothek.api.profiles import capped
from kubothek.api.values import render_bytes
from kubothek.controller.context import Lookup
from kubothek.controller.finding import Finding
from kubothek.controller.references import layers_of, profile

_PATHS: Final = {"cpu": "cores", "memory": "memory"}


def never_fits(engine: Engine, there: Lookup) -> Iterator[Finding]:
    """Yield a finding for each bound that the driver and executors of one job exceed together, or one pod alone."""
    bounds = there.bounds(engine.namespace)
    if not bounds:
        return
    spec, _ = capped(profile(layers_of(engine, there), None, there.engine_defaults), there.engine_limits)
    filled_in = {bound.resource: bound for bound in bounds if bound.filled_in}
    for bound in bounds:
        if bound.filled_in:
            continue
        if bound.per == "namespace":
            yield from _together(bound, spec, filled_in)
        else:
            yield from _one_by_one(bound, spec)


def _together(bound: Bound, spec: EngineSpec, filled_in: dict[str, Bound]) -> Iterator[Finding]:
    driver, executor, number = pod_sizes.heavy_driver(spec), pod_sizes.executor(spec), pod_sizes.executors(spec)[0]
    size = f"a driver and {number} executors" if number else "a driver"
    match bound.resource:
        case "pods":
            asked = Decimal(1 + number)
        case "requests.cpu" | "requests.memory" | "limits.memory":
            what = bound.resource.partition(".")[2]
            asked = _amount(driver, what) + number * _amount(executor, what)
        case "limits.cpu" if "cpu" in filled_in:
            asked = (1 + number) * filled_in["cpu"].most
        case "limits.cpu":
            message = (
                f"{bound.whose} counts limits.cpu, so that no pod is taken without one, and jobs have none: give the "
                "namespace a LimitRange with a default for cpu, or let the quota count requests.cpu"
            )
            yield Finding("QuotaExceeded", "spec", message)
            return
        case _:
            return
    if asked > bound.most:
        message = (
            f"{bound.whose} has {bound.written} of {bound.resource} in all, and a job of this Engine asks for "
            f"{_rendered(asked, bound.resource)} ({size}): it could never start; make it smaller, or have the quota "
            "raised"
        )
        yield Finding("QuotaExceeded", "spec", message)


def _one_by_one(bound: Bound, spec: EngineSpec) -> Iterator[Finding]:
    parts = {"driver": pod_sizes.heavy_driver(spec)}
    if pod_sizes.executors(spec)[0]:
        parts["executor"] = pod_sizes.executor(spec)
    for part, size in parts.items():
        if bound.resource in _PATHS and (asked := _amount(size, bound.resource)) > bound.most:
            message = (
                f"{bound.whose} lets a {bound.per.lower()} have at most {bound.written} of {bound.resource}, and an "
                f"Engine of this size asks for {_rendered(asked, bound.resource)}: make it smaller, or have that raised"
            )
            yield Finding("AdmissionDenied", f"spec.{part}.{_PATHS[bound.resource]}", message)


def _amount(size: Container, resource: str) -> Decimal:
    return Decimal(size.cpu) / 1000 if resource == "cpu" else Decimal(size.memory)


def _rendered(amount: Decimal, resource: str) -> str:
    return render_bytes(int(amount)) if resource.endswith("memory") else f"{amount.normalize():f}"
