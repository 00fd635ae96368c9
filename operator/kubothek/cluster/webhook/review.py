"""The answer to an AdmissionReview (``admission.k8s.io/v1``), as a pure function of it and the observed state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from kubothek.api.kinds import InvalidResource, parse
from kubothek.api.meta import Resource
from kubothek.controller.context import Lookup
from kubothek.controller.finding import Finding
from kubothek.controller.validation.resource_set import Gathered
from kubothek.controller.validation.rules import new_findings

Object = dict[str, Any]

_WARNING: Final = 250
"""Longest warning in characters: API servers cut them at 256."""
_NOTHING: Final = Gathered(())


def answer(review: Object, there: Lookup | None, found_before: Sequence[Finding] = ()) -> Object:
    """Return the review with its response; ``found_before``: findings of other checks of the object.

    ``there``: the observed state; None while the operator starts: then only the resource itself is checked. Raises
    KeyError or TypeError if ``review`` is not an AdmissionReview.
    """
    request = review["request"]
    found = [*found_before, *_found(request, there)]
    denials = [each for each in found if each.denies]
    response: Object = {"uid": request["uid"], "allowed": not denials}
    warnings = [_short(str(each)) for each in found if not each.denies]
    if warnings:
        response["warnings"] = warnings
    if denials:
        causes = [{"reason": "FieldValueInvalid", "field": e.path, "message": e.message} for e in denials]
        message = "; ".join(map(str, denials))
        response["status"] = {"code": 422, "reason": "Invalid", "message": message, "details": {"causes": causes}}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def _found(request: Object, there: Lookup | None) -> Iterator[Finding]:
    if request["operation"] not in ("CREATE", "UPDATE"):
        return
    new, old = request["object"], request.get("oldObject")
    if new["metadata"].get("deletionTimestamp"):
        return  # never block a deletion
    if old is not None and old.get("spec") == new.get("spec"):
        return  # no rule checks metadata
    resource, before = _parsed(new), _parsed(old) if old is not None else None
    if isinstance(resource, InvalidResource):
        known = set(before.problems) if isinstance(before, InvalidResource) else set()
        for problem in resource.problems:
            yield Finding("InvalidSpec", problem.path, problem.message, denies=problem not in known)
        return
    earlier = before if isinstance(before, Resource) else None
    for each in new_findings(resource, earlier, _NOTHING if there is None else there):
        if there is not None or not each.reason.endswith("NotFound"):
            yield each


def _parsed(obj: Object) -> Resource | InvalidResource:
    try:
        return parse(obj)
    except InvalidResource as error:
        return error


def _short(text: str) -> str:
    return text if len(text) <= _WARNING else f"{text[: _WARNING - 1]}…"
