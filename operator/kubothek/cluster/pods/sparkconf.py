"""Spark's settings for a driver that runs in client mode inside its own pod.

These settings are known before the pod exists; the driver adds those that depend on the pod (its name and address).
"""

from __future__ import annotations

from kubothek.api import pod_sizes
from kubothek.api.engine import EngineSpec
from kubothek.api.values import parse_duration, parse_quantity
from kubothek.cluster import names
from kubothek.cluster.config import OperatorConfig
from kubothek.cluster.pods import placement, scratch
from kubothek.controller.context import LaunchJob

_PREFIX_LIMIT = 47
"""Spark's limit of the pods' name prefix: 63 less what it appends."""


def spark_conf(action: LaunchJob, engine: EngineSpec, config: OperatorConfig) -> dict[str, str]:
    """Return the settings of this attempt. They override ``Engine.spec.sparkConf``."""
    executors = engine.executor
    job = action.job
    most = pod_sizes.executors(engine)[2]
    conf = {
        "spark.app.name": job.job,
        "spark.app.id": f"{job.job}-{job.uid}"[:63].rstrip("-"),
        "spark.driver.memory": pod_sizes.jvm(engine.driver.memory),
        "spark.driver.cores": str(engine.driver.cores),
        "spark.driver.port": str(pod_sizes.DRIVER_PORT),
        "spark.driver.blockManager.port": str(pod_sizes.BLOCK_MANAGER_PORT),
        "spark.blockManager.port": str(pod_sizes.BLOCK_MANAGER_PORT),
        **_number(engine),
        "spark.executor.cores": str(executors.cores),
        "spark.executor.memory": pod_sizes.jvm(executors.memory),
        # By default client mode gives executors the JVM's overhead of 0.1 and nothing for Python.
        "spark.executor.memoryOverheadFactor": str(pod_sizes.EXECUTOR_OVERHEAD_FACTOR),
        "spark.kubernetes.resource.type": "python",
        # A crash loop of executors ends the job.
        "spark.executor.maxNumFailures": str(max(3, 2 * most)),
        "spark.executor.failuresValidityInterval": "15m",
        "spark.kubothek.executorsDeadline": str(int(parse_duration(engine.deadlines.executors).total_seconds())),
        "spark.kubernetes.executor.podNamePrefix": job.job[:_PREFIX_LIMIT].rstrip("-"),
        "spark.kubernetes.executor.podTemplateContainerName": names.EXECUTOR_CONTAINER,
        "spark.kubernetes.executor.enablePollingWithResourceVersion": "true",
        "spark.kubernetes.container.image.pullPolicy": engine.image_pull_policy or config.job_image_pull_policy,
        # With these, and without claims, the driver needs rights to pods only.
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        **scratch.conf(engine),
        **_decommissioning(engine),
        **_event_log(engine),
    }
    for index, secret in enumerate(engine.image_pull_secrets):
        key = "spark.kubernetes.container.image.pullSecrets"
        conf[key] = secret.name if index == 0 else f"{conf[key]},{secret.name}"
    return conf


def _number(engine: EngineSpec) -> dict[str, str]:
    """Return the settings for the number of executors."""
    dynamic, (least, first, most) = engine.dynamic_allocation, pod_sizes.executors(engine)
    if dynamic is None or not dynamic.enabled:
        return {"spark.dynamicAllocation.enabled": "false", "spark.executor.instances": str(most)}
    return {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.initialExecutors": str(first),
        "spark.dynamicAllocation.minExecutors": str(least),
        "spark.dynamicAllocation.maxExecutors": str(most),
        "spark.dynamicAllocation.executorIdleTimeout": f"{_seconds(dynamic.idle_timeout)}s",
        "spark.dynamicAllocation.shuffleTracking.enabled": str(dynamic.shuffle_tracking).lower(),
    }


def _decommissioning(engine: EngineSpec) -> dict[str, str]:
    """Return the settings by which a decommissioned executor migrates its blocks; on spot nodes it has little time."""
    conf = {
        "spark.decommission.enabled": "true",
        "spark.storage.decommission.enabled": "true",
        "spark.storage.decommission.shuffleBlocks.enabled": "true",
        "spark.storage.decommission.rddBlocks.enabled": "true",
    }
    if engine.executor.spot == "Any":
        return conf
    return conf | {
        "spark.executor.decommission.forceKillTimeout": f"{placement.SPOT_GRACE_SECONDS}s",
        "spark.storage.decommission.shuffleBlocks.maxThreads": "16",
    }


def _event_log(engine: EngineSpec) -> dict[str, str]:
    """Return the settings of the event log: Spark's smallest files, on the driver's disk; the job moves them away."""
    if not engine.event_log.enabled:
        return {"spark.eventLog.enabled": "false"}
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{scratch.DIRECTORY}",
        "spark.eventLog.compress": "true",
        "spark.eventLog.rolling.enabled": "true",
        "spark.eventLog.rolling.maxFileSize": "10m",
        "spark.kubothek.eventLogLimit": str(parse_quantity(engine.event_log.max_size)),
    }


def _seconds(duration: str) -> int:
    """Return whole seconds, at least one: Spark accepts no fractions and no zero."""
    return max(1, int(parse_duration(duration).total_seconds()))
