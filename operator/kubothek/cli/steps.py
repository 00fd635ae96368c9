"""Lines of a plan: what happens to a resource, and why; and what a job would do."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from kubothek.api.jobs import JobResult
from kubothek.jobs.outcome import MESSAGE_LIMIT
from kubothek.local.manifests import Key


class Verb(StrEnum):
    """What happens to a resource."""

    KEEP = "as it is"
    CREATE = "create"
    CHANGE = "change"
    COMMIT = "commit"
    SUSPENDED = "suspended"
    BLOCKED = "blocked"

    @property
    def mark(self) -> str:
        """One character for the verb."""
        return {"as it is": "=", "create": "+", "change": "~", "commit": ">", "suspended": "‖"}.get(self, "!")

    @property
    def color(self) -> str:
        """The terminal colour for the verb."""
        return {"!": "red", "=": "bright_black", "‖": "bright_black"}.get(self.mark, "green")


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the plan."""

    key: Key
    verb: Verb
    why: str


def done(**reported: object) -> JobResult:
    """Return the least result of a job that succeeds, and what it reports."""
    least = JobResult(outcome="Succeeded", reason="Succeeded", message="simulated by plan")
    return least.model_copy(update=reported)


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a job would do; without ``why`` it is not worth a line. ``result`` is what it would report."""

    verb: Verb = Verb.KEEP
    why: str = ""
    result: JobResult = field(default_factory=done)


def failed(reason: str, message: str) -> Outlook:
    """Return the outlook of a job that fails for good."""
    result = JobResult(outcome="Failed", reason=reason, message=message[:MESSAGE_LIMIT])
    return Outlook(Verb.BLOCKED, f"{reason}: {message.partition(chr(10))[0]}", result)
