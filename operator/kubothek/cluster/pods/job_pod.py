"""The objects of one attempt: a pod that runs the job's program, and a ConfigMap with the job spec.

Pure functions from a :class:`~kubothek.controller.context.LaunchJob` to manifests. Pods satisfy the *restricted*
Pod Security Standard; the driver follows Spark, "Running Spark on Kubernetes".
"""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import urlsplit

from kubothek.api import pod_sizes
from kubothek.api.engine import Engine, EngineSpec
from kubothek.api.jobs import (
    CollectJob,
    CommitJob,
    CompactJob,
    CubeJob,
    HealJob,
    IndexJob,
    IntakeJob,
    PollJob,
    QueryJob,
    SkipFilesJob,
    SkipJob,
    StoreRef,
    SyncJob,
    TransformJob,
    VerifyJob,
)
from kubothek.api.ledger import IDENTITY_KEY
from kubothek.api.meta import API_VERSION
from kubothek.api.values import parse_duration
from kubothek.cluster import names
from kubothek.cluster.config import OperatorConfig
from kubothek.cluster.pods import deadlines, init_containers, job_secret, placement, scratch
from kubothek.cluster.pods.placement import merged
from kubothek.cluster.pods.sparkconf import spark_conf
from kubothek.controller.context import LaunchJob
from kubothek.controller.scheduling.run_spans import traceparent
from kubothek.tracing.ids import VARIABLE
from kubothek.tracing.sending import ENDPOINT

Object = dict[str, Any]

USER = 185
"""The uid of Spark's images and of ours."""

_WRITE = CommitJob | CubeJob | IntakeJob | PollJob | TransformJob
_SPARK = _WRITE | CompactJob | CollectJob | SkipJob | SkipFilesJob | VerifyJob
"""Jobs that may start Spark and create pods for it."""
_WITH_TOKEN = _SPARK | SyncJob
"""Jobs whose pod has a token of the API server: a Sync reports its progress with it.

Others have none, so that no SQL and no file that they read can use the right to create pods.
"""
_HEAVY = _SPARK | IndexJob | HealJob | QueryJob | SyncJob
"""Jobs that read data."""
_EXECUTOR_TEMPLATE = "executor.json"
_TMP = "/tmp"  # noqa: S108
_GRACE_SECONDS = 60
"""Time to abort uploads, report the reason, and release executors."""


def driver_pod(action: LaunchJob, config: OperatorConfig, *, may_start_spark: bool | None = None) -> Object:
    """Return the driver pod of the attempt. ``may_start_spark``: default is by the kind of job."""
    engine = engine_spec(action)
    job = action.job
    heavy = isinstance(job, _HEAVY)
    with_spark = isinstance(job, _SPARK) if may_start_spark is None else may_start_spark
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **_metadata(action, "driver"),
            "annotations": {
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
                "sidecar.istio.io/inject": "false",
                **placement.queue_annotations(engine),
                **deadlines.notes(engine),
            },
        },
        "spec": {
            **_pod_basics(action, engine),
            "activeDeadlineSeconds": deadline_seconds(engine),
            "terminationGracePeriodSeconds": _GRACE_SECONDS,
            "serviceAccountName": engine.service_account_name or config.job_service_account,
            **({} if with_spark or isinstance(job, _WITH_TOKEN) else {"automountServiceAccountToken": False}),
            "containers": [
                {
                    "name": names.DRIVER_CONTAINER,
                    "image": image(engine, config),
                    "imagePullPolicy": engine.image_pull_policy or config.job_image_pull_policy,
                    # Arguments of the image's entry point, which reaps orphans and passes signals on.
                    "args": ["driver", "python", "-m", "kubothek.jobs.main", f"{names.JOB_DIRECTORY}/job.json"],
                    "env": _driver_env(action, engine, config, with_spark=with_spark),
                    "ports": [
                        {"name": "driver-rpc", "containerPort": pod_sizes.DRIVER_PORT},
                        {"name": "blockmanager", "containerPort": pod_sizes.BLOCK_MANAGER_PORT},
                    ],
                    "resources": pod_sizes.driver(engine, heavy=heavy),
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "securityContext": _container_security(),
                    "volumeMounts": [
                        {"name": "job", "mountPath": names.JOB_DIRECTORY, "readOnly": True},
                        {"name": "scratch", "mountPath": scratch.DIRECTORY},
                        *([job_secret.MOUNT] if with_spark else []),
                        *_mounts(action),
                    ],
                }
            ],
            "volumes": [
                {"name": "job", "configMap": {"name": job.job}},
                *([job_secret.volume(_private_secret(action))] if with_spark else []),
                {"name": "scratch", **scratch.driver_volume(engine, heavy=heavy)},
                *_volumes(action),
            ],
        },
    }
    pod = merged(pod, engine.pod_template.driver, names.DRIVER_CONTAINER)
    pod = placement.spot(pod, engine, executor=False)
    if isinstance(job, PollJob) and job.container is not None:
        return init_containers.with_fetch(pod, job.container)
    if isinstance(job, TransformJob) and job.foreign is not None and engine.odf is not None:
        policy = engine.image_pull_policy or config.job_image_pull_policy
        return init_containers.with_engine(pod, engine.odf, job.foreign, policy)
    return pod


def executor_template(action: LaunchJob) -> Object:
    """Return the pod template of executors; Spark adds image, sizes and command."""
    engine = engine_spec(action)
    labels = _metadata(action, "executor")["labels"]
    del labels[names.JOB]  # Spark tracks executors, not the operator
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "labels": labels,
            "annotations": {"sidecar.istio.io/inject": "false", **placement.queue_annotations(engine)},
        },
        "spec": {
            **_pod_basics(action, engine),
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "name": names.EXECUTOR_CONTAINER,
                    "env": [{"name": "HOME", "value": _TMP}, job_secret.executor_variable(_private_secret(action))],
                    "securityContext": _container_security(),
                    "volumeMounts": [*_mounts(action), *scratch.executor_mounts(engine)],
                }
            ],
            "volumes": [*_volumes(action), *scratch.executor_volumes(engine)],
        },
    }
    pod = merged(pod, engine.pod_template.executor, names.EXECUTOR_CONTAINER)
    return placement.spot(pod, engine, executor=True)


def config_map(action: LaunchJob, config: OperatorConfig) -> Object:
    """Return the ConfigMap that the pod reads: the job spec as JSON, and the executors' pod template."""
    job = action.job
    if isinstance(job, _SPARK):
        conf = {**job.spark.conf, **spark_conf(action, engine_spec(action), config)}
        job = job.model_copy(update={"spark": job.spark.model_copy(update={"conf": conf})})
    if isinstance(job, IntakeJob):
        job = job.model_copy(update={"deadline_seconds": deadline_seconds(engine_spec(action))})
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(action, "driver"),
        "immutable": True,
        "data": {
            "job.json": job.model_dump_json(indent=2),
            _EXECUTOR_TEMPLATE: json.dumps(executor_template(action), indent=2),
        },
    }


def identity(namespace: str, name: str, key: bytes) -> Object:
    """Return the Secret of a dataset's private key. It has no owner, as the chain outlives the Dataset."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {
                "app.kubernetes.io/name": "kubothek",
                "app.kubernetes.io/part-of": "kubothek",
                "app.kubernetes.io/managed-by": "kubothek-operator",
                "app.kubernetes.io/component": "identity",
            },
        },
        "immutable": True,
        "data": {IDENTITY_KEY: base64.b64encode(key).decode()},
    }


def engine_spec(action: LaunchJob) -> EngineSpec:
    """Return the spec of the attempt's Engine; all defaults if there is none."""
    return action.engine.spec if isinstance(action.engine, Engine) else EngineSpec()


def deadline_seconds(engine: EngineSpec) -> int:
    """How long a driver may run."""
    return int(parse_duration(engine.deadlines.total).total_seconds())


def image(engine: EngineSpec, config: OperatorConfig) -> str:
    """Return the image of driver and executors."""
    return engine.image or config.job_image


def _metadata(action: LaunchJob, component: str) -> Object:
    owner, job = action.owner, action.job
    return {
        "name": job.job,
        "namespace": owner.namespace,
        "labels": {
            "app.kubernetes.io/name": "kubothek",
            "app.kubernetes.io/part-of": "kubothek",
            "app.kubernetes.io/managed-by": "kubothek-operator",
            "app.kubernetes.io/component": component,
            names.KIND: owner.kind,
            names.NAME: names.label_value(owner.name),
            names.RUN: names.label_value(job.uid),
            names.ATTEMPT: str(job.attempt),
            names.VERB: job.verb,
            names.STORE: names.label_value(job.store.name),
            names.JOB: names.label_value(job.job),
            **placement.queue_labels(engine_spec(action), names.label_value(job.job)),
        },
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": owner.kind,
                "name": owner.name,
                "uid": owner.metadata.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def _pod_basics(action: LaunchJob, engine: EngineSpec) -> Object:
    basics: Object = {
        **placement.fields(engine),
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    if engine.image_pull_secrets:
        basics["imagePullSecrets"] = [{"name": secret.name} for secret in engine.image_pull_secrets]
    return basics


def _container_security() -> Object:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def _private_secret(action: LaunchJob) -> str:
    return job_secret.secret_name(action.owner.metadata.uid, action.job.job)


def _driver_env(action: LaunchJob, engine: EngineSpec, config: OperatorConfig, *, with_spark: bool) -> list[Object]:
    fields = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_IP": "status.podIP"}
    values = {
        "HOME": _TMP,
        "KUBOTHEK_IMAGE": image(engine, config),
        "KUBOTHEK_EXECUTOR_TEMPLATE": f"{names.JOB_DIRECTORY}/{_EXECUTOR_TEMPLATE}",
        "KUBOTHEK_SCRATCH": scratch.DIRECTORY,
        **({"KUBOTHEK_PRIVATE": job_secret.DIRECTORY} if with_spark else {}),
    }
    if config.tracing is not None and (part_of := traceparent(action, config.tracing.ratio)) is not None:
        values |= {ENDPOINT: config.tracing.endpoint, VARIABLE: part_of}
    return [
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
        *({"name": name, "value": value} for name, value in values.items()),
    ]


def _mounts(action: LaunchJob) -> list[Object]:
    """Return the mounts of the writable directory, and of each store's Secrets and volume where the job reads them."""
    stores = _stores(action)
    return [
        {"name": "tmp", "mountPath": _TMP},
        *(
            {"name": f"credentials-{index}", "mountPath": stores[name].credentials_dir, "readOnly": True}
            for index, name in enumerate(sorted(action.secrets))
        ),
        *(
            {"name": f"keys-{index}", "mountPath": stores[name].keys_dir, "readOnly": True}
            for index, name in enumerate(sorted(action.keys))
        ),
        *(
            {"name": f"secret-{index}", "mountPath": directory, "readOnly": True}
            for index, directory in enumerate(sorted(action.mounts))
        ),
        *(
            {"name": f"files-{index}", "mountPath": urlsplit(stores[name].url).path}
            for index, name in enumerate(sorted(action.volumes))
        ),
    ]


def _volumes(action: LaunchJob) -> list[Object]:
    return [
        {"name": "tmp", "emptyDir": {}},
        *(
            {"name": f"credentials-{index}", "secret": {"secretName": action.secrets[name], "defaultMode": 0o440}}
            for index, name in enumerate(sorted(action.secrets))
        ),
        *(
            {"name": f"keys-{index}", "secret": {"secretName": action.keys[name], "defaultMode": 0o440}}
            for index, name in enumerate(sorted(action.keys))
        ),
        *(
            {"name": f"secret-{index}", "secret": {"secretName": action.mounts[directory], "defaultMode": 0o440}}
            for index, directory in enumerate(sorted(action.mounts))
        ),
        *(
            {"name": f"files-{index}", "persistentVolumeClaim": {"claimName": action.volumes[name]}}
            for index, name in enumerate(sorted(action.volumes))
        ),
    ]


def _stores(action: LaunchJob) -> dict[str, StoreRef]:
    """Return the stores that the job touches, by name."""
    stores = {action.job.store.name: action.job.store}
    sources = [action.job.source] if isinstance(action.job, CommitJob | IntakeJob) else []
    if isinstance(action.job, CubeJob):
        sources = [rows.source for rows in action.job.rows]
        if action.job.target is not None:
            stores[action.job.target.store.name] = action.job.target.store
    for source in sources:
        if source is not None and source.store is not None:
            stores[source.store.name] = source.store
    if isinstance(action.job, CommitJob) and action.job.statement is not None:
        stores[action.job.statement.store.name] = action.job.statement.store
    if isinstance(action.job, SkipFilesJob):
        stores[action.job.files.store.name] = action.job.files.store
    if isinstance(action.job, QueryJob):
        target = action.job.location or action.job.becomes
        if target is not None:
            stores[target.store.name] = target.store
    return stores
