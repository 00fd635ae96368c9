"""Writers of an owned dataset beside its owner: the grant in the head (commit-protocol, "Other writers").

The grant is in the head, so the compare-and-swap of the head orders a change of it with every commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

OPERATION_OF_VERB: Final[Mapping[str, str]] = {
    "append": "Append",
    "replace": "Replace",
    "overwrite": "Overwrite",
    "delete": "Delete",
    "update": "Update",
    "merge": "Merge",
    "upsert": "Merge",
    "rollback": "Rollback",
    "compact": "Compact",
    "skipping": "Index",
    "indices": "Index",
    "tag": "Tag",
    "untag": "Tag",
}
"""The operation that a writer needs for a method of a dataset. Other methods are the owner's alone."""
GRANTABLE: Final = frozenset(OPERATION_OF_VERB.values())


@dataclass(frozen=True, slots=True)
class Grant:
    """What an owner permits others.

    ``owner``        the owner of the dataset that set it
    ``incarnation``  of that owner's resource
    ``evolves``      whether the commits of writers may change the columns
    ``writers``      the permitted operations, such as ``Append``, by name of the writer
    """

    owner: str
    incarnation: str
    evolves: bool = False
    writers: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, owner: str, incarnation: str, writers: Iterable[tuple[str, Iterable[str]]], *, evolves: bool = False
    ) -> Self:
        """Return the grant to pairs of a name and operations; a name that occurs twice has the operations of both."""
        merged: dict[str, frozenset[str]] = {}
        for name, operations in writers:
            merged[name] = merged.get(name, frozenset()) | frozenset(operations)
        return cls(owner, incarnation, evolves, merged)

    def to_json(self) -> dict[str, Any] | None:
        """Return the form in the head; None if nobody is permitted anything."""
        if not self.writers:
            return None
        return {
            "owner": self.owner,
            "incarnation": self.incarnation,
            "evolves": self.evolves,
            "writers": {name: sorted(operations) for name, operations in sorted(self.writers.items())},
        }

    @classmethod
    def of_json(cls, found: object) -> Self | None:
        """Return the grant in a head; None if there is none, or if it is not in this form: then it permits nothing."""
        if not isinstance(found, dict) or not isinstance(found.get("writers"), dict):
            return None
        owner, incarnation = found.get("owner"), found.get("incarnation")
        if not isinstance(owner, str) or not isinstance(incarnation, str):
            return None
        pairs = found["writers"].items()
        if not all(isinstance(name, str) and _are_names(operations) for name, operations in pairs):
            return None
        return cls.of(owner, incarnation, pairs, evolves=found.get("evolves") is True)


def _are_names(found: object) -> bool:
    return isinstance(found, list) and all(isinstance(each, str) for each in found)
