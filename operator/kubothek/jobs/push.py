"""Hand the files of a Commit to a push source of a dataset's chain, exactly once."""

from __future__ import annotations

from typing import Final

from kubothek.jobs import translate
from kubothek.jobs.chains import opened
from kubothek.jobs.progress import Reporter
from kubothek.jobs.state import state_of
from kubothek.lake.errors import InputError
from kubothek.lake.ledger.feeding import InputFormat, push_files
from kubothek.lake.ledger.readers import Content, FileContent
from kubothek.lake.ledger.readers.content import DerivedContent, ObjectContent
from kubothek.lake.sources import Compression, UrlPolicy
from kubothek.lake.sources.fetch import fetch
from kubothek.lake.sources.streams import TextStream
from kubothek.lake.store import Store, open_store
from kubothek.resources.jobs import CommitJob, CommitOutcome, JobResult, SourceSpec

_FORMATS: Final = {"CSV": InputFormat.CSV, "JSONLines": InputFormat.ND_JSON, "Parquet": InputFormat.PARQUET}
_UNPACKED: Final = 64 << 30
"""Bytes that a compressed file may have."""


def run(job: CommitJob, store: Store, reporter: Reporter) -> JobResult:
    """Do it, or learn that it was done. Raises LakeError with the chain as it was."""
    if job.operation != "Append" or job.source is None or job.push_source is None:
        raise InputError("rows of a ledger change through its sources only: append what corrects them")
    reporter.tell("Starting")
    log = translate.dataset_log(store, job.dataset, conditional_writes=job.store.conditional_writes)
    done = push_files(
        opened(store, log, job.dataset),
        _contents(job.source, store),
        job.push_source,
        wanted=_FORMATS[job.source.format],
        commit_id=job.commit_id,
        digest=job.digest,
        told=lambda rows: reporter.tell("Reading", rows=rows),
    )
    if done.repeated:
        message = f"version {done.version} or one before it had taken these rows"
    elif done.up_to_date:
        message = "nothing in the files was new"
    else:
        message = f"version {done.version}: {done.records:,} records in {done.slices:,} slices"
    outcome = CommitOutcome(version=done.version, already_applied=done.repeated, rows=done.records, files=done.slices)
    return JobResult(
        outcome="Succeeded",
        reason="Succeeded",
        message=message,
        commit=outcome,
        dataset=state_of(store, log, job.dataset),
    )


def _contents(source: SourceSpec, store: Store) -> list[Content]:
    """The files, unpacked. Raises SourceNotFound, SourceRefused, SourceUnavailable."""
    if source.paths:
        landing = store if source.store is None else open_store(translate.store_config(source.store))
        return [_unpacked(ObjectContent.of(path, landing, path), source) for path in source.paths]
    policy = UrlPolicy(source.allowed_hosts, source.allow_local)
    return [_unpacked(FileContent(url, fetch(url, policy).file), source) for url in source.urls]


def _unpacked(content: Content, source: SourceSpec) -> Content:
    compression = _compression(content.name, source)
    if compression is Compression.NONE:
        return content
    return DerivedContent(content.name, lambda: TextStream(content.name, content.file(), compression), _UNPACKED)


def _compression(name: str, source: SourceSpec) -> Compression:
    if source.format == "Parquet":
        return Compression.NONE
    given = Compression(source.compression)
    path = name.lower().partition("?")[0]
    if given is not Compression.AUTO:
        return given
    if path.endswith((".gz", ".gzip")):
        return Compression.GZIP
    return Compression.ZIP if path.endswith(".zip") else Compression.NONE
