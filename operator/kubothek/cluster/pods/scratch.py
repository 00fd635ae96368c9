"""Volumes for spill and shuffle: a disk of the node, memory, or claims that outlive executors."""

from __future__ import annotations

from typing import Any, Final

from kubothek.api import pod_sizes
from kubothek.api.engine import EngineSpec
from kubothek.api.values import parse_quantity

Object = dict[str, Any]

DIRECTORY: Final = "/var/spark"
_CLAIM_DIRECTORY: Final = f"{DIRECTORY}/spark-x/executor-x"
"""Spark looks for the blocks of earlier executors two levels above its own directory, in ``spark-*/executor-*``."""
_VOLUME: Final = "spark-local-dir-1"
"""Spark takes a volume of this name, or claim, for its local directory (LocalDirsFeatureStep)."""
_CLAIM: Final = f"spark.kubernetes.executor.volumes.persistentVolumeClaim.{_VOLUME}"


def driver_volume(engine: EngineSpec, *, heavy: bool) -> Object:
    """Return the source of the driver's volume: an emptyDir for jobs that read no data."""
    scratch = engine.scratch
    if scratch is None or not heavy:
        return {"emptyDir": {}}
    if scratch.medium != "EphemeralPVC":
        return {"emptyDir": _empty_dir(engine)}
    resources = {"requests": {"storage": pod_sizes.mebibytes(parse_quantity(scratch.size or 0))}}
    claim: Object = {"accessModes": ["ReadWriteOnce"], "resources": resources}
    if scratch.storage_class_name is not None:
        claim["storageClassName"] = scratch.storage_class_name
    return {"ephemeral": {"volumeClaimTemplate": {"spec": claim}}}


def executor_volumes(engine: EngineSpec) -> list[Object]:
    """Return the volumes of the executors' template; Spark itself creates the default emptyDir and the claims."""
    scratch = engine.scratch
    if scratch is None or scratch.medium == "EphemeralPVC" or (scratch.medium == "Disk" and scratch.size is None):
        return []
    return [{"name": _VOLUME, "emptyDir": _empty_dir(engine)}]


def executor_mounts(engine: EngineSpec) -> list[Object]:
    """Return the mounts of :func:`executor_volumes`."""
    return [{"name": volume["name"], "mountPath": DIRECTORY} for volume in executor_volumes(engine)]


def conf(engine: EngineSpec) -> dict[str, str]:
    """Return Spark's settings for the volumes.

    The driver owns the claims: a new executor takes the claim of a lost one and reports the shuffle blocks that it
    finds. Without claims drivers need no rights to them.
    """
    scratch = engine.scratch
    claims = scratch is not None and scratch.medium == "EphemeralPVC"
    found = {
        "spark.kubernetes.driver.ownPersistentVolumeClaim": str(claims).lower(),
        "spark.kubernetes.driver.reusePersistentVolumeClaim": str(claims).lower(),
    }
    if scratch is None:
        return found
    if scratch.medium == "Memory":
        found["spark.executor.memoryOverhead"] = pod_sizes.jvm(
            pod_sizes.executor_overhead(engine) + pod_sizes.in_memory(engine)
        )
    if claims:
        found |= {
            f"{_CLAIM}.options.claimName": "OnDemand",
            f"{_CLAIM}.options.sizeLimit": pod_sizes.mebibytes(parse_quantity(scratch.size or 0)),
            f"{_CLAIM}.mount.path": _CLAIM_DIRECTORY,
            f"{_CLAIM}.mount.readOnly": "false",
            "spark.shuffle.sort.io.plugin.class": "org.apache.spark.shuffle.KubernetesLocalDiskShuffleDataIO",
        }
        if scratch.storage_class_name is not None:
            found[f"{_CLAIM}.options.storageClass"] = scratch.storage_class_name
    return found


def _empty_dir(engine: EngineSpec) -> Object:
    assert engine.scratch is not None, "asked only then"
    found: Object = {"medium": "Memory"} if engine.scratch.medium == "Memory" else {}
    if engine.scratch.size is not None:
        found["sizeLimit"] = pod_sizes.mebibytes(parse_quantity(engine.scratch.size))
    return found
