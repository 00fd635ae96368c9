"""Catalogue of the datasets that a gateway serves: names and places, from a store or from a namespace's resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kubothek.catalog import Lake
from kubothek.cube.log import CubeLog
from kubothek.errors import CubeInvalid, DatasetNotFound, HeadUnreadable, InputError
from kubothek.odf.spec.layout import Layout
from kubothek.storage import Store
from kubothek.table.log import Claim
from kubothek.table.log.model import keys
from kubothek.table.log.model.head import IcebergExports


@dataclass(frozen=True, slots=True)
class Place:
    """Where a dataset is.

    ``uuid``     its name in the store
    ``claim``    of the resource for which the gateway writes; None: the gateway writes only datasets without an owner
    ``iceberg``  whether the Iceberg catalogue has it, and what happens to columns of types that Iceberg lacks
    """

    store: Store
    uuid: str
    claim: Claim | None = None
    iceberg: IcebergExports = "Omit"

    @property
    def layout(self) -> Layout:
        """The layout of its chain."""
        return Layout(keys.chain(self.uuid))


@dataclass(frozen=True, slots=True)
class CubeVersion:
    """A version of a cube; ``datasets``: the versions that belong to it, by name of the dataset."""

    version: int
    datasets: Mapping[str, int]


class Catalogue(Protocol):
    """Catalogue of served datasets, called from threads and for each request."""

    def place(self, name: str) -> Place:
        """Return a dataset's place, without I/O. Raises DatasetNotFound, StoreUnavailable if the state is unknown."""

    def public(self, name: str) -> bool:
        """Return, without I/O, whether the dataset may be pulled and queried without a token."""

    def names(self) -> Sequence[str]:
        """Return the sorted names of all served datasets; may list the store."""

    def cubes(self) -> Sequence[str]:
        """Return the sorted names of all cubes that may be served; may list the store."""

    def cube(self, name: str) -> CubeVersion | None:
        """Return the current version of a cube, read from the store; None if there is no readable one."""


class OneStore:
    """Catalogue of all datasets of a store, under their names in it."""

    def __init__(self, store: Store, public: frozenset[str] = frozenset()) -> None:
        self._store = store
        self._public = public

    def place(self, name: str) -> Place:
        """Return the place of a dataset, which may not exist yet."""
        try:
            return Place(self._store, keys.check_uuid(name))
        except InputError:
            raise DatasetNotFound("no dataset has such a name") from None

    def public(self, name: str) -> bool:
        """Return whether the dataset was named as public."""
        return name in self._public

    def names(self) -> Sequence[str]:
        """List the store."""
        return sorted(Lake(self._store).datasets())

    def cubes(self) -> Sequence[str]:
        """List the store."""
        return Lake(self._store).cubes()

    def cube(self, name: str) -> CubeVersion | None:
        """Read the head of the cube."""
        return cube_version(self._store, name)


def cube_version(store: Store, prefix: str) -> CubeVersion | None:
    """Read the current version of a cube, with the names of the datasets in the store; None if there is none."""
    try:
        seen = CubeLog(store, prefix).journal.observe()
    except (CubeInvalid, HeadUnreadable):  # the name is none, or the datasets of the cube are unknown
        return None
    if seen is None or not seen.head.members:
        return None
    versions = {seen.head.spec.uuid(member): each.version for member, each in seen.head.members.items()}
    return CubeVersion(seen.head.version, versions)
