"""Translation of a launch into a local process: URLs, credentials, sizes, environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from kubothek.api.engine import Engine, EngineSpec
from kubothek.api.jobs import (
    AnyJob,
    CollectJob,
    CommitJob,
    CompactJob,
    CubeJob,
    IntakeJob,
    LedgerJob,
    PollJob,
    QueryJob,
    SkipFilesJob,
    SkipJob,
    SourceSpec,
    StoreRef,
    SyncJob,
    TransformJob,
    VerifyJob,
)
from kubothek.api.values import parse_quantity
from kubothek.controller.context import LaunchJob
from kubothek.local import java
from kubothek.local.manifests import Key
from kubothek.urls import absolute_url

MIB = 1024 * 1024
SPARK_FROM: Final = "1Gi"
"""Source size from which Spark does the work locally, unless an Engine sets it. Spark has the same cores as the driver
alone, and must start a JVM (benchmarks/README.md, "Where Spark begins on one machine")."""

_WRITE = CommitJob | CubeJob | IntakeJob | PollJob | TransformJob
_SPARK = _WRITE | CompactJob | CollectJob | SkipJob | SkipFilesJob | VerifyJob
"""Jobs that may start Spark."""


def engine_spec(action: LaunchJob) -> EngineSpec:
    """Return the Engine spec of the job; without an Engine, an empty one."""
    return action.engine.spec if isinstance(action.engine, Engine) else EngineSpec()


def spark_from(engine: EngineSpec) -> int:
    """Return the size of a source in bytes from which Spark does the work locally."""
    return parse_quantity(engine.spark_from if "spark_from" in engine.model_fields_set else SPARK_FROM)


def cores(action: LaunchJob) -> int:
    """Return how many cores the job may use: Spark runs inside the driver here, and queries use DuckDB."""
    return engine_spec(action).driver.cores if isinstance(action.job, _SPARK | QueryJob) else 1


def render_job(
    action: LaunchJob,
    base: Path,
    credentials: Mapping[Key, Path],
    keys: Mapping[Key, Path] = MappingProxyType({}),
    mounts: Mapping[str, Path] = MappingProxyType({}),
) -> bytes:
    """Return the job spec for the subprocess.

    Relative ``file:`` URLs are resolved against ``base``. ``credentials`` are directories by ObjectStore; a store
    without one uses what boto3 finds in the environment. ``keys`` are directories with metadata keys by ObjectStore.
    ``mounts`` maps the directory at which a cluster would mount another Secret to the local one.
    """
    job = action.job

    def reachable(store: StoreRef) -> StoreRef:
        key = Key("ObjectStore", action.owner.namespace, store.name)
        found = {"credentials_dir": credentials.get(key), "keys_dir": keys.get(key)}
        directories = {name: None if directory is None else str(directory) for name, directory in found.items()}
        return store.model_copy(update={"url": absolute_url(store.url, base)} | directories)

    changes: dict[str, Any] = {"store": reachable(job.store)} | _mounted(job, mounts) | _read(job, reachable, base)
    if isinstance(job, CubeJob) and job.target is not None:
        changes["target"] = job.target.model_copy(update={"store": reachable(job.target.store)})
    if isinstance(job, _SPARK):
        engine = engine_spec(action)
        conf = {
            **job.spark.conf,
            "spark.app.name": job.job,
            "spark.master": f"local[{engine.driver.cores}]",
            "spark.driver.cores": str(engine.driver.cores),
            "spark.driver.host": "127.0.0.1",  # a name of this machine may resolve to anything, or to nothing
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": f"{parse_quantity(engine.driver.memory) // MIB}m",
        }
        changes["spark"] = job.spark.model_copy(update={"conf": conf, "from_bytes": spark_from(engine)})
    if isinstance(job, SyncJob):
        changes["remote"] = job.remote.model_copy(
            update={"url": absolute_url(job.remote.url, base), **_secret(job, mounts)}
        )
    if isinstance(job, SkipFilesJob):
        changes["files"] = job.files.model_copy(update={"store": reachable(job.files.store)})
    if isinstance(job, QueryJob):
        for name, target in (("location", job.location), ("becomes", job.becomes)):
            if target is not None:
                changes[name] = target.model_copy(update={"store": reachable(target.store)})
    return job.model_copy(update=changes).model_dump_json(indent=2).encode()


def _read(job: AnyJob, reachable: Callable[[StoreRef], StoreRef], base: Path) -> dict[str, Any]:
    """Return where a job reads its rows: files or a statement."""

    def readable(source: SourceSpec) -> SourceSpec:
        store = reachable(source.store) if source.store is not None else None
        urls = tuple(absolute_url(url, base) for url in source.urls)
        return source.model_copy(update={"store": store, "urls": urls})

    if isinstance(job, CubeJob):
        return {"rows": tuple(rows.model_copy(update={"source": readable(rows.source)}) for rows in job.rows)}
    if isinstance(job, CommitJob) and job.statement is not None:
        return {"statement": job.statement.model_copy(update={"store": reachable(job.statement.store)})}
    if isinstance(job, CommitJob | IntakeJob) and job.source is not None:
        return {"source": readable(job.source)}
    return {}


def _mounted(job: AnyJob, mounts: Mapping[str, Path]) -> dict[str, str]:
    """Return the local directories of a ledger's Secrets."""
    if isinstance(job, LedgerJob) and job.identity_dir is not None:
        return {"identity_dir": str(mounts.get(job.identity_dir, job.identity_dir))}
    if isinstance(job, PollJob) and job.env_dir is not None:
        return {"env_dir": str(mounts.get(job.env_dir, job.env_dir))}
    return {}


def _secret(job: SyncJob, mounts: Mapping[str, Path]) -> dict[str, str]:
    """Return the local directory of a Repository's Secret."""
    directory = job.remote.secret_dir
    return {} if directory is None else {"secret_dir": str(mounts.get(directory, directory))}


def job_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of jobs: ours, with the Java that was found."""
    found = java.find(environ)
    return dict(environ) | ({"JAVA_HOME": str(found.home)} if found is not None else {})
