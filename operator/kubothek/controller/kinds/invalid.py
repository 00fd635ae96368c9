"""Manifest that is not a valid resource: stored before a rule became stricter, or by another release.

The API server rejects such manifests, but keeps those that it has stored. Without this module the operator would
silently ignore them, and one with our finalizer could never be deleted.
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
    """Report the error, keep the status, and remove the finalizer of a resource that is being deleted."""
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
