"""Engine: its warm drivers. Its state depends on its pod templates and on the quotas of its namespace."""

from __future__ import annotations

from kubothek.api.conditions import ready, stalled, waiting
from kubothek.api.engine import DEFAULT_ENGINE, Engine
from kubothek.api.values import Reference
from kubothek.controller.context import Context, Outcome
from kubothek.controller.outcome import conclude, unchanged
from kubothek.controller.pod_templates import denied
from kubothek.controller.references import Blocked, find_engine
from kubothek.controller.scheduling.warm_pool import has_company, keep_warm
from kubothek.controller.validation.quota import never_fits
from kubothek.controller.validation.sizes import beyond_limits


def reconcile(engine: Engine, context: Context) -> Outcome:
    """Reconcile an Engine."""
    if engine.deleting or engine.frozen:
        return unchanged(engine)
    wrong = next(denied(engine), None)
    if wrong is not None:
        return conclude(engine, context, stalled(wrong.reason, f"{wrong.path}: {wrong.message}"))
    if engine.spec.suspend:
        return conclude(engine, context, ready("Suspended", "no new jobs that read data while spec.suspend is true"))
    whose = (
        "all jobs of the namespace that name no other Engine" if engine.name == DEFAULT_ENGINE else "jobs that name it"
    )
    profile = find_engine((Reference(name=engine.name),), engine, context)
    if isinstance(profile, Blocked):
        return conclude(engine, context, profile.state)
    pool = keep_warm(profile or engine, context)
    status = engine.status.model_copy(update={"warm": pool.state})
    starved = next(never_fits(engine, context), None)
    if starved is not None:  # quotas change: what fits nevertheless runs, and other pods wait
        lacking = waiting(starved.reason, f"{starved.path}: {starved.message}")
        return conclude(engine, context, lacking, status, actions=pool.actions, again=pool.again)
    messages = [f"the engine runs {whose}"]
    if cuts := [cut.message for cut in beyond_limits(engine, context)]:
        messages.append(f"the operator's limits cut its sizes: {'; '.join(cuts)}")
    if engine.spec.warm is not None and has_company(profile or engine):
        messages.append("no driver waits for them beside other containers")
    return conclude(
        engine, context, ready("Succeeded", "; ".join(messages)), status, actions=pool.actions, again=pool.again
    )
