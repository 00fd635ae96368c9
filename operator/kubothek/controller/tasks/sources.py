"""Standing sources of a Dataset: when an intake is due, how its result is recorded, and what to report.

An intake is a job that ingests the new files of one source. A Dataset runs one at a time, and numbers them across its
sources. An intake is due one interval after the previous one of its source, or at once if that left files behind;
failures delay it with backoff. Of several due intakes, the one that was due first starts.

Intakes and Commits of a Dataset alternate. A Commit waits for an active intake (``queue``). An intake waits while a
Commit runs or could run, and for every writer if only one is safe. If both start at the same moment nevertheless, the
commit protocol prevents lost and duplicate changes.

The bucket records which files were ingested; the status can be lost without harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from kubothek.api import jobs
from kubothek.api.conditions import State, problem_text, progressing, stalled, waiting
from kubothek.api.dataset import Dataset, DatasetStatus
from kubothek.api.engine import Engine
from kubothek.api.files import Csv
from kubothek.api.objectstore import ObjectStore
from kubothek.api.sources import Intake, Lag, SourceState, StalledFile, StandingSource
from kubothek.api.values import parse_duration, parse_quantity
from kubothek.controller.context import Action, CancelJob, Context, Event, FailureClass
from kubothek.controller.references import (
    Blocked,
    dataset_ref,
    digest,
    engine_digest,
    launch_job,
    spark_settings,
    store_ref,
    usable_store,
)
from kubothek.controller.scheduling.attempts import Setback, job_name
from kubothek.controller.scheduling.launching import held_back, refused, suspended
from kubothek.controller.scheduling.maintenance_priority import alone
from kubothek.controller.scheduling.queue import about_to_commit, intake_prefix
from kubothek.controller.scheduling.retries import Budget
from kubothek.controller.scheduling.runner import run_attempts
from kubothek.controller.status_merge import absorb

_FIRST_RETRY = timedelta(seconds=2)
_LAST_RETRY = timedelta(minutes=5)
_PATIENCE = timedelta(seconds=30)
"""Requeue interval of an intake that waits for its turn or a store, in case no change wakes it earlier."""
_READING = progressing("Progressing", "a job reads a source")
_SILENT = Setback(FailureClass.RETRY, "ResultLost", "the job ended without a word about the source")


@dataclass(frozen=True, slots=True)
class Attended:
    """Status and actions for the sources of a Dataset, and what blocks one of them, if anything."""

    status: DatasetStatus
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    again: timedelta | None = None
    blocker: State | None = None

    @property
    def intake(self) -> Intake:
        """The last intake, or an empty one."""
        return self.status.intake or Intake()

    def with_intake(self, intake: Intake) -> Attended:
        """Return a copy with another intake."""
        return replace(self, status=self.status.model_copy(update={"intake": intake}))

    def with_state(self, state: SourceState) -> Attended:
        """Return a copy with another state of one source."""
        states = tuple(state if other.name == state.name else other for other in self.status.sources)
        return replace(self, status=self.status.model_copy(update={"sources": states}))


def attend(
    dataset: Dataset, context: Context, store: ObjectStore, engine: Engine | None, status: DatasetStatus, *, start: bool
) -> Attended:
    """Follow the active intake; otherwise start the next one that is due, if ``start``."""
    known = {state.name: state for state in status.sources}
    states = tuple(known.get(source.name, SourceState(name=source.name)) for source in dataset.spec.sources)
    attended = Attended(status.model_copy(update={"sources": states}))
    case = _Case(dataset, context, store, engine)
    if attended.intake.source is not None:
        attended = case.follow(attended)
    if attended.intake.source is None and start:
        attended = case.start_or_rest(attended)
    return replace(attended, blocker=_blocker(dataset, attended.status))


def _blocker(dataset: Dataset, status: DatasetStatus) -> State | None:
    """Return what blocks a source, permanent problems first. A suspended source is never blocked."""
    problems = [
        (state.transient, state.name, state.problem)
        for source, state in zip(dataset.spec.sources, status.sources, strict=True)
        if state.problem is not None and not source.suspend
    ]
    if not problems:
        return None
    transient, name, problem = min(problems)
    if transient:
        return waiting("SourceRetrying", f"source {name!r} is inspected again soon: {problem}")
    return stalled("SourceStalled", f"source {name!r} has stopped: {problem}; Commits continue")


def reading_of(dataset: Dataset, source: StandingSource) -> str:
    """Return a digest of everything in the manifest that determines whether a file can be read."""
    how = source.model_dump_json(include={"format", "compression", "csv", "columns", "operation"})
    return digest(how, dataset.spec.table.model_dump_json(include={"columns", "partition_on", "schema_evolution"}))


@dataclass(frozen=True, slots=True)
class _Case:
    """A Dataset with everything that decisions about its sources depend on."""

    dataset: Dataset
    context: Context
    store: ObjectStore
    engine: Engine | None

    @property
    def now(self) -> datetime:
        return self.context.now.replace(microsecond=0)

    def _source(self, name: str | None) -> StandingSource | None:
        return next((source for source in self.dataset.spec.sources if source.name == name), None)

    # --- the active intake ---

    def follow(self, attended: Attended) -> Attended:
        """Evaluate the announced intake."""
        step = run_attempts(
            attended.intake,
            intake_prefix(self.dataset),
            self.dataset,
            self.context,
            engine=self.engine,
            budget=Budget(limit=None),
            running=_READING,
            launch=lambda _: None,
        )
        attended = replace(attended, actions=(*attended.actions, *step.actions))
        if step.active:
            return attended.with_intake(step.attempts)
        if isinstance(step.end, jobs.JobResult) and step.end.intake is not None:
            attended = replace(attended, status=self._absorbed(attended.status, step.end))
            return self._answered(attended.with_intake(step.attempts), step.end.intake)
        if step.dropped and step.setback is None:
            return self._launched_again(attended.with_intake(step.attempts))
        return self._failed(attended, step.setback or _SILENT)

    def _launched_again(self, attended: Attended) -> Attended:
        """Launch an intake that was announced but never observed, unless the next one would have another spec."""
        intake, source = attended.intake, self._source(attended.intake.source)
        wanted = source is not None and not source.suspend and not self.dataset.spec.suspend
        if source is None or not wanted or reading_of(self.dataset, source) != intake.reading:
            return attended.with_intake(_over(intake))
        landing = self._alone(attended) or self._landing_store(source)
        if isinstance(landing, Blocked):
            return replace(attended.with_intake(_over(intake)), again=landing.again or _PATIENCE)
        return self._launch(attended, source, landing)

    def _absorbed(self, status: DatasetStatus, result: jobs.JobResult) -> DatasetStatus:
        return status if result.dataset is None else absorb(status, result.dataset)

    def _answered(self, attended: Attended, found: jobs.IntakeOutcome) -> Attended:
        """Return the result with the source state that the job reported."""
        intake = attended.intake
        source = self._source(intake.source)
        attended = attended.with_intake(_over(intake))
        if source is None:
            return attended
        more = found.waiting_files > 0 and found.commits > 0 and found.stalled is None
        stopped = found.stalled
        state = SourceState.model_validate(
            {
                "name": source.name,
                "lag": Lag.model_validate(
                    {"files": found.waiting_files, "bytes": found.waiting_bytes, "oldest": found.oldest_waiting}
                ),
                "current_until": found.current_until,
                "files": found.taken,
                "last_file": found.last_file,
                "last_commit_time": found.last_commit_time,
                "quarantined": found.quarantined,
                "problem": stopped.problem if stopped else None,
                "stalled": StalledFile(
                    key=stopped.key, etag=stopped.etag, version=stopped.version, reading=intake.reading or ""
                )
                if stopped
                else None,
                "look_time": self.now,
                "next_look_time": self.now if more else None,
            }
        )
        following = replace(attended, events=(*attended.events, *_quarantine_events(source, found)))
        return following.with_state(_in_seconds(state))

    def _failed(self, attended: Attended, setback: Setback) -> Attended:
        """Record a failed or lost intake. Its commits stay, and the next intake continues after them."""
        intake = attended.intake
        source = self._source(intake.source)
        attended = attended.with_intake(_over(intake))
        if source is None:
            return attended
        state = next(state for state in attended.status.sources if state.name == source.name)
        failures = state.failures + 1
        transient = setback.failure is not FailureClass.REPORT
        wait = Budget(initial=_FIRST_RETRY, maximum=_LAST_RETRY).delay(failures)
        if not transient:
            wait = max(wait, parse_duration(source.interval))
        changes = {
            "failures": failures,
            "problem": problem_text(setback.reason, setback.message),
            "transient": transient,
            "stalled": None,
            "look_time": self.now,
            "next_look_time": self.now + wait,
        }
        return attended.with_state(state.model_copy(update=changes))

    # --- the next intake ---

    def start_or_rest(self, attended: Attended) -> Attended:
        """Start the intake that has been due for longest, or return when to check again."""
        now = self.context.now
        pairs = zip(self.dataset.spec.sources, attended.status.sources, strict=True)
        due_times = [(self._due(source, state), source) for source, state in pairs if not source.suspend]
        due_times.sort(key=lambda pair: pair[0])
        due = [source for when, source in due_times if when <= now]
        if due and not about_to_commit(self.dataset, self.context) and self._alone(attended) is None:
            for source in due:
                landing = self._landing_store(source)
                if not isinstance(landing, Blocked):
                    return self._announce(attended, source, landing)
        waits = [when - now for when, _ in due_times if when > now] + ([_PATIENCE] if due else [])
        return replace(attended, again=min(waits, default=None))

    def _alone(self, attended: Attended) -> Blocked | None:
        return alone(self.dataset, self.dataset, self.store, self.context, attended.status)

    def _due(self, source: StandingSource, state: SourceState) -> datetime:
        """Return when the next intake of the source is due."""
        stopped = state.stalled
        edited = stopped is not None and stopped.reading != reading_of(self.dataset, source)
        if edited or (state.look_time is None and state.next_look_time is None):
            return datetime.min.replace(tzinfo=self.now.tzinfo)
        if state.next_look_time is not None:
            return state.next_look_time
        assert state.look_time is not None
        return state.look_time + parse_duration(source.interval)

    def _announce(self, attended: Attended, source: StandingSource, landing: ObjectStore) -> Attended:
        number = attended.intake.attempt + 1
        if number > 1:
            forget = CancelJob(self.dataset.namespace, job_name(intake_prefix(self.dataset), number - 1))
            attended = replace(attended, actions=(*attended.actions, forget))
        intake = Intake(attempt=number, source=source.name, reading=reading_of(self.dataset, source))
        return self._launch(attended.with_intake(intake), source, landing)

    def _launch(self, attended: Attended, source: StandingSource, landing: ObjectStore) -> Attended:
        digest = engine_digest(self.engine, self.context.settings)
        attended = attended.with_intake(attended.intake.model_copy(update={"engine_digest": digest}))
        job, stores = self._job(attended, source, landing), (self.store, landing)
        launch = launch_job(job, self.dataset, self.engine, *stores)
        if suspended(launch) is not None:
            return attended
        held = held_back(launch, self.context)
        if held is not None:
            blocked, wait = held
            return replace(attended, actions=(*attended.actions, wait), again=blocked.again)
        refusal = refused(job.job, self.dataset, self.context)
        again = refusal.again if refusal else attended.again
        return replace(attended, actions=(*attended.actions, launch), again=again)

    def _landing_store(self, source: StandingSource) -> ObjectStore | Blocked:
        """Return the store in which files land, if jobs can be started on it and on the Dataset's own store."""
        own = usable_store(self.store.name, self.dataset, self.context)
        if isinstance(own, Blocked) or source.store_ref is None:
            return own
        return usable_store(source.store_ref.name, self.dataset, self.context)

    def _job(self, attended: Attended, source: StandingSource, landing: ObjectStore) -> jobs.IntakeJob:
        context, intake = self.context, attended.intake
        reading = intake.reading or ""
        state = next(state for state in attended.status.sources if state.name == source.name)
        stopped = state.stalled if state.stalled is not None and state.stalled.reading == reading else None
        return jobs.IntakeJob(
            job=job_name(intake_prefix(self.dataset), intake.attempt),
            uid=self.dataset.metadata.uid,
            attempt=intake.attempt,
            store=store_ref(self.store),
            dataset=dataset_ref(self.dataset, context.settings),
            name=source.name,
            source=jobs.SourceSpec(
                store=store_ref(landing),
                format=source.format,
                compression=source.compression,
                csv=source.csv or Csv(),
                columns=source.columns or (),
            ),
            prefix=source.prefix or "",
            glob=source.glob or "",
            operation=source.operation,
            max_files=source.batch.max_files,
            max_bytes=parse_quantity(source.batch.max_bytes),
            quarantine=source.quarantine,
            reading=reading,
            stalled=jobs.StalledFile(
                key=stopped.key, etag=stopped.etag, version=stopped.version, problem=state.problem or ""
            )
            if stopped is not None and not source.quarantine
            else None,
            spark=spark_settings(self.engine),
        )


def _quarantine_events(source: StandingSource, found: jobs.IntakeOutcome) -> Sequence[Event]:
    if not found.refused:
        return ()
    others = f" ({found.refused} files in all)" if found.refused > 1 else ""
    message = f"source {source.name!r} put a file into quarantine{others}: {found.refusal}"
    return (Event("Warning", "FileQuarantined", message),)


def _over(intake: Intake) -> Intake:
    """Return an empty intake that keeps the number, which is never reused."""
    return Intake(attempt=intake.attempt, observed_attempt=intake.attempt)


def _in_seconds(state: SourceState) -> SourceState:
    """Return the state as it will be read back: times in a status are whole seconds."""
    return SourceState.model_validate_json(state.model_dump_json(by_alias=True))
