"""Resolution of a transformation's inputs to ledgers of the same store, by name or by id (NM, ST-02)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kubothek.errors import FormatInvalid, InputMissing, LakeError, StoreError
from kubothek.odf.dataset.definition import Chain, read_noted
from kubothek.odf.spec.events import TransformInput
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.validation.snapshots import Resolver
from kubothek.storage import Store
from kubothek.table.log import DatasetLog
from kubothek.table.log.history.listing import dataset_names
from kubothek.table.log.model import keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """An input at one moment: ``uuid`` of the dataset, and its chain."""

    uuid: str
    chain: Chain

    @property
    def id(self) -> DatasetId:
        """Return the id, which is the same in every store."""
        assert self.chain.state.seed is not None, "a chain has a seed"
        return self.chain.state.seed.dataset_id

    @property
    def head(self) -> Multihash:
        """Return the last block."""
        assert self.chain.state.head is not None, "a chain has a seed"
        return self.chain.state.head

    @property
    def layout(self) -> Layout:
        """Return the layout of its chain in the store."""
        return Layout(keys.chain(self.uuid))


Inputs: TypeAlias = Callable[[str], Input | None]
"""Returns the current state of the dataset with this name or id; None if there is none."""


def inputs_of(store: Store, names: Mapping[str, str] | None = None) -> Inputs:
    """Return the ledgers of a store.

    ``names``  aliases to names of datasets; any other name is that of a dataset

    Each call reads the current head. The first lookup of an unknown id reads the heads of all datasets of the store;
    later ones use what that found.
    """
    return _StoreInputs(store, dict(names or {}))


class _StoreInputs:
    def __init__(self, store: Store, names: Mapping[str, str]) -> None:
        self._store = store
        self._names = names
        self._known: dict[DatasetId, str] = {}
        self._chains: dict[str, Chain] = {}
        self._listed = False

    def __call__(self, reference: str) -> Input | None:
        """Return the dataset with this name or id; None if there is none. Raises StoreError."""
        try:
            wanted = DatasetId.parse(reference)
        except FormatInvalid:
            return self._named(self._names.get(reference, reference))
        if wanted not in self._known and not self._listed:
            for _ in map(self._named, dict.fromkeys([*self._names.values(), *dataset_names(self._store)])):
                pass
            self._listed = True
        found = self._named(self._known[wanted]) if wanted in self._known else None
        return found if found is not None and found.id == wanted else None

    def _named(self, uuid: str) -> Input | None:
        try:
            note = DatasetLog(self._store, uuid).snapshot().head.chain
            if note is None:
                return None
            chain = read_noted(self._store, uuid, note, self._chains.get(uuid))
        except StoreError:
            raise
        except LakeError:  # not a valid name, no such dataset, or an unreadable one
            return None
        self._chains[uuid] = chain
        found = Input(uuid=uuid, chain=chain)
        self._known[found.id] = uuid
        return found


def located(inputs: Inputs, wanted: TransformInput) -> Input:
    """Return the input that a stored SetTransform names. Raises InputMissing.

    The lookup tries the alias first, which is usually the name; the id must match.
    """
    wanted_id = DatasetId.parse(wanted.dataset_ref)
    for reference in (wanted.alias, wanted.dataset_ref):
        found = inputs(reference) if reference is not None else None
        if found is not None and found.id == wanted_id:
            return found
    raise InputMissing(
        f"input {wanted.alias!r} of the transformation, {wanted.dataset_ref}, does not exist: "
        "create or copy it, or give the derivative dataset another transformation"
    )


def resolver(inputs: Inputs) -> Resolver:
    """Return the resolver of references for a snapshot."""

    def resolve(reference: str) -> DatasetId | None:
        found = inputs(reference)
        return None if found is None else found.id

    return resolve


def all_located(inputs: Inputs, wanted: Iterable[TransformInput]) -> list[Input]:
    """Return all inputs. Raises InputMissing, which names all that do not exist."""
    found: list[Input] = []
    missing: list[str] = []
    for each in wanted:
        try:
            found.append(located(inputs, each))
        except InputMissing as error:
            missing.append(str(error))
    if missing:
        raise InputMissing("; ".join(missing))
    return found
