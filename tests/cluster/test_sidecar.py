"""The pod of a transformation whose engine is another party's: what the engine sees, and what not."""

from __future__ import annotations

from typing import Any

from kubothek.api.engine import Engine
from kubothek.api.jobs import ForeignEngineRef, TransformJob
from kubothek.cluster import names
from kubothek.cluster.pods import job_pod
from kubothek.controller.context import LaunchJob
from tests.cluster.test_pods import CONFIG, DATASET, LAKE, engine, mounted, owner

TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"
PLACE = ForeignEngineRef(
    image="ghcr.io/acme/flink:1",
    address="127.0.0.1:2884",
    volume_dir="/opt/engine",
    timeout_seconds=60,
    container="engine",
)


def pod_on(on: Engine, foreign: ForeignEngineRef | None = PLACE) -> dict[str, Any]:
    job = TransformJob(job="t-1", uid="0f-1", attempt=1, store=LAKE, dataset=DATASET, foreign=foreign)
    return dict(job_pod.driver_pod(LaunchJob(job, owner(), on, secrets={"lake": "lake-credentials"}), CONFIG))


def test_engine_sidecar_runs_beside_driver_with_run_volume_only() -> None:
    beside = {"initContainers": [{"name": "proxy", "image": "p"}, {"name": "engine", "image": "another"}]}
    odf = {"engine": "flink", "image": "ghcr.io/acme/flink:1", "port": 2884, "cores": 2, "memory": "3Gi"}
    on = engine(odf=odf, imagePullPolicy="Never", podTemplate={"driver": {"spec": beside}})
    pod = pod_on(on)
    found, proxy = pod["spec"]["initContainers"]
    (driver,) = (each for each in pod["spec"]["containers"] if each["name"] == names.DRIVER_CONTAINER)
    assert (found["name"], found["image"], found["restartPolicy"]) == ("engine", "ghcr.io/acme/flink:1", "Always")
    assert found["resources"] == {"requests": {"cpu": "1000m", "memory": "3072Mi"}, "limits": {"memory": "3072Mi"}}
    assert found["imagePullPolicy"] == "Never"
    assert found["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert mounted(found) == {"/opt/engine/in": True, "/opt/engine/out": False, "/tmp": False}
    assert not {"env", "envFrom", "args", "command"} & set(found)
    assert mounted(driver).items() >= {"/opt/engine/in": False, "/opt/engine/out": False, TOKEN: True}.items()
    own = {each["mountPath"]: each["name"] for each in found["volumeMounts"]}
    ours = {each["mountPath"]: each["name"] for each in driver["volumeMounts"]}
    assert own["/opt/engine/out"] == ours["/opt/engine/out"]
    assert own["/tmp"] != ours["/tmp"]
    assert TOKEN in mounted(proxy)
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert {value for key, value in pod["metadata"]["annotations"].items() if "skip" in key} == {"engine"}
    volumes = [each["name"] for each in pod["spec"]["volumes"]]
    assert len(volumes) == len(set(volumes))
    assert {each["name"] for container in (found, driver) for each in container["volumeMounts"]} <= set(volumes)
    plain = pod_on(on, None)["spec"]
    assert [each["image"] for each in plain["initContainers"]] == ["p", "another"], "our own engine needs none"
