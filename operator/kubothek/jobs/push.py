"""Ingestion of a Commit's files through a push source of a chain, made exactly once."""

from __future__ import annotations

from functools import partial
from typing import Final

from kubothek.api.jobs import CommitJob, CommitOutcome, JobResult, SourceSpec
from kubothek.errors import InputError
from kubothek.ingest import Compression, UrlPolicy
from kubothek.ingest.fetch.download import fetch
from kubothek.jobs import translate
from kubothek.jobs.chains import opened
from kubothek.jobs.progress import Reporter
from kubothek.jobs.state import state_of
from kubothek.odf.dataset import Ingested, Root
from kubothek.odf.distributed import StoredFile, can_spread, unpacked
from kubothek.odf.ingest import InputFormat, push_files, push_source, step_for
from kubothek.odf.sources.readers import Content, FileContent
from kubothek.odf.sources.readers.content import ObjectContent
from kubothek.storage import Store, open_store
from kubothek.words import count

_FORMATS: Final = {"CSV": InputFormat.CSV, "JSONLines": InputFormat.ND_JSON, "Parquet": InputFormat.PARQUET}


def run(job: CommitJob, store: Store, reporter: Reporter) -> JobResult:
    """Push the files, unless the commit id was applied before. Raises LakeError and leaves the chain unchanged."""
    if job.operation != "Append" or job.source is None or job.push_source is None:
        raise InputError("rows of a ledger change through its sources only: append what corrects them")
    reporter.report("Starting")
    log = translate.dataset_log(store, job.dataset, conditional_writes=job.store.conditional_writes)
    done = _pushed(job, job.source, job.push_source, opened(store, log, job.dataset), reporter)
    if done.repeated:
        message = f"version {done.version} or one before it had taken these rows"
    elif done.up_to_date:
        message = "nothing in the files was new"
    else:
        message = f"version {done.version}: {count(done.records, 'record')} in {count(done.slices, 'slice')}"
    outcome = CommitOutcome(version=done.version, already_applied=done.repeated, rows=done.records, files=done.slices)
    return JobResult(
        outcome="Succeeded",
        reason="Succeeded",
        message=message,
        commit=outcome,
        dataset=state_of(store, log, job.dataset),
    )


def _pushed(job: CommitJob, source: SourceSpec, name: str, root: Root, reporter: Reporter) -> Ingested:
    """Push in this process if files are small, come from URLs or are compared with all records; else with Spark."""
    files, event, wanted = _stored(source, root.store), push_source(root, name), _FORMATS[source.format]
    size = sum(file.info.size for file in files)
    if not files or not can_spread(event.merge) or size < job.spark.from_bytes:
        contents = [file.content() for file in files] or _downloaded(source)
        return push_files(
            root,
            contents,
            name,
            wanted=wanted,
            commit_id=job.commit_id,
            digest=job.digest,
            told=lambda rows: reporter.report("Reading", rows=rows),
        )
    # PySpark takes half a second to import, and jobs below the limit must not need it at all.
    from kubothek.spark.ledger import RowsWithSpark
    from kubothek.spark.session import running

    rows = RowsWithSpark(
        session=partial(running, job.spark.conf, size),
        files=files,
        step=step_for(event.read, wanted),
        preprocess=event.preprocess,
        report=partial(reporter.report, "Writing"),
    )
    return root.push(rows, name, commit_id=job.commit_id, digest=job.digest)


def _stored(source: SourceSpec, store: Store) -> list[StoredFile]:
    """Return the source's files in a store. Raises SourceNotFound."""
    landing = store if source.store is None else open_store(translate.store_config(source.store))
    return [
        StoredFile(path, landing.config, ObjectContent.of(path, landing, path).info, _compression(path, source))
        for path in source.paths
    ]


def _downloaded(source: SourceSpec) -> list[Content]:
    """Download and unpack the files of the source's URLs. Raises SourceRefused, SourceUnavailable."""
    policy = UrlPolicy(source.allowed_hosts, source.allow_local)
    return [unpacked(FileContent(url, fetch(url, policy).file), _compression(url, source)) for url in source.urls]


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
