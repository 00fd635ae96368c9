"""Engine: nothing runs for an Engine itself. What can be wrong with one is its templates."""

from __future__ import annotations

from kubothek.reconcile.admission.pod_templates import denied
from kubothek.reconcile.summary import conclude, unchanged
from kubothek.reconcile.world import Outcome, World
from kubothek.resources.conditions import ready, stalled
from kubothek.resources.engine import DEFAULT_ENGINE, Engine


def reconcile(engine: Engine, world: World) -> Outcome:
    """What to do about an engine."""
    if engine.deleting or engine.frozen:
        return unchanged(engine)
    wrong = next(denied(engine), None)
    if wrong is not None:
        return conclude(engine, world, stalled(wrong.reason, f"{wrong.path}: {wrong.message}"))
    whose = (
        "all jobs of the namespace that name no other Engine" if engine.name == DEFAULT_ENGINE else "jobs that name it"
    )
    return conclude(engine, world, ready("Succeeded", f"the engine runs {whose}"))
