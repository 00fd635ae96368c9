"""What a gateway gives out, under which names, and where that is: by a store, or by the resources of a namespace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kubothek.catalog import Lake
from kubothek.errors import DatasetNotFound, InputError
from kubothek.odf.spec.layout import Layout
from kubothek.storage import Store
from kubothek.table.log import Claim
from kubothek.table.log.model import keys


@dataclass(frozen=True, slots=True)
class Place:
    """Where a dataset is.

    ``uuid``   its name in the store
    ``claim``  of the resource for which the gateway writes; None: it writes only what nobody owns
    """

    store: Store
    uuid: str
    claim: Claim | None = None

    @property
    def layout(self) -> Layout:
        """Of its chain."""
        return Layout(keys.chain(self.uuid))


class Catalogue(Protocol):
    """Asked from threads and for each request."""

    def place(self, name: str) -> Place:
        """From memory. Raises DatasetNotFound for what is not given out; StoreUnavailable if that is not known now."""

    def public(self, name: str) -> bool:
        """From memory: whether it may be pulled and queried without a token."""

    def names(self) -> Sequence[str]:
        """Of all that is given out, sorted; may ask the store."""


class OneStore:
    """All that is in a store, under the names that it has there."""

    def __init__(self, store: Store, public: frozenset[str] = frozenset()) -> None:
        self._store = store
        self._public = public

    def place(self, name: str) -> Place:
        """Also of what is not there yet."""
        try:
            return Place(self._store, keys.check_uuid(name))
        except InputError:
            raise DatasetNotFound("no dataset has such a name") from None

    def public(self, name: str) -> bool:
        """Whether it was named as public."""
        return name in self._public

    def names(self) -> Sequence[str]:
        """Lists the store."""
        return sorted(Lake(self._store).datasets())
