"""What an attempt's pod and ConfigMap look like: pure builders, tested without a cluster.

That the pods satisfy the restricted Pod Security Standard is the API server's word: see test_controller.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubothek.api.commit import Commit
from kubothek.api.engine import Engine
from kubothek.api.jobs import (
    JOB,
    Claim,
    CommitJob,
    CubeJob,
    CubeRef,
    CubeRows,
    CubeTarget,
    DatasetRef,
    DeleteJob,
    IntakeJob,
    LedgerJob,
    PlainFiles,
    PollJob,
    QueryDataset,
    QueryJob,
    QueryLocation,
    RemoteRef,
    SkipFilesJob,
    SkippingSpec,
    SourceContainer,
    SourceSpec,
    SparkSettings,
    StatementSpec,
    StoreRef,
    SyncJob,
    TransformJob,
)
from kubothek.api.kinds import parse
from kubothek.api.values import parse_quantity
from kubothek.cluster import names
from kubothek.cluster.config import OperatorConfig
from kubothek.cluster.pods import job_pod
from kubothek.controller.context import LaunchJob

CONFIG = OperatorConfig(namespaces=("lake",), job_image="docker.io/kubothek/kubothek:dev")
LAKE = StoreRef(name="lake", url="s3://lake/w", credentials_dir="/var/run/kubothek/credentials/lake")
FILES = StoreRef(name="files", url="file:///data/files")
DATASET = DatasetRef(uuid="orders", claim=Claim(owner="c/lake/orders", incarnation="u"))


def owner() -> Commit:
    source = {"format": "CSV", "paths": ["a.csv"], "storeRef": {"name": "files"}}
    spec = {"datasetRef": {"name": "orders"}, "operation": "Append", "source": source}
    meta = {"name": "january", "namespace": "lake", "uid": "0f-1"}
    resource = parse({"apiVersion": "kubothek.io/v1alpha1", "kind": "Commit", "metadata": meta, "spec": spec})
    assert isinstance(resource, Commit)
    return resource


def engine(**spec: Any) -> Engine:
    meta = {"name": "default", "namespace": "lake"}
    resource = parse({"apiVersion": "kubothek.io/v1alpha1", "kind": "Engine", "metadata": meta, "spec": spec})
    assert isinstance(resource, Engine)
    return resource


def launch(on: Engine | None = None, conf: dict[str, str] | None = None) -> LaunchJob:
    job = CommitJob(
        job="january-2",
        uid="0f-1",
        attempt=2,
        store=LAKE,
        dataset=DATASET,
        commit_id="lake/january",
        digest="d",
        source=SourceSpec(store=FILES, paths=("a.csv",), format="CSV"),
        spark=SparkSettings(conf=conf or {}),
    )
    return LaunchJob(
        job=job, owner=owner(), engine=on, secrets={"lake": "lake-credentials"}, volumes={"files": "files-claim"}
    )


def driver(action: LaunchJob) -> dict[str, Any]:
    (container,) = (
        c for c in job_pod.driver_pod(action, CONFIG)["spec"]["containers"] if c["name"] == names.DRIVER_CONTAINER
    )
    return dict(container)


def conf(action: LaunchJob) -> dict[str, str]:
    return dict(json.loads(job_pod.config_map(action, CONFIG)["data"]["job.json"])["spark"]["conf"])


def test_pod_labels_name_attempt_and_owner() -> None:
    meta = job_pod.driver_pod(launch(), CONFIG)["metadata"]
    assert (meta["name"], meta["namespace"]) == ("january-2", "lake")
    labels = {key: value for key, value in meta["labels"].items() if key.startswith("kubothek.io/")}
    assert labels == {
        "kubothek.io/kind": "Commit",
        "kubothek.io/name": "january",
        "kubothek.io/run": "0f-1",
        "kubothek.io/attempt": "2",
        "kubothek.io/verb": "commit",
        "kubothek.io/store": "lake",
        "kubothek.io/job": "january-2",
    }
    (reference,) = meta["ownerReferences"]
    assert (reference["kind"], reference["uid"], reference["controller"]) == ("Commit", "0f-1", True)


def test_driver_runs_job_of_its_config_map() -> None:
    action = launch()
    assert driver(action)["args"] == ["driver", "python", "-m", "kubothek.jobs.main", "/etc/kubothek/job/job.json"]
    config = job_pod.config_map(action, CONFIG)
    assert config["immutable"]
    job = JOB.validate_json(config["data"]["job.json"])
    assert job.model_copy(update={"spark": SparkSettings()}) == action.job


def test_pod_never_restarts_and_has_deadline() -> None:
    spec = job_pod.driver_pod(launch(engine(deadlines={"total": "90m"})), CONFIG)["spec"]
    assert spec["restartPolicy"] == "Never"
    assert spec["activeDeadlineSeconds"] == 5400
    assert spec["enableServiceLinks"] is False


def test_pod_mounts_secrets_and_volumes_at_paths_of_job() -> None:
    action = launch()
    for pod in (job_pod.driver_pod(action, CONFIG), job_pod.executor_template(action)):
        mounts = {mount["mountPath"]: mount for mount in pod["spec"]["containers"][0]["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        credentials = mounts["/var/run/kubothek/credentials/lake"]
        assert credentials["readOnly"]
        assert volumes[credentials["name"]]["secret"]["secretName"] == "lake-credentials"
        claim = volumes[mounts["/data/files"]["name"]]["persistentVolumeClaim"]
        assert claim == {"claimName": "files-claim"}
        assert "/tmp" in mounts
        assert set(volumes) == {mount["name"] for mount in mounts.values()}


def test_pod_mounts_metadata_keys_beside_store_credentials() -> None:
    files = FILES.model_copy(update={"name": "lake", "keys_dir": "/var/run/kubothek/keys/lake"})
    side = StoreRef(name="side", url="s3://side", keys_dir="/var/run/kubothek/keys/side")
    job = SkipFilesJob(
        job="trips-skip-1",
        uid="u",
        store=side,
        name="team.trips",
        files=PlainFiles(store=files, prefix="trips"),
        skipping=SkippingSpec(auto=True),
    )
    action = LaunchJob(job=job, owner=owner(), engine=None, keys={"lake": "lake-keys", "side": "side-keys"})
    for pod in (job_pod.driver_pod(action, CONFIG), job_pod.executor_template(action)):
        mounts = {mount["mountPath"]: mount for mount in pod["spec"]["containers"][0]["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        for name in ("lake", "side"):
            mount = mounts[f"/var/run/kubothek/keys/{name}"]
            assert mount["readOnly"]
            assert volumes[mount["name"]]["secret"] == {"secretName": f"{name}-keys", "defaultMode": 0o440}


def test_pod_mounts_keys_variables_and_tokens_of_ledger_jobs() -> None:
    basics = {"uid": "u", "store": LAKE, "dataset": DATASET}
    polls = PollJob(job="planes-poll-1", env_dir="/var/run/kubothek/env", **basics)
    remote = RemoteRef(url="https://example.org", secret_dir="/var/run/kubothek/repository")
    for job, directory in (
        (SyncJob(job="planes-sync-1", remote=remote, direction="Pull", **basics), "repository"),
        (LedgerJob(job="planes-ledger-1", identity_dir="/var/run/kubothek/identity", **basics), "identity"),
        (polls, "env"),
    ):
        where = f"/var/run/kubothek/{directory}"
        action = LaunchJob(job=job, owner=owner(), engine=None, mounts={where: "planes-secret"})
        spec = job_pod.driver_pod(action, CONFIG)["spec"]
        (mount,) = (each for each in spec["containers"][0]["volumeMounts"] if each["mountPath"] == where)
        assert mount["readOnly"]
        (volume,) = (each for each in spec["volumes"] if each["name"] == mount["name"])
        assert volume["secret"] == {"secretName": "planes-secret", "defaultMode": 0o440}


@pytest.mark.parametrize(
    ("job", "has_token"),
    [
        ({"verb": "inspect"}, False),
        ({"verb": "query"}, False),
        (
            {"verb": "sync", "dataset": DATASET, "remote": RemoteRef(url="https://example.com/d"), "direction": "Pull"},
            True,
        ),
        ({"verb": "verify", "dataset": DATASET}, True),
    ],
)
def test_pod_without_spark_has_no_service_account_token(job: dict[str, Any], has_token: bool) -> None:
    found = JOB.validate_python({"job": "j", "uid": "u", "store": LAKE, **job})
    pod = job_pod.driver_pod(LaunchJob(found, owner(), None), CONFIG)
    assert pod["spec"].get("automountServiceAccountToken", True) is has_token
    volumes = {each["name"] for each in pod["spec"]["volumes"]}
    assert ("kubothek-private" in volumes) == (job["verb"] == "verify")


def test_executor_template_has_no_job_label_and_no_token() -> None:
    template = job_pod.executor_template(launch())
    assert names.JOB not in template["metadata"]["labels"]
    assert template["metadata"]["labels"]["kubothek.io/run"] == "0f-1"
    assert template["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    ("heap", "limit"),
    [("1Gi", "1920Mi"), ("8Gi", f"{8192 + 820 + 512}Mi"), (1_500_000_000, "2327Mi")],
)
def test_driver_memory_limit_includes_heap_overhead_and_python(heap: str | int, limit: str) -> None:
    resources = driver(launch(engine(driver={"memory": heap, "cores": 2})))["resources"]
    assert resources == {"requests": {"cpu": "1000m", "memory": limit}, "limits": {"memory": limit}}


def test_job_without_spark_requests_few_resources() -> None:
    job = DeleteJob(job="orders-delete-1", uid="u", store=LAKE, dataset=DATASET)
    action = LaunchJob(job=job, owner=owner(), engine=engine(driver={"memory": "64Gi", "cores": 16}))
    assert driver(action)["resources"] == {
        "requests": {"cpu": "100m", "memory": "512Mi"},
        "limits": {"memory": "512Mi"},
    }
    assert "spark" not in json.loads(job_pod.config_map(action, CONFIG)["data"]["job.json"])


def test_transform_job_gets_driver_memory_and_may_start_spark() -> None:
    job = TransformJob(job="late-transform-1", uid="u", store=LAKE, dataset=DATASET)
    action = LaunchJob(job=job, owner=owner(), engine=engine(driver={"memory": "8Gi", "cores": 3}))
    assert driver(action)["resources"]["requests"]["cpu"] != "100m"
    assert driver(action)["resources"]["limits"]["memory"] != "512Mi"
    assert json.loads(job_pod.config_map(action, CONFIG)["data"]["job.json"])["spark"]["conf"]


def test_engine_sets_image_account_and_pull_secrets() -> None:
    action = launch(
        engine(
            image="example.com/mine:1",
            imagePullPolicy="Always",
            imagePullSecrets=[{"name": "one"}, {"name": "two"}],
            serviceAccountName="mine",
        )
    )
    spec = job_pod.driver_pod(action, CONFIG)["spec"]
    assert (spec["serviceAccountName"], spec["imagePullSecrets"]) == ("mine", [{"name": "one"}, {"name": "two"}])
    assert (driver(action)["image"], driver(action)["imagePullPolicy"]) == ("example.com/mine:1", "Always")
    assert {"name": "KUBOTHEK_IMAGE", "value": "example.com/mine:1"} in driver(action)["env"]
    assert conf(action)["spark.kubernetes.container.image.pullSecrets"] == "one,two"


def test_job_without_engine_uses_operator_defaults() -> None:
    assert driver(launch())["image"] == CONFIG.job_image
    assert job_pod.driver_pod(launch(), CONFIG)["spec"]["serviceAccountName"] == "kubothek-job"


def test_spark_conf_has_executor_sizes_and_python_memory() -> None:
    settings = conf(
        launch(engine(executor={"instances": 5, "cores": 3, "memory": "3Gi"}), {"spark.speculation": "true"})
    )
    assert settings["spark.executor.instances"] == "5"
    assert settings["spark.executor.cores"] == "3"
    assert settings["spark.executor.memory"] == "3072m"
    assert settings["spark.executor.memoryOverheadFactor"] == "0.4"
    assert settings["spark.executor.maxNumFailures"] == "10"
    assert settings["spark.speculation"] == "true"


def test_operator_spark_conf_overrides_user_settings() -> None:
    assert conf(launch(conf={"spark.executor.memory": "1t"}))["spark.executor.memory"] == "2048m"


def test_executor_name_prefix_fits_spark_limit() -> None:
    action = launch()
    long = LaunchJob(job=action.job.model_copy(update={"job": "x" * 46 + "-12"}), owner=owner(), engine=None)
    prefix = conf(long)["spark.kubernetes.executor.podNamePrefix"]
    assert len(prefix) <= 47
    assert not prefix.endswith("-")


TEMPLATE = {
    "metadata": {
        "labels": {"team": "a", "kubothek.io/job": "forged", "app.kubernetes.io/name": "forged"},
        "annotations": {"cost": "7"},
    },
    "spec": {
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "hostNetwork": True,
        "serviceAccountName": "admin",
        "restartPolicy": "Always",
        "activeDeadlineSeconds": 1,
        "securityContext": {"runAsUser": 0},
        "volumes": [{"name": "extra", "emptyDir": {}}, {"name": "job", "emptyDir": {}}],
        "containers": [
            {"name": "mesh", "image": "mesh:1"},
            {
                "name": "driver",
                "image": "evil:1",
                "command": ["sh"],
                "args": ["-c", "evil"],
                "securityContext": {"privileged": True},
                "env": [{"name": "HTTPS_PROXY", "value": "p"}, {"name": "KUBOTHEK_IMAGE", "value": "evil:1"}],
                "volumeMounts": [{"name": "extra", "mountPath": "/extra"}],
            },
        ],
    },
}


def test_pod_template_adds_placement_volumes_sidecars_and_environment() -> None:
    action = launch(engine(podTemplate={"driver": TEMPLATE}))
    pod = job_pod.driver_pod(action, CONFIG)
    assert pod["metadata"]["labels"]["team"] == "a"
    assert pod["metadata"]["annotations"]["cost"] == "7"
    assert pod["spec"]["nodeSelector"] == {"disk": "fast"}
    assert pod["spec"]["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    assert "mesh" in [container["name"] for container in pod["spec"]["containers"]]
    assert {"name": "extra", "emptyDir": {}} in pod["spec"]["volumes"]
    assert {"name": "extra", "mountPath": "/extra"} in driver(action)["volumeMounts"]
    assert {"name": "HTTPS_PROXY", "value": "p"} in driver(action)["env"]


def test_pod_template_keeps_fields_that_define_job() -> None:
    with_template, without = (
        job_pod.driver_pod(launch(engine(podTemplate=t)), CONFIG) for t in ({"driver": TEMPLATE}, {})
    )
    for field in ("serviceAccountName", "restartPolicy", "activeDeadlineSeconds", "securityContext"):
        assert with_template["spec"][field] == without["spec"][field]
    assert "hostNetwork" not in with_template["spec"]
    assert with_template["metadata"]["labels"] == {**without["metadata"]["labels"], "team": "a"}
    ours, plain = (pod["spec"]["containers"][0] for pod in (with_template, without))
    for field in ("image", "args", "securityContext", "resources"):
        assert ours[field] == plain[field]
    assert "command" not in ours
    assert [env for env in ours["env"] if env["name"] == "KUBOTHEK_IMAGE"] == [
        {"name": "KUBOTHEK_IMAGE", "value": CONFIG.job_image}
    ]
    assert [volume for volume in with_template["spec"]["volumes"] if volume["name"] == "job"] == [
        {"name": "job", "configMap": {"name": "january-2"}}
    ]


def test_executor_template_is_separate_from_driver_template() -> None:
    selective = {"executor": {"spec": {"nodeSelector": {"size": "big"}}}}
    action = launch(engine(podTemplate=selective))
    assert job_pod.executor_template(action)["spec"]["nodeSelector"] == {"size": "big"}
    assert "nodeSelector" not in job_pod.driver_pod(action, CONFIG)["spec"]


@pytest.mark.parametrize("text", ["short", "x" * 63, "y" * 64, "z" * 200])
def test_label_value_fits_kubernetes_limit(text: str) -> None:
    value = names.label_value(text)
    assert len(value) <= 63
    assert (value == text) == (len(text) <= 63)


def test_label_values_truncated_stay_distinct() -> None:
    assert names.label_value("a" * 100 + "1") != names.label_value("a" * 100 + "2")


OUT = StoreRef(name="out", url="s3://out", credentials_dir="/var/run/kubothek/credentials/out")


@pytest.mark.parametrize(
    "result",
    [
        {"location": QueryLocation(store=OUT, path="reports", format="CSV")},
        {"becomes": QueryDataset(store=OUT, dataset=DATASET, commit_id="query:team/top")},
    ],
)
def test_query_job_mounts_result_store_and_gets_driver_memory(result: dict[str, Any]) -> None:
    job = QueryJob(job="top-query-1", uid="0f-1", store=LAKE, sql="SELECT 1", **result)
    on = engine(driver={"memory": "3Gi"})
    action = LaunchJob(job=job, owner=owner(), engine=on, secrets={"lake": "reader", "out": "writer"})
    container = driver(action)
    assert parse_quantity(container["resources"]["limits"]["memory"]) > 3 * 2**30
    assert {mount["mountPath"] for mount in container["volumeMounts"]} >= {LAKE.credentials_dir, OUT.credentials_dir}
    assert JOB.validate_json(job_pod.config_map(action, CONFIG)["data"]["job.json"]) == job


def test_ingestion_job_mounts_source_store_and_may_start_spark() -> None:
    source = SourceSpec(store=OUT, format="CSV")
    terms = {"name": "landing", "prefix": "in/", "max_files": 1, "max_bytes": 1, "reading": "r"}
    job = IntakeJob(job="orders-intake-1", uid="0f-1", store=LAKE, dataset=DATASET, source=source, **terms)
    on = engine(driver={"memory": "3Gi"})
    action = LaunchJob(job=job, owner=owner(), engine=on, secrets={"lake": "reader", "out": "writer"})
    container = driver(action)
    assert parse_quantity(container["resources"]["limits"]["memory"]) > 3 * 2**30
    assert {mount["mountPath"] for mount in container["volumeMounts"]} >= {LAKE.credentials_dir, OUT.credentials_dir}
    rendered = JOB.validate_json(job_pod.config_map(action, CONFIG)["data"]["job.json"])
    assert isinstance(rendered, IntakeJob)
    assert rendered.deadline_seconds == job_pod.driver_pod(action, CONFIG)["spec"]["activeDeadlineSeconds"]
    assert rendered.spark.conf["spark.executor.instances"]


def test_commit_job_of_statement_mounts_store_that_it_reads() -> None:
    statement = StatementSpec(store=OUT, sql="SELECT 1 AS a")
    job = CommitJob(job="c-1", uid="0f-1", store=LAKE, dataset=DATASET, commit_id="c", digest="d", statement=statement)
    action = LaunchJob(job=job, owner=owner(), engine=None, secrets={"lake": "reader", "out": "writer"})
    assert {mount["mountPath"] for mount in driver(action)["volumeMounts"]} >= {
        LAKE.credentials_dir,
        OUT.credentials_dir,
    }


def test_cube_job_mounts_all_stores_and_may_start_spark() -> None:
    inbox = StoreRef(name="inbox", url="s3://inbox", credentials_dir="/var/run/kubothek/credentials/inbox")
    job = CubeJob(
        job="build-1",
        uid="0f-1",
        store=LAKE,
        cube=CubeRef(prefix="geo"),
        by="cluster/team/geo",
        commit_id="team/build",
        digest="d",
        operation="Build",
        rows=(CubeRows(name="seed", source=SourceSpec(store=inbox, paths=("a.csv",), format="CSV")),),
        target=CubeTarget(store=OUT, prefix="geo"),
    )
    action = LaunchJob(job=job, owner=owner(), engine=None, secrets={"lake": "a", "inbox": "b", "out": "c"})
    mounted = {mount["mountPath"] for mount in driver(action)["volumeMounts"]}
    assert mounted >= {LAKE.credentials_dir, inbox.credentials_dir, OUT.credentials_dir}
    assert conf(action)["spark.executor.instances"]


def fetching(on: Engine | None = None) -> dict[str, Any]:
    """The pod of a poll whose source is a container."""
    container = SourceContainer(image="x/fetch:1", launcher_dir="/launch", output_dir="/opt/odf/out")
    job = PollJob(
        job="p-1",
        uid="0f-1",
        attempt=1,
        store=LAKE,
        dataset=DATASET,
        env_dir="/var/run/kubothek/env",
        container=container,
    )
    action = LaunchJob(
        job, owner(), on, secrets={"lake": "lake-credentials"}, mounts={"/var/run/kubothek/env": "tokens"}
    )
    return dict(job_pod.driver_pod(action, CONFIG))


def mounted(container: dict[str, Any]) -> dict[str, bool]:
    """Whether it is read only, by path."""
    return {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}


def test_source_container_sees_only_required_mounts_and_variables() -> None:
    pod = fetching()
    prepare, fetch = pod["spec"]["initContainers"]
    (driver,) = pod["spec"]["containers"]
    assert fetch["image"] == "x/fetch:1"
    assert fetch["command"] == ["/launch/ld.so", "--library-path", "/launch", "/launch/sh", "/launch/run"]
    assert mounted(fetch) == {"/launch": True, "/opt/odf/out": False}
    assert not {"env", "envFrom", "args"} & set(fetch)
    assert fetch["resources"] == driver["resources"]
    assert prepare["args"][-3:] == ["-m", "kubothek.jobs.fetch", "/etc/kubothek/job/job.json"]
    assert (prepare["image"], "ports" in prepare) == (driver["image"], False)
    assert mounted(prepare).items() >= {"/launch": False, "/var/run/kubothek/credentials/lake": True}.items()
    assert "/opt/odf/out" not in mounted(prepare)
    assert mounted(driver).items() >= {"/launch": True, "/opt/odf/out": True, "/var/run/kubothek/env": True}.items()
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes["fetch-launcher"]["emptyDir"]["medium"] == "Memory"
    assert set(volumes) == {mount["name"] for each in (prepare, fetch, driver) for mount in each["volumeMounts"]}


def test_source_container_pod_mounts_token_in_driver_only() -> None:
    pod = fetching(engine(podTemplate={"driver": {"spec": {"initContainers": [{"name": "proxy", "image": "p"}]}}}))
    where = "/var/run/secrets/kubernetes.io/serviceaccount"
    assert pod["spec"]["automountServiceAccountToken"] is False
    containers = [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]
    assert {each["name"]: where in mounted(each) for each in containers} == {
        "proxy": True,
        "prepare": False,
        "fetch": False,
        "driver": True,
    }
    skipped = {key: value for key, value in pod["metadata"]["annotations"].items() if "skip" in key}
    assert set(skipped.values()) == {"fetch"}


def test_pod_template_reaches_prepare_container_and_cannot_replace_fetch() -> None:
    beside = {
        "initContainers": [{"name": "fetch", "image": "other"}],
        "containers": [{"name": "driver", "env": [{"name": "HTTPS_PROXY", "value": "http://proxy"}]}],
    }
    prepare, fetch = fetching(engine(podTemplate={"driver": {"spec": beside}}))["spec"]["initContainers"]
    assert {"name": "HTTPS_PROXY", "value": "http://proxy"} in prepare["env"]
    assert (fetch["image"], "env" in fetch) == ("x/fetch:1", False)
