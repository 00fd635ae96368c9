"""Verification: a single check whether the objects in the store are what was committed.

It changes no data, so it and the writers do not wait for each other. It works for every Dataset with a commit, also for
one that cannot be written, above all if that is Corrupt. :mod:`kubothek.controller.scheduling.runs` controls the
attempts.
"""

from __future__ import annotations

from kubothek.api import jobs
from kubothek.api.conditions import State, complete, found_corrupt, progressing, waiting
from kubothek.api.dataset import Dataset
from kubothek.api.engine import Engine
from kubothek.api.verification import Verification, VerificationProgress, VerificationStatus
from kubothek.controller.context import Context, LaunchJob, Outcome
from kubothek.controller.outcome import conclude
from kubothek.controller.references import (
    Blocked,
    find_engine,
    job_basics,
    launch_job,
    missing,
    spark_settings,
    usable_store,
)
from kubothek.controller.scheduling.attempts import job_name
from kubothek.controller.scheduling.runs import RunSpec, run_once

_RUNNING = progressing("Progressing", "a job reads what was committed")


def verification_prefix(verification: Verification) -> str:
    """Return the prefix of a Verification's job names, which no Commit of the same name uses."""
    return f"{verification.name}-verification"


def reconcile(verification: Verification, context: Context) -> Outcome:
    """Reconcile a Verification."""
    spec: RunSpec[VerificationStatus] = RunSpec(
        prefix=verification_prefix(verification),
        running=_RUNNING,
        progress=VerificationProgress,
        engine=_engine(verification, context),
        launch=lambda attempt: _launch(verification, attempt, context),
        succeeded=lambda status, result: _succeeded(verification, context, status, result),
    )
    return run_once(verification, verification.status, context, spec)


def _engine(verification: Verification, context: Context) -> Engine | Blocked | None:
    dataset = context.get(Dataset, verification.namespace, verification.spec.dataset_ref.name)
    references = (verification.spec.engine_ref, dataset.spec.engine_ref if dataset else None)
    return find_engine(references, verification, context)


# --- the end ---------------------------------------------------------------------------------------------------------


def _succeeded(
    verification: Verification, context: Context, status: VerificationStatus, result: jobs.JobResult
) -> Outcome:
    """Return the outcome with the verdict; a job that finds corruption has succeeded, too."""
    changes: dict[str, object] = {"completion_time": context.now.replace(microsecond=0)}
    state: State = complete("Succeeded", result.message)
    if result.verify is not None:
        changes |= dict(result.verify.model_dump()) | {"verdict": "Sound"}
        if result.verify.first is not None:
            state = found_corrupt(result.message)
            changes["verdict"] = "Corrupt"
    updated = VerificationStatus.model_validate(status.model_dump() | changes)
    return conclude(verification, context, state, updated)


# --- the start -------------------------------------------------------------------------------------------------------


def _launch(verification: Verification, attempt: int, context: Context) -> LaunchJob | Blocked:
    """Return the job of an attempt, or what it has to wait for."""
    spec, name = verification.spec, verification.spec.dataset_ref.name
    dataset = context.get(Dataset, verification.namespace, name)
    if dataset is None:
        return missing("Dataset", name, verification, context)
    if dataset.spec.suspend:
        message = f"Dataset {name!r} is suspended: set its spec.suspend to false"
        return Blocked(waiting("DependencyNotReady", message))
    if dataset.status.version is None and dataset.status.problem is None:
        return Blocked(waiting("Waiting", f"nothing was committed to Dataset {name!r} yet, as far as inspections know"))
    store = usable_store(dataset.spec.store_ref.name, verification, context)
    if isinstance(store, Blocked):
        return store
    engine = _engine(verification, context)
    if isinstance(engine, Blocked):
        return engine
    job = jobs.VerifyJob(
        **job_basics(
            job_name(verification_prefix(verification), attempt),
            attempt,
            verification,
            store,
            dataset,
            context.settings,
        ),
        level=spec.level,
        since_version=spec.since.version if spec.since else None,
        since_block=spec.since.block if spec.since else None,
        until_version=spec.until.version if spec.until else None,
        until_block=spec.until.block if spec.until else None,
        recursive=spec.recursive,
        spark=spark_settings(engine),
    )
    return launch_job(job, verification, engine, store)
