"""Warm drivers: their pods, and the patch that gives one a job.

A warm pod is that of a job of its Engine on its store, without the parts specific to one job. With a job it equals that
job's pod (owner, labels, deadline) except for its name. See docs/decisions/0025.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from kubothek.api.engine import Engine
from kubothek.api.values import parse_quantity, parse_time
from kubothek.cluster import names
from kubothek.cluster.config import OperatorConfig
from kubothek.cluster.pods import job_pod, job_secret
from kubothek.cluster.pods.sparkconf import spark_conf
from kubothek.controller.context import LaunchJob, StartDriver
from kubothek.controller.scheduling.run_spans import traceparent
from kubothek.tracing.ids import VARIABLE
from kubothek.tracing.sending import ENDPOINT

Object = dict[str, Any]

SPEC_LIMIT: Final = 192 * 1024
"""Maximum bytes of a job spec and its executors' template in annotations of a pod, which have 256 KiB in all."""
_OURS: Final = ("job",)
"""Volumes specific to one job."""
_OF_ONE_JOB: Final = ("KUBOTHEK_EXECUTOR_TEMPLATE", ENDPOINT, VARIABLE)
"""Variables specific to one job, or set otherwise."""


def warm_pod(action: StartDriver, config: OperatorConfig) -> Object:
    """Return the pod of a driver without a job."""
    like = replace(action.like, job=action.like.job.model_copy(update={"job": action.name}))
    pod = job_pod.driver_pod(like, config, may_start_spark=True)
    meta, spec = pod["metadata"], pod["spec"]
    for label in (names.RUN, names.ATTEMPT, names.VERB):
        del meta["labels"][label]
    meta["labels"][names.WARM] = action.key
    del spec["activeDeadlineSeconds"]  # counts from the start of the pod: it is set with the job
    spec["volumes"] = [volume for volume in spec["volumes"] if volume["name"] not in _OURS]
    driver = next(each for each in spec["containers"] if each["name"] == names.DRIVER_CONTAINER)
    driver["args"] = ["driver", "python", "-m", "kubothek.jobs.warm"]
    driver["volumeMounts"] = [mount for mount in driver["volumeMounts"] if mount["name"] not in _OURS]
    driver["env"] = [
        *(each for each in driver["env"] if each["name"] not in _OF_ONE_JOB),
        {"name": "KUBOTHEK_WARM_STORE", "value": like.job.store.model_dump_json()},
        *([] if config.tracing is None else [{"name": ENDPOINT, "value": config.tracing.endpoint}]),
        *_session(like, config),
    ]
    return pod


def _session(like: LaunchJob, config: OperatorConfig) -> list[Object]:
    """Return the variables of the driver's Spark session, if the Engine wants one: settings and largest source size."""
    engine = like.engine
    if not isinstance(engine, Engine) or engine.spec.warm is None or engine.spec.warm.spark_up_to is None:
        return []
    conf = {**engine.spec.spark_conf, **spark_conf(like, engine.spec, config)}
    return [
        {"name": "KUBOTHEK_WARM_SPARK", "value": json.dumps(conf, sort_keys=True)},
        {"name": "KUBOTHEK_WARM_SPARK_UP_TO", "value": str(parse_quantity(engine.spec.warm.spark_up_to))},
    ]


def fits(config_map: Mapping[str, Any]) -> bool:
    """Return whether the job of this ConfigMap fits into annotations."""
    return sum(len(text.encode()) for text in config_map["data"].values()) <= SPEC_LIMIT


def assigned(config_map: Object, driver: str) -> Object:
    """Return the ConfigMap of a job that this driver takes."""
    meta = config_map["metadata"]
    return {**config_map, "metadata": {**meta, "annotations": {names.DRIVER: driver}}}


def driver_of(config_map: Mapping[str, Any]) -> str | None:
    """Return the driver that the job of this ConfigMap was given to; None: it has a pod of its own."""
    return (config_map["metadata"].get("annotations") or {}).get(names.DRIVER)


def hand_over(
    action: LaunchJob, config_map: Object, driver: Object, config: OperatorConfig, now: datetime
) -> list[Object]:
    """Return a JSON patch that gives a warm driver this job. It fails if the driver has a job or is being deleted."""
    meta = config_map["metadata"]
    key, template = driver["metadata"]["labels"][names.WARM], json.loads(config_map["data"]["executor.json"])
    annotations = {
        names.TAKES: action.job.job,
        names.CLAIMED_AT: now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        names.JOB_SPEC: config_map["data"]["job.json"],
        names.EXECUTOR_TEMPLATE: json.dumps(job_secret.of_driver(template, driver)),
    }
    if config.tracing is not None and (part_of := traceparent(action, config.tracing.ratio)) is not None:
        annotations[names.PART_OF] = part_of
    started = parse_time(driver["status"].get("startTime"))
    waited = 0 if started is None else int((now - started).total_seconds())
    limit = job_pod.deadline_seconds(job_pod.engine_spec(action))
    return [
        {"op": "test", "path": "/metadata/uid", "value": driver["metadata"]["uid"]},
        # The labels of a warm driver change only when it gets a job.
        {"op": "test", "path": "/metadata/labels", "value": driver["metadata"]["labels"]},
        {"op": "test", "path": "/metadata/deletionTimestamp", "value": None},
        {"op": "add", "path": "/metadata/labels", "value": {**meta["labels"], names.WARM: key}},
        *({"op": "add", "path": _path("annotations", name), "value": text} for name, text in annotations.items()),
        {"op": "add", "path": "/metadata/ownerReferences", "value": meta["ownerReferences"]},
        {"op": "add", "path": "/spec/activeDeadlineSeconds", "value": max(0, waited) + limit},
    ]


def _path(field: str, name: str) -> str:
    """Return the JSON pointer (RFC 6901) of an entry in the metadata."""
    return f"/metadata/{field}/{name.replace('~', '~0').replace('/', '~1')}"
