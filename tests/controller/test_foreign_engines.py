"""Which transformations another party's engine runs, and where it is."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from kubothek.api.engine import ForeignEngine
from kubothek.api.jobs import ForeignEngineRef, LedgerJob, TransformJob
from tests.controller.test_derivatives import Lakes, transform

FLINK = {"engine": "Flink", "image": "ghcr.io/acme/flink:1", "port": 2884, "timeout": "90s"}


def lakes(**settings: Any) -> Lakes:
    """A derivative by Flink, and one of our own."""
    event = transform("a")
    asked = {**event, "transform": {**event["transform"], "engine": "flink"}}
    found = Lakes(a="", b={"kind": "Derivative", "metadata": [asked]}, c="a")
    for name, value in settings.items():
        object.__setattr__(found.context.settings, name, value)
    found.context.create("Engine", "default", {"odf": FLINK})
    return found


def refs(found: Lakes) -> dict[str, tuple[bool, ForeignEngineRef | None]]:
    """Of each derivative, what its jobs were told."""
    jobs = [launch.job for launch in found.context.launches]
    defined = {job.dataset.uuid: job.foreign for job in jobs if isinstance(job, LedgerJob)}
    ran = {job.dataset.uuid: job.foreign for job in jobs if isinstance(job, TransformJob)}
    return {name: (defined[name], ran[name]) for name in ran}


def test_foreign_engine_runs_only_transforms_that_name_engine() -> None:
    found = lakes()
    found.settle()
    place = ForeignEngineRef(
        image="ghcr.io/acme/flink:1",
        address="127.0.0.1:2884",
        volume_dir="/opt/engine",
        timeout_seconds=90,
        container="engine",
    )
    assert refs(found) == {"b": (True, place), "c": (False, None)}


def test_foreign_engine_on_local_machine_needs_configured_address() -> None:
    found = lakes(allow_local_sources=True)
    found.settle()
    assert set(refs(found)) == {"c"}
    assert "EngineNotRunning" in found.condition("b")
    found = lakes(allow_local_sources=True, engines={"flink": ("127.0.0.1:5544", "/tmp/engine/")})
    found.settle()
    _, place = refs(found)["b"]
    assert place is not None
    assert (place.address, place.container) == ("127.0.0.1:5544", None)
    assert place.volume_dir == "/tmp/engine/team-b", "of this Dataset alone: others run at the same time"
    assert found.condition("b")[0] != "EngineNotRunning"


def test_foreign_engine_with_invalid_field_raises_validation_error() -> None:
    assert ForeignEngine(engine="flink", image="x").port == 5544
    for wrong in ({"engine": "a b"}, {"image": "a b"}, {"port": 0}, {"timeout": "soon"}, {"memory": "much"}):
        with pytest.raises(ValidationError):
            ForeignEngine.model_validate({"engine": "flink", "image": "x"} | wrong)
