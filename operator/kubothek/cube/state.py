"""A cube at one version, the input of queries, checks and changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from kubothek.errors import DatasetNotFound
from kubothek.table.log.multi.members import Member
from kubothek.table.log.multi.spec import CubeSpec, is_hidden

__all__ = ["CubeSnapshot", "Member"]


@dataclass(frozen=True)
class CubeSnapshot:
    """One version of a cube.

    ``version``  0 for a cube that was never written through Kubothek
    ``members``  by name: the seed first, then the others sorted by name
    ``time``     time of the commit
    """

    spec: CubeSpec
    version: int
    members: Mapping[str, Member]
    time: datetime | None = None

    @property
    def seed(self) -> Member:
        """The dataset that defines which cells exist."""
        return self.member(self.spec.seed_dataset)

    def member(self, name: str) -> Member:
        """Return the dataset of this name. Raises DatasetNotFound."""
        if name not in self.members:
            raise DatasetNotFound(
                f"cube {self.spec.uuid_prefix!r} has no dataset {name!r}; its datasets: "
                f"{', '.join(self.members) or 'none'}"
            )
        return self.members[name]

    @property
    def columns(self) -> dict[str, pa.DataType]:
        """The stored type of each visible column; a known type wins over an unknown one (null)."""
        found: dict[str, pa.DataType] = {}
        for member in self.members.values():
            for field in member.schema:
                if not is_hidden(field.name) and (field.name not in found or pa.types.is_null(found[field.name])):
                    found[field.name] = field.type
        return found
