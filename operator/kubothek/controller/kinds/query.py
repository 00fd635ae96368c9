"""Query: a SELECT whose result is written exactly once.

As for a Commit, the store guarantees "exactly once" (``jobs.query``), and :mod:`kubothek.controller.scheduling.runs`
controls the attempts. A Query with a schedule, or that follows its inputs, is
:mod:`kubothek.controller.kinds.standing_query`.
"""

from __future__ import annotations

from kubothek.api import jobs
from kubothek.api.conditions import complete, progressing
from kubothek.api.query import Query, QueryProgress, QueryStatus
from kubothek.controller.context import Context, Outcome
from kubothek.controller.kinds import query_job, standing_query
from kubothek.controller.outcome import conclude
from kubothek.controller.references import find_engine
from kubothek.controller.scheduling.maintenance_priority import query_prefix
from kubothek.controller.scheduling.runs import RunSpec, run_once

_RUNNING = progressing("Progressing", "a job runs the query")


def reconcile(query: Query, context: Context) -> Outcome:
    """Reconcile a Query."""
    if query.spec.is_standing:
        return standing_query.reconcile(query, context)
    spec: RunSpec[QueryStatus] = RunSpec(
        prefix=query_prefix(query),
        running=_RUNNING,
        progress=QueryProgress,
        engine=find_engine((query.spec.engine_ref,), query, context),
        launch=lambda attempt: query_job.launch(query, attempt, context),
        succeeded=lambda status, result: _succeeded(query, context, status, result),
    )
    return run_once(query, query.status, context, spec)


def _succeeded(query: Query, context: Context, status: QueryStatus, result: jobs.JobResult) -> Outcome:
    published = query_job.with_result(status, result, context.now)
    return conclude(query, context, complete("Succeeded", result.message), published)
