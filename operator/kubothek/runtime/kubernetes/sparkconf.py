"""Spark's settings for a driver that runs in client mode inside its own pod.

Only what is known before the pod exists; what only the pod knows (its name and address) the driver adds
itself.
"""

from __future__ import annotations

from kubothek.reconcile.world import LaunchJob
from kubothek.resources.engine import EngineSpec
from kubothek.runtime.kubernetes import names, sizes
from kubothek.runtime.kubernetes.config import OperatorConfig

_PREFIX_LIMIT = 47
"""Spark's limit of the pods' name prefix: 63 less what it appends."""


def spark_conf(action: LaunchJob, engine: EngineSpec, config: OperatorConfig) -> dict[str, str]:
    """The settings of this attempt. They win over ``Engine.spec.sparkConf``."""
    executors = engine.executor
    job = action.job
    conf = {
        "spark.app.name": job.job,
        "spark.app.id": f"{job.job}-{job.uid}"[:63].rstrip("-"),
        "spark.driver.memory": sizes.jvm(engine.driver.memory),
        "spark.driver.cores": str(engine.driver.cores),
        "spark.driver.port": str(sizes.DRIVER_PORT),
        "spark.driver.blockManager.port": str(sizes.BLOCK_MANAGER_PORT),
        "spark.blockManager.port": str(sizes.BLOCK_MANAGER_PORT),
        "spark.executor.instances": str(executors.instances),
        "spark.executor.cores": str(executors.cores),
        "spark.executor.memory": sizes.jvm(executors.memory),
        # Client mode gives executors the JVM's overhead of 0.1 and nothing for Python unless told.
        "spark.executor.memoryOverheadFactor": "0.4",
        "spark.kubernetes.resource.type": "python",
        # A crash loop of executors ends the job instead of going on for ever.
        "spark.executor.maxNumFailures": str(max(3, 2 * executors.instances)),
        "spark.executor.failuresValidityInterval": "15m",
        "spark.kubernetes.executor.podNamePrefix": job.job[:_PREFIX_LIMIT].rstrip("-"),
        "spark.kubernetes.executor.podTemplateContainerName": names.EXECUTOR_CONTAINER,
        "spark.kubernetes.executor.enablePollingWithResourceVersion": "true",
        "spark.kubernetes.container.image.pullPolicy": engine.image_pull_policy or config.job_image_pull_policy,
        # With these three the driver touches pods only, so its Role needs nothing else.
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
    }
    for index, secret in enumerate(engine.image_pull_secrets):
        key = "spark.kubernetes.container.image.pullSecrets"
        conf[key] = secret.name if index == 0 else f"{conf[key]},{secret.name}"
    return conf
