"""One change of a cube, made exactly once and in all of its datasets or in none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TypedDict

from kubothek.api.jobs import CommitOutcome, CubeJob, JobResult, MemberOutcome
from kubothek.api.values import render_bytes
from kubothek.cube.handle import Cube
from kubothek.cube.log import CubeAlreadyApplied, CubeCommitted, CubeLog
from kubothek.cube.writing import Data
from kubothek.errors import CubeInvalid, InputError
from kubothek.jobs import translate
from kubothek.jobs.inflow import Inflows
from kubothek.jobs.progress import Reporter
from kubothek.jobs.state import cube_state, member_states
from kubothek.storage import Store, open_store
from kubothek.table.layout import Layout
from kubothek.table.log import Totals
from kubothek.table.log.multi.spec import CubeSpec
from kubothek.table.skipping.model import SkippingState
from kubothek.words import count


class _Once(TypedDict):
    """The arguments that make a change happen once."""

    id: str
    digest: str


class _New(TypedDict):
    """Properties of new datasets."""

    partition_on: dict[str, tuple[str, ...]]
    layouts: dict[str, Layout]
    skipping: dict[str, SkippingState]
    overwrite: bool


def run(job: CubeJob, store: Store, reporter: Reporter) -> JobResult:
    """Make the change, unless its commit id was applied before. Raises LakeError and leaves the cube unchanged."""
    reporter.report("Starting")
    log = translate.cube_log(store, job.cube, by=job.by, conditional_writes=job.store.conditional_writes)
    cube = Cube(store, log, _spec(job, log))
    if job.operation == "Cleanup":
        outcome, message = CommitOutcome(version=None), _clean_up(job, cube, reporter)
    else:
        with ExitStack() as held:
            done = _change(job, store, cube, held, reporter)
        outcome = _outcome(done)
        message = _message(job, outcome)
    return JobResult(
        outcome="Succeeded",
        reason="Succeeded",
        message=message,
        commit=outcome,
        cube=cube_state(log, job.cube),
        datasets=member_states(store, job.cube, [member.name for member in outcome.members]),
    )


def _spec(job: CubeJob, log: CubeLog) -> CubeSpec | None:
    """Return the Cube's specification, None if it has none. Raises CubeInvalid if it contradicts the stored cube."""
    wanted = translate.cube_spec(job.cube)
    if wanted is None:
        return None
    found = cube_state(log, job.cube)
    if found.problem is not None and found.problem.startswith("CubeMismatch: "):
        raise CubeInvalid(found.problem.removeprefix("CubeMismatch: "))
    return wanted


def _new(job: CubeJob, inflows: Inflows, rows: Mapping[str, Data]) -> _New:
    return _New(
        partition_on=_partition_on(job),
        layouts=inflows.layouts(rows),
        skipping=inflows.skipping(rows),
        overwrite=job.overwrite,
    )


def _change(job: CubeJob, store: Store, cube: Cube, held: ExitStack, reporter: Reporter) -> CubeCommitted:
    inflows, once = Inflows(job, store, cube, held, reporter), _Once(id=job.commit_id, digest=job.digest)
    rows = inflows.by_member()
    match job.operation:
        case "Build":
            return cube.build(rows, **_new(job, inflows, rows), **once)
        case "Extend":
            return cube.extend(rows, **_new(job, inflows, rows), **once)
        case "Append":
            return cube.append(rows, **once)
        case "Update":
            return cube.update(rows, remove=_where(job), **once)
        case "RemovePartitions":
            return cube.remove_partitions(_where(job), datasets=job.members, **once)
        case "Delete":
            return cube.delete(job.members, **once)
        case "Index":
            return _index(job, cube)
        case "Copy":
            return _copy(job, store, cube)
        case "Cleanup":
            raise AssertionError("makes no version")


# --- arguments of a verb ---------------------------------------------------------------------------------------------


def _partition_on(job: CubeJob) -> dict[str, tuple[str, ...]]:
    """Return the partition columns of written datasets whose partitioning differs from the cube's."""
    written = {rows.name for rows in job.rows}
    return {
        member.name: member.partition_on
        for member in job.cube.members
        if member.partition_on is not None and member.name in written
    }


def _where(job: CubeJob) -> str:
    if job.where is None:
        raise InputError(f"{job.operation} needs where, which partitions go; TRUE is all")
    return job.where


def _index(job: CubeJob, cube: Cube) -> CubeCommitted:
    """Commit to each dataset that has one of the columns, each exactly once under its own id."""
    there = cube.snapshot()
    done: list[CubeCommitted] = []
    for name in job.members or tuple(there.members):
        columns = [column for column in job.columns if column in there.member(name).payload]
        if columns:
            done.append(cube.index(name, columns, id=f"{job.commit_id}#{name}", digest=job.digest))
    if not done:
        raise CubeInvalid(
            f"no dataset of cube {job.cube.prefix!r} has a column {', '.join(map(repr, job.columns))} that can have an "
            "index; dimensions and partition columns need none"
        )
    return done[-1]


def _copy(job: CubeJob, store: Store, cube: Cube) -> CubeCommitted:
    target = job.target
    if target is None:
        raise InputError("Copy needs a target, where the copy goes")
    there, can = open_store(translate.store_config(target.store)), target.store.conditional_writes
    if not (there.probe().conditional_writes if can is None else can):
        raise InputError(f"{there.url} has no conditional writes, which a copy needs; copy to another store")
    names = list(job.members or cube.snapshot().members)
    # No Dataset claims the copy, so it must never replace data that a Dataset claims.
    free = Cube(store, CubeLog(store, job.cube.prefix, unowned_only=True, by=job.by))
    return free.copy(
        there,
        prefix=target.prefix,
        datasets={name: target.rename.get(name, name) for name in names},
        overwrite=target.overwrite,
        id=job.commit_id,
    )


def _clean_up(job: CubeJob, cube: Cube, reporter: Reporter) -> str:
    reporter.report("Cleaning up")
    done = cube.cleanup(dry_run=job.dry_run)
    counts = [count for each in done.values() for count in (each.found if job.dry_run else each.deleted).values()]
    objects, size = sum(count.objects for count in counts), sum(count.bytes for count in counts)
    return f"{count(objects, 'object')} ({render_bytes(size)}) {'would be ' if job.dry_run else ''}deleted"


# --- the result ------------------------------------------------------------------------------------------------------


def _outcome(done: CubeCommitted) -> CommitOutcome:
    added = {name: done.added.get(name, Totals()) for name in done.members}
    changed = [name for name in done.members if name in done.added]
    return CommitOutcome(
        version=done.version,
        already_applied=isinstance(done, CubeAlreadyApplied),
        rows=sum(totals.rows for totals in added.values()),
        files=sum(totals.files for totals in added.values()),
        bytes=sum(totals.bytes for totals in added.values()),
        members=tuple(
            MemberOutcome(
                name=name,
                version=done.members[name],
                rows=added[name].rows,
                files=added[name].files,
                bytes=added[name].bytes,
            )
            for name in changed
        ),
    )


def _message(job: CubeJob, outcome: CommitOutcome) -> str:
    if outcome.already_applied:
        return f"version {outcome.version} had made this change before"
    names: Sequence[str] = [member.name for member in outcome.members]
    text = f"version {outcome.version}"
    if job.operation == "Copy" and job.target is not None:
        return f"copied to {job.target.prefix!r}, as its {text}"
    if outcome.rows:
        return f"{text}: {count(outcome.rows, 'row')} in {count(outcome.files, 'file')} added to {', '.join(names)}"
    return f"{text}: {', '.join(names) or 'nothing'} changed"
