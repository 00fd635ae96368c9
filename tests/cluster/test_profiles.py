"""What an Engine's profile makes of pods and of Spark's settings: executors, queues, spot nodes, scratch, event log."""

from __future__ import annotations

import json
import re
import zipfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyspark
import pytest

from kubothek.api.spark_denied import DENIED_CONF
from kubothek.api.values import parse_quantity
from kubothek.cluster.pod_status import outcome
from kubothek.cluster.pods import job_pod
from kubothek.controller.context import FailureClass, JobPhase
from tests.cluster.apiserver import ApiServer
from tests.cluster.podshapes import CREATED, SCHEDULED, condition, pod, waiting
from tests.cluster.test_pods import CONFIG, conf, driver, engine, launch

DYNAMIC = {"initial": 2, "min": 1, "max": 8, "shuffleTracking": False, "idleTimeout": "2m"}
CLAIMS = {"medium": "EphemeralPVC", "size": "20Gi", "storageClassName": "fast"}
FULL: dict[str, Any] = {
    "executor": {"instances": 3, "spot": "Require"},
    "dynamicAllocation": DYNAMIC,
    "scratch": CLAIMS,
    "schedulerName": "volcano",
    "queueName": "batch",
    "priorityClassName": "low",
    "deadlines": {"schedule": "1h", "executors": "5m"},
    "eventLog": {"enabled": True, "maxSize": "32Mi"},
    "imagePullSecrets": [{"name": "one"}],
}
PROFILES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "everything": FULL,
    "memory": {"scratch": {"medium": "Memory", "size": "1Gi"}, "queueName": "q", "executor": {"spot": "Prefer"}},
    "disk": {"scratch": {"size": "5Gi"}, "schedulerName": "yunikorn", "queueName": "root.q"},
}


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_engine_fields_set_only_denied_spark_conf(profile: dict[str, Any]) -> None:
    settings = conf(launch(engine(**profile)))
    assert [key for key in settings if not key.startswith(DENIED_CONF)] == []


@pytest.mark.slow
def test_pods_of_all_profiles_pass_restricted_pod_security(api_server: ApiServer) -> None:
    """In all of their forms. The API server knows no priority class, so that it is left out here."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    api_server.kubectl(
        "create", "-f", "-", stdin=json.dumps(_object("Namespace", {"name": "profiles", "labels": labels}))
    )
    for account in ("kubothek-job", "default"):  # of executors nobody makes one here
        api_server.kubectl("create", "-n", "profiles", "serviceaccount", account)
    wanted = []
    for profile in PROFILES.values():
        action = launch(engine(**{key: value for key, value in profile.items() if key != "priorityClassName"}))
        wanted += [job_pod.driver_pod(action, CONFIG), as_spark_makes(job_pod.executor_template(action))]
    for number, each in enumerate(wanted):
        meta = each["metadata"]
        each["metadata"] = {k: meta[k] for k in ("labels", "annotations")} | {
            "name": f"p{number}",
            "namespace": "profiles",
        }
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": wanted})
    told = api_server.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=listed)
    assert told.count("created (server dry run)") == len(wanted)


def as_spark_makes(template: dict[str, Any]) -> dict[str, Any]:
    """An executor's pod: Spark adds the image to the template, among other things."""
    (container,) = template["spec"]["containers"]
    return {**template, "spec": {**template["spec"], "containers": [{**container, "image": "x:1"}]}}


def _object(kind: str, metadata: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}


@pytest.mark.parametrize(
    ("dynamic", "numbers"),
    [
        (DYNAMIC, ("2", "1", "8", "120s", "false")),
        ({}, ("0", "0", "3", "60s", "true")),
        ({"min": 2}, ("2", "2", "3", "60s", "true")),
        ({"min": 5}, ("5", "5", "5", "60s", "true")),
        ({"initial": 9}, ("3", "0", "3", "60s", "true")),
    ],
    ids=str,
)
def test_dynamic_allocation_sets_executor_bounds(dynamic: dict[str, Any], numbers: tuple[str, ...]) -> None:
    settings = conf(launch(engine(dynamicAllocation=dynamic, executor={"instances": 3})))
    names = ("initialExecutors", "minExecutors", "maxExecutors", "executorIdleTimeout", "shuffleTracking.enabled")
    assert tuple(settings[f"spark.dynamicAllocation.{name}"] for name in names) == numbers
    assert settings["spark.dynamicAllocation.enabled"] == "true"
    assert "spark.executor.instances" not in settings
    assert int(settings["spark.executor.maxNumFailures"]) >= 2 * int(numbers[2])


def test_executor_count_without_dynamic_allocation_is_fixed() -> None:
    for dynamic in ({}, {"dynamicAllocation": {"enabled": False, "max": 9}}):
        settings = conf(launch(engine(executor={"instances": 3}, **dynamic)))
        assert settings["spark.executor.instances"] == "3"
        assert settings["spark.dynamicAllocation.enabled"] == "false"


QUEUES = {
    "none": ({}, {}, {}),
    "Kueue": ({"queueName": "q"}, {"kueue.x-k8s.io/queue-name": "q"}, {}),
    "Kueue, another scheduler": (
        {"queueName": "q", "schedulerName": "bin-packing"},
        {"kueue.x-k8s.io/queue-name": "q"},
        {},
    ),
    "Volcano": ({"queueName": "q", "schedulerName": "volcano"}, {}, {"scheduling.volcano.sh/queue-name": "q"}),
    "Volcano's default queue": ({"schedulerName": "volcano"}, {}, {}),
    "YuniKorn": (
        {"queueName": "root.q", "schedulerName": "yunikorn"},
        {"yunikorn.apache.org/app-id": "january-2", "yunikorn.apache.org/queue": "root.q"},
        {},
    ),
    "YuniKorn, which places by itself": (
        {"schedulerName": "yunikorn"},
        {"yunikorn.apache.org/app-id": "january-2"},
        {},
    ),
}


@pytest.mark.parametrize(("spec", "labels", "annotations"), QUEUES.values(), ids=QUEUES.keys())
def test_driver_and_executors_use_same_scheduling_queue(
    spec: dict[str, str], labels: dict[str, str], annotations: dict[str, str]
) -> None:
    action = launch(engine(**spec, priorityClassName="low"))
    for made in (job_pod.driver_pod(action, CONFIG), job_pod.executor_template(action)):
        meta = made["metadata"]
        foreign = ("kueue", "volcano", "yunikorn")
        assert {k: v for k, v in meta["labels"].items() if any(each in k for each in foreign)} == labels
        assert {k: v for k, v in meta["annotations"].items() if any(each in k for each in foreign)} == annotations
        assert made["spec"].get("schedulerName") == spec.get("schedulerName")
        assert made["spec"]["priorityClassName"] == "low"


def test_executors_run_on_spot_nodes_and_drivers_avoid_them() -> None:
    template = {"spec": {"tolerations": [{"key": "mine"}], "affinity": {"podAntiAffinity": {}}}}
    action = launch(engine(executor={"spot": "Require"}, podTemplate={"executor": template}))
    executor = job_pod.executor_template(action)["spec"]
    terms = executor["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert {each["key"] for term in terms for each in term["matchExpressions"]} >= {"karpenter.sh/capacity-type"}
    assert executor["affinity"]["podAntiAffinity"] == {}
    assert {each["key"] for each in executor["tolerations"]} >= {"mine", "cloud.google.com/gke-spot"}
    assert executor["terminationGracePeriodSeconds"] > 60, "the preStop hook waits for a minute"
    spec = job_pod.driver_pod(action, CONFIG)["spec"]
    assert "tolerations" not in spec
    (away,) = spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert {each["operator"] for each in away["preference"]["matchExpressions"]} == {"NotIn"}
    preferred = job_pod.executor_template(launch(engine(executor={"spot": "Prefer"})))["spec"]["affinity"][
        "nodeAffinity"
    ]
    assert len(preferred["preferredDuringSchedulingIgnoredDuringExecution"]) == len(terms)
    assert "affinity" not in job_pod.executor_template(launch())["spec"]


def test_scratch_in_memory_is_added_to_pod_memory() -> None:
    action = launch(engine(scratch={"medium": "Memory", "size": "1Gi"}))
    plain = parse_quantity(driver(launch())["resources"]["limits"]["memory"])
    assert parse_quantity(driver(action)["resources"]["limits"]["memory"]) == plain + 2**30
    assert conf(action)["spark.executor.memoryOverhead"] == f"{int(0.4 * 2048) + 1024}m"
    (volume,) = (v for v in job_pod.executor_template(action)["spec"]["volumes"] if v["name"] == "spark-local-dir-1")
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "1024Mi"}
    mounts = job_pod.executor_template(action)["spec"]["containers"][0]["volumeMounts"]
    assert {"name": "spark-local-dir-1", "mountPath": "/var/spark"} in mounts


def test_scratch_claims_belong_to_driver_and_are_reused() -> None:
    action = launch(engine(scratch=CLAIMS))
    settings, claim = conf(action), "spark.kubernetes.executor.volumes.persistentVolumeClaim.spark-local-dir-1"
    assert settings[f"{claim}.options.claimName"] == "OnDemand"
    assert (settings[f"{claim}.options.sizeLimit"], settings[f"{claim}.options.storageClass"]) == ("20480Mi", "fast")
    # where Spark looks for what another executor left
    assert settings[f"{claim}.mount.path"].split("/")[-2:] == ["spark-x", "executor-x"]
    for name in ("own", "reuse"):
        assert settings[f"spark.kubernetes.driver.{name}PersistentVolumeClaim"] == "true"
        assert conf(launch())[f"spark.kubernetes.driver.{name}PersistentVolumeClaim"] == "false"
    (scratch,) = (v for v in job_pod.driver_pod(action, CONFIG)["spec"]["volumes"] if v["name"] == "scratch")
    assert scratch["ephemeral"]["volumeClaimTemplate"]["spec"]["storageClassName"] == "fast"


def test_event_log_stays_on_driver_disk_until_job_uploads_log() -> None:
    assert conf(launch())["spark.eventLog.enabled"] == "false"
    settings = conf(launch(engine(eventLog={"enabled": True, "maxSize": "32Mi"})))
    mounted = {mount["mountPath"] for mount in driver(launch())["volumeMounts"]}
    assert settings["spark.eventLog.dir"].removeprefix("file://") in mounted
    assert settings["spark.kubothek.eventLogLimit"] == str(32 * 2**20)


def test_spark_conf_keys_are_all_known_to_spark() -> None:
    """Spark ignores what it does not know: a misspelt key would do nothing, and nobody would hear of it."""
    settings = {key for profile in PROFILES.values() for key in conf(launch(engine(**profile)))}
    volumes = "spark.kubernetes.executor.volumes."
    theirs = {key for key in settings if not key.startswith(("spark.kubothek.", "spark.app.", volumes))}
    known = _known_to_spark()
    assert theirs - known == set()
    assert {key.partition(".spark-local-dir-1.")[2] for key in settings if key.startswith(volumes)} <= known


def _known_to_spark() -> set[str]:
    """Texts of the classes in which Spark's core and its Kubernetes scheduler declare their settings."""
    found: set[str] = set()
    for jar in (Path(pyspark.__path__[0]) / "jars").glob("spark-*.jar"):
        if jar.name.startswith(("spark-core", "spark-kubernetes")):
            with zipfile.ZipFile(jar) as archive:
                for name in archive.namelist():
                    if re.search(r"/(config|Config|KubernetesVolumeUtils)[^/]*(/package\$?)?[^/]*\.class$", name):
                        found.update(
                            text.decode() for text in re.findall(rb"[A-Za-z][A-Za-z0-9._]+", archive.read(name))
                        )
    return found


AGE = timedelta(minutes=20)
NOTES = {"kubothek.io/schedule-deadline": "10m", "kubothek.io/start-deadline": "10m"}
UNSCHEDULABLE = condition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available")
BACK_OFF = waiting("ImagePullBackOff", "no such image")


@pytest.mark.parametrize(
    ("shape", "reason", "says"),
    [
        (pod(conditions=[], annotations=NOTES), "ScheduleDeadlineExceeded", "no node in 10m"),
        (pod(conditions=[UNSCHEDULABLE], annotations=NOTES), "ScheduleDeadlineExceeded", "0/3 nodes"),
        (pod(state=waiting("ContainerCreating"), annotations=NOTES), "StartDeadlineExceeded", "did not start in 10m"),
    ],
)
def test_pod_past_start_deadline_fails(shape: dict[str, Any], reason: str, says: str) -> None:
    created, scheduled = datetime.fromisoformat(CREATED), datetime.fromisoformat(SCHEDULED)
    late = outcome.job_view(shape, max(created, scheduled) + AGE)
    assert (late.phase, late.failure, late.reason) == (JobPhase.FAILED, FailureClass.RETRY, reason)
    assert late.lingers
    assert says in late.message
    early = scheduled + timedelta(seconds=5)
    assert outcome.job_view(shape, early).phase is JobPhase.PENDING
    assert outcome.patience_left(shape, early) is not None


@pytest.mark.parametrize(
    "shape",
    [
        pod(conditions=[UNSCHEDULABLE], annotations={"kubothek.io/start-deadline": "10m"}),
        pod(state=BACK_OFF, annotations=NOTES),
        pod(phase="Running", state={"running": {"startedAt": SCHEDULED}}, annotations=NOTES),
        pod(conditions=[UNSCHEDULABLE], annotations={"kubothek.io/schedule-deadline": "soon"}),
    ],
    ids=["queues take their time", "a wrong image waits for an edit", "it runs", "an annotation that is none"],
)
def test_pod_within_start_deadline_does_not_fail(shape: dict[str, Any]) -> None:
    assert outcome.job_view(shape, datetime.fromisoformat(SCHEDULED) + AGE).phase is not JobPhase.FAILED
