"""Statements of jobs: a SELECT over the datasets of a store, in a worker process under limits if there can be one."""

from __future__ import annotations

from datetime import UTC, datetime

from kubothek.api.jobs import CommitJob, QueryDataset, StatementSpec, StoreRef
from kubothek.errors import InputError
from kubothek.jobs import translate
from kubothek.sandbox import limited
from kubothek.sandboxed_sql import LimitedQuery, OneStore, in_process
from kubothek.sql import Limits
from kubothek.sql.result import Answer
from kubothek.storage import Store, open_store
from kubothek.table.log import Version


def expect() -> None:
    """Prepare for a statement: call it before the job has threads, as workers are forked."""
    if limited.available():
        limited.start(0)


def plan(statement: StatementSpec, store: Store) -> Answer:
    """Plan the statement; its versions are those at this time. Raises LakeError, QueryInvalid for a wrong statement."""
    limits = Limits(f"{statement.memory_bytes >> 20}MiB", statement.time_limit_seconds)
    at = None if statement.as_at is None else moment(statement.as_at, "asAt")
    version = as_of(statement.as_of_version, statement.as_of_time, statement.as_of_tag)
    if limited.available():
        return LimitedQuery(OneStore(store, version, at), statement.sql, limits)
    return in_process(OneStore(store, version, at), statement.sql, limits)  # a workstation, whose user wrote the text


def store_of(statement: StatementSpec, job: CommitJob, store: Store) -> Store:
    """Return the store that a statement reads; ``store`` is that of the job."""
    return store if _is_same(statement.store, job.store) else open_store(translate.store_config(statement.store))


def reads_own_dataset(read: StoreRef, changed: CommitJob | QueryDataset, answer: Answer) -> bool:
    """Return whether an answer from the store ``read`` needs the dataset that it changes, at any version."""
    names = (each.name.partition("/")[0] for each in answer.reads)
    return _is_same(read, changed.store) and changed.dataset.uuid in names


def _is_same(store: StoreRef, other: StoreRef) -> bool:
    return store.url.rstrip("/") == other.url.rstrip("/")


def as_of(version: int | None, time: str | None, tag: str | None) -> Version | None:
    """Return the version to read, of the one that is given. Raises InputError for a time that is none."""
    return (version or tag) if time is None else moment(time, "asOf.time")


def moment(text: str, field: str) -> datetime:
    """Return the time in UTC. Raises InputError, which names the field."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InputError(f"{field} {text!r} is no time; write it as 2026-11-21T14:00:00Z") from None
