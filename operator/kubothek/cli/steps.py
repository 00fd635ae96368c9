"""Lines of a plan: what happens to a resource, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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
