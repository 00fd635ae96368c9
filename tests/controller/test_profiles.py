"""How jobs run: layers of Engines, the sizes of a run, the operator's limits; and what a condition says of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kubothek.api.engine import Engine, EngineSpec
from kubothek.api.sizes import Sizes
from kubothek.controller.validation.rules import findings
from tests.controller.fake import Fake, with_dataset


def profile_of(layers: dict[str, dict[str, Any]], limits: Any = None) -> EngineSpec:
    """What a Commit runs on, given the layers ``operator``, ``default``, ``named`` and ``size``."""
    limit = {} if limits is None else {"engine_limits": Sizes.model_validate(limits)}
    context = Fake(engine_defaults=layers.get("operator", {}), **limit)
    for layer, name in (("default", "default"), ("named", "big")):
        if layer in layers:
            context.create("Engine", name, layers[layer])
    with_dataset(context)
    spec: dict[str, Any] = {"engineRef": {"name": "big"}} if "named" in layers else {}
    if "size" in layers:
        spec["size"] = layers["size"]
    source = {"paths": ["in/a.csv"], "format": "CSV"}
    context.create(
        "Commit", "january", spec | {"datasetRef": {"name": "flights"}, "operation": "Append", "source": source}
    )
    context.reconcile("Commit", "january")
    engine = context.launches[-1].engine
    return engine.spec if isinstance(engine, Engine) else EngineSpec()


@pytest.mark.parametrize(
    ("layers", "cores"),
    [
        ({}, 2),
        ({"operator": {"executor": {"instances": 3}}}, 3),
        ({"operator": {"executor": {"instances": 3}}, "default": {}}, 3),
        ({"operator": {"executor": {"instances": 3}}, "default": {"executor": {"instances": 4}}}, 4),
        ({"default": {"executor": {"instances": 4}}, "named": {"executor": {"cores": 2}}}, 4),
        ({"default": {"executor": {"instances": 4}}, "named": {"executor": {"instances": 5}}}, 5),
        ({"operator": {"executor": {"instances": 3}}, "named": {}}, 3),
        ({"named": {"executor": {"instances": 5}}, "size": {"executor": {"instances": 6}}}, 6),
        ({"size": {"executor": {"instances": 6}}}, 6),
        ({"default": {"executor": {"instances": 4}}, "size": {"driver": {"cores": 4}}}, 4),
    ],
    ids=str,
)
def test_engine_profile_layer_fills_only_unset_fields(layers: dict[str, dict[str, Any]], cores: int) -> None:
    assert profile_of(layers).executor.instances == cores


def test_engine_profile_merges_maps_and_replaces_lists() -> None:
    template = {"driver": {"spec": {"nodeSelector": {"a": "1"}, "tolerations": [{"key": "x"}]}}}
    spec = profile_of(
        {
            "operator": {"sparkConf": {"spark.a": "1", "spark.b": "1"}, "podTemplate": template, "retry": {"limit": 7}},
            "default": {"scratch": {"medium": "Memory", "size": "1Gi"}, "imagePullSecrets": [{"name": "one"}]},
            "named": {
                "sparkConf": {"spark.b": "2"},
                "scratch": {"medium": "Disk"},
                "imagePullSecrets": [{"name": "two"}],
                "podTemplate": {"driver": {"spec": {"nodeSelector": {"b": "2"}, "tolerations": []}}},
                "retry": {"backoff": {"max": "1s"}},
            },
        }
    )
    assert spec.spark_conf == {"spark.a": "1", "spark.b": "2"}
    assert spec.scratch is not None
    assert (spec.scratch.medium, spec.scratch.size) == ("Disk", None)
    assert [secret.name for secret in spec.image_pull_secrets] == ["two"]
    assert spec.pod_template.driver["spec"] == {"nodeSelector": {"a": "1", "b": "2"}, "tolerations": []}
    assert (spec.retry.limit, spec.retry.backoff.max) == (7, "1s")


def test_engine_limits_cap_only_fields_above_limit() -> None:
    limits = {"driver": {"memory": "4Gi"}, "executor": {"instances": 10, "cores": 4}}
    spec = profile_of(
        {
            "operator": {"driver": {"memory": "8Gi", "cores": 8}},
            "default": {"executor": {"instances": 50}, "dynamicAllocation": {"initial": 2, "min": 1, "max": 400}},
            "named": {"odf": {"engine": "flink", "image": "flink:1", "memory": "64Gi"}},
            "size": {"executor": {"cores": 16, "memory": "6Gi"}},
        },
        limits,
    )
    assert (spec.driver.memory, spec.driver.cores) == ("4Gi", 8)
    assert (spec.executor.instances, spec.executor.cores, spec.executor.memory) == (10, 4, "6Gi")
    assert spec.dynamic_allocation is not None
    assert (spec.dynamic_allocation.initial, spec.dynamic_allocation.min, spec.dynamic_allocation.max) == (2, 1, 10)
    assert spec.odf is not None
    assert spec.odf.memory == "4Gi"


def test_engine_beyond_limits_is_ready_and_reported_by_status_and_webhook() -> None:
    context = Fake(engine_limits=Sizes.model_validate({"executor": {"instances": 10}}))
    context.create("Engine", "big", {"executor": {"instances": 40}})
    context.settle("Engine", "big")
    assert context.condition("Engine", "big") == ("True", "Succeeded")
    assert "executor.instances: 40 becomes 10" in context.message("Engine", "big")
    (found,) = findings(context.resources["Engine", "big"], context)
    assert (found.reason, found.path, found.denies) == ("CutToLimit", "spec.executor.instances", False)
    with_dataset(context)
    source = {"paths": ["in/a.csv"], "format": "CSV"}
    size = {"executor": {"instances": 99}, "driver": {"memory": "64Gi"}}
    spec = {"datasetRef": {"name": "flights"}, "operation": "Append", "source": source, "size": size}
    context.create("Commit", "january", spec)
    assert [found.path for found in findings(context.commit(), context)] == ["spec.size.executor.instances"]


def test_edit_of_any_engine_layer_resumes_failed_commit() -> None:
    """An image that is wrong in the default, of a Commit that names another Engine."""
    context = Fake()
    context.create("Engine", "default", {"image": "nowhere/none:1"})
    context.create("Engine", "big", {"executor": {"instances": 9}})
    with_dataset(context)
    source = {"paths": ["in/a.csv"], "format": "CSV"}
    spec = {"datasetRef": {"name": "flights"}, "operation": "Append", "source": source, "engineRef": {"name": "big"}}
    context.create("Commit", "january", spec)
    context.reconcile("Commit", "january")
    view = context.jobs["january-1"]
    context.jobs["january-1"] = replace(view, reason="ImagePullFailed", message="not there")
    context.settle("Commit", "january")
    assert context.condition("Commit", "january") == ("False", "ImagePullFailed")
    context.edit("Engine", "default", image="kubothek:1")
    context.settle("Commit", "january")
    assert "january-1" in context.cancelled
    assert "january-2" in context.jobs
