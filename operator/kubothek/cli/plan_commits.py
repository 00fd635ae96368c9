"""Outlook of the jobs of Commits: already applied, impossible, or the rows that they read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.api.commit import Commit
from kubothek.api.jobs import CommitJob, CommitOutcome, CubeJob, SourceSpec, StoreRef
from kubothek.api.meta import render_time
from kubothek.api.values import render_bytes
from kubothek.cli.steps import Outlook, Verb, done
from kubothek.controller.context import LaunchJob
from kubothek.cube.log import CubeLog
from kubothek.errors import LakeError, ObjectNotFound, SchemaMismatch, SourceNotFound
from kubothek.ingest.readers.values import check_names
from kubothek.local.launch import engine_spec, spark_from
from kubothek.storage import Store
from kubothek.table.expressions import parse
from kubothek.table.log import DatasetLog
from kubothek.table.log.transaction import Request, applied
from kubothek.words import count

Opened = Callable[[StoreRef], Store | None]


def commit_outlook(action: LaunchJob, job: CommitJob | CubeJob, opened: Opened, *, first: bool) -> Outlook:
    """Return what a Commit does. ``first``: no earlier Commit of this plan changes the Dataset, so that its present
    columns are those that the job finds. Raises LakeError for what the job would refuse.
    """
    commit, store = action.owner, opened(job.store)
    assert isinstance(commit, Commit), "only Commits have such jobs"
    version = _applied(job, store) if store is not None else None
    if version is not None:
        result = done(commit=CommitOutcome(version=version, already_applied=True))
        return Outlook(Verb.KEEP, f"is version {version} of {subject_of(commit)}", result)
    if isinstance(job, CubeJob):
        sources = [rows.source for rows in job.rows]
    else:
        sources = [] if job.source is None else [job.source]
    text = _with_sources(_change(commit), action, sources, opened)
    if isinstance(job, CommitJob) and job.statement is not None:
        text += f": rows of a SELECT over objectstore/{job.statement.store.name}"
    schema = _schema(job, store) if isinstance(job, CommitJob) and first and store is not None else None
    if schema is not None and job.where is not None:
        parse(job.where).bind(schema)
    if schema is not None and isinstance(job, CommitJob) and job.operation in ("Append", "Replace"):
        for source in sources if job.dataset.table.schema_evolution != "Compatible" else ():
            _check_columns(source, opened, schema)
    return Outlook(Verb.COMMIT, text)


def _applied(job: CommitJob | CubeJob, store: Store) -> int | None:
    """Return the version that the change is, if it was made before. Raises IdReused, ForeignOverwrite."""
    if isinstance(job, CubeJob):
        journal = CubeLog(store, job.cube.prefix).journal
        seen = journal.observe()
        record = journal.applied(job.commit_id, job.digest, seen.head if seen else None)
        return None if record is None else record.version
    log = DatasetLog(store, job.dataset.uuid)
    marker = applied(log.journal, Request(job.commit_id, job.digest, None), log.journal.observe())
    return None if marker is None else marker.version


def _schema(job: CommitJob, store: Store) -> pa.Schema | None:
    """Return the present schema; None without a readable table, which the job or the Dataset reports."""
    try:
        return DatasetLog(store, job.dataset.uuid).snapshot().schema
    except LakeError:
        return None


def subject_of(commit: Commit) -> str:
    """Return the Dataset or Cube that a Commit changes, as lines of a plan name it."""
    return f"{commit.subject.kind.lower()}/{commit.subject.name}"


def _change(commit: Commit) -> str:
    """Return the verb of a Commit with its object."""
    spec, name = commit.spec, subject_of(commit)
    if spec.cube is not None:
        where = f" where {spec.cube.where}" if spec.cube.where else ""
        verb = "remove partitions of" if spec.cube.operation == "RemovePartitions" else spec.cube.operation.lower()
        return f"{verb} {name}{where}"
    match spec.operation:
        case "Append":
            return f"append to {name}"
        case "Rollback":
            to = f"version {spec.to_version}" if spec.to_tag is None else f"tag {spec.to_tag}"
            return f"roll {name} back to {to if spec.to_time is None else render_time(spec.to_time)}"
        case operation:
            verb = "purge" if spec.purge else (operation or "").lower()
            return f"{verb} {name}" + (f" where {spec.where}" if spec.where else "")


def _with_sources(text: str, action: LaunchJob, sources: Sequence[SourceSpec], opened: Opened) -> str:
    """Return the text with the files that the change reads, their size, and what reads them."""
    names, size = list[str](), 0
    for source in sources:
        names += [*source.urls, *source.paths]
        for path in source.paths:
            assert source.store is not None, "paths are in a store"
            size += _size(path, source.store, opened(source.store))
    if not names:
        return text
    listed = (
        ", ".join(names) if len(names) == 1 or any(source.urls for source in sources) else count(len(names), "file")
    )
    if not size:
        return f"{text}: {listed}"
    engine = "by Spark" if size >= spark_from(engine_spec(action)) else "without Spark"
    return f"{text}: {listed} ({render_bytes(size)}, {engine})"


def _size(path: str, place: StoreRef, store: Store | None) -> int:
    try:
        if store is not None:
            return store.stat(path).size
    except ObjectNotFound:
        pass
    raise SourceNotFound(f"{path} is not in objectstore/{place.name}; `kubothek put` brings it there")


def _check_columns(source: SourceSpec, opened: Opened, schema: pa.Schema) -> None:
    """Compare the columns in the footers of Parquet files with those of the table. Raises SchemaMismatch.

    The job checks further rules (explicit schemas, files with other types).
    """
    store = opened(source.store) if source.store is not None else None
    if source.format != "Parquet" or source.columns or store is None:
        return
    for path in source.paths:
        try:
            with store.open(path) as file:
                found = pq.read_schema(pa.PythonFile(file, mode="r")).names
            check_names(path, found, schema.names)
        except SchemaMismatch:
            raise
        except (LakeError, OSError, pa.ArrowInvalid):  # no readable file: the job reports it
            return
