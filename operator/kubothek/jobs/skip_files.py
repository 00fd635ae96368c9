"""Update or deletion of the skipping metadata of plain files."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from kubothek.api.jobs import JobResult, SkipFilesJob, SkipFilesOutcome
from kubothek.external.collect import Described, Work
from kubothek.external.files import PlainFiles
from kubothek.external.metadata import location
from kubothek.external.refresh import Describe, Place, Refreshed, chosen_for_files, describe_here, drop, refresh
from kubothek.jobs import translate
from kubothek.jobs.outcome import shortened
from kubothek.jobs.progress import Reporter
from kubothek.storage import Store, open_store
from kubothek.words import count

_MAX_LISTED: Final = 8
_TEXT: Final = 160


def run(job: SkipFilesJob, store: Store, reporter: Reporter) -> JobResult:
    """Describe new and changed files. Raises LakeError; the metadata is then unchanged, or the next job rebuilds it."""
    reporter.report("Starting")
    if job.drop:
        message = f"deleted {count(drop(store, job.name), 'object')} of metadata"
        return JobResult(outcome="Succeeded", reason="Succeeded", message=message)
    place = Place(open_store(translate.store_config(job.files.store)), store, job.name)
    files = files_of(job)
    definitions = translate.skipping(job.skipping)
    if job.skipping.auto:
        definitions = chosen_for_files(place, files, definitions)
    done = refresh(place, files, definitions, build=lambda size: _builder(job, place, size, reporter))
    return JobResult(outcome="Succeeded", reason="Succeeded", message=describe(done), skip_files=_outcome(job, done))


def describe(done: Refreshed) -> str:
    """Return a message about what was done."""
    index = done.index
    text = f"{index.described:,} of {count(index.listed, 'file')} described"
    changes = [f"{number:,} {word}" for number, word in ((done.added, "new"), (done.removed, "gone")) if number]
    return f"{text} ({', '.join(changes)})" if changes else text


def files_of(job: SkipFilesJob) -> PlainFiles:
    """Return which files the metadata describes."""
    spec = job.files
    return PlainFiles(
        spec.prefix, spec.format, spec.glob, translate.csv_options(spec.csv), translate.schema(spec.columns)
    )


def _builder(job: SkipFilesJob, place: Place, size: int, reporter: Reporter) -> Describe:
    def report(done: int, total: int) -> None:
        reporter.report("Describing", done, total)

    if size < job.spark.from_bytes:
        return describe_here(place, report)

    def with_spark(work: Work, pieces: list[pa.Table]) -> list[Described]:
        # PySpark takes half a second to import, and jobs below the limit must not need it at all.
        from kubothek.spark.plain import describe_with_spark
        from kubothek.spark.session import running

        with running(job.spark.conf) as session:
            return describe_with_spark(session, place, report)(work, pieces)

    return with_spark


def _outcome(job: SkipFilesJob, done: Refreshed) -> SkipFilesOutcome:
    index = done.index
    return SkipFilesOutcome(
        location=location(job.name),
        files=index.listed,
        described=index.described,
        added=done.added,
        removed=done.removed,
        bytes=sum(part.bytes for part in index.parts),
        indices=tuple(map(translate.skipping_index, index.definitions.indices)),
        left_out=tuple(shortened(each, _TEXT) for each in index.left_out[:_MAX_LISTED]),
    )
