"""A manifest that is no valid resource: stored before a rule was tightened, or by another release.

The API server refuses such manifests, but keeps what it has; without this they would be silently ignored, and one with
our finalizer could never be deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kubothek.api.conditions import conditions_of, stalled
from kubothek.api.kinds import InvalidResource
from kubothek.api.meta import FINALIZER, ObjectMeta, Status
from kubothek.controller.context import Event, Outcome, SetFinalizer
from kubothek.controller.outcome import render, transition


def reconcile(manifest: Mapping[str, Any], error: InvalidResource, now: datetime) -> Outcome:
    """Say what is wrong, keep what is known, and let go of what is being deleted."""
    metadata = ObjectMeta.model_validate(manifest["metadata"])
    before: dict[str, object] = dict(manifest.get("status") or {})
    if metadata.deletion_timestamp is not None:
        if FINALIZER not in metadata.finalizers:
            return Outcome(before)
        event = Event("Warning", "InvalidSpec", f"the data is kept, as the spec is not valid: {error}")
        return Outcome(before, (SetFinalizer(False),), (event,))
    previous, state = Status.model_validate(before), stalled("InvalidSpec", str(error))
    generation, conditions = conditions_of(state, previous, metadata.generation, now)
    written = render(Status(observed_generation=generation, conditions=conditions))
    return Outcome(before | written, events=transition(state, previous))
