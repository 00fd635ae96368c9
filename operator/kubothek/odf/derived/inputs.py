"""Where the inputs of a transformation are: other ledgers of the same store, by name or by id (NM, ST-02)."""

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
    """An input as it is at some moment: ``uuid`` of the dataset, and its chain."""

    uuid: str
    chain: Chain

    @property
    def id(self) -> DatasetId:
        """Which dataset it is, wherever it lies."""
        assert self.chain.state.seed is not None, "a chain has a seed"
        return self.chain.state.seed.dataset_id

    @property
    def head(self) -> Multihash:
        """The last block."""
        assert self.chain.state.head is not None, "a chain has a seed"
        return self.chain.state.head

    @property
    def layout(self) -> Layout:
        """Of its chain in the store."""
        return Layout(keys.chain(self.uuid))


Inputs: TypeAlias = Callable[[str], Input | None]
"""From a name or an id to the dataset as it is now; None if there is none."""


def inputs_of(store: Store, names: Mapping[str, str] | None = None) -> Inputs:
    """The ledgers of a store.

    ``names``  of datasets that are known under another one here; any other name is that of a dataset

    Each call looks anew where a chain is. An id is looked for once, at the head of every dataset of the store, unless
    it was met before.
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
        """Raises StoreError."""
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
        except LakeError:  # no name of a dataset, none of this name, or none that can be read
            return None
        self._chains[uuid] = chain
        found = Input(uuid=uuid, chain=chain)
        self._known[found.id] = uuid
        return found


def located(inputs: Inputs, wanted: TransformInput) -> Input:
    """The input that a stored SetTransform names. Raises InputMissing.

    It is looked for under its alias first, which is mostly its name, and counts by its id.
    """
    wanted_id = DatasetId.parse(wanted.dataset_ref)
    for reference in (wanted.alias, wanted.dataset_ref):
        found = inputs(reference) if reference is not None else None
        if found is not None and found.id == wanted_id:
            return found
    raise InputMissing(
        f"input {wanted.alias!r} of the transformation, {wanted.dataset_ref}, is not there: "
        "create or copy it, or give the derivative dataset another transformation"
    )


def resolver(inputs: Inputs) -> Resolver:
    """The same for what becomes of the references of a snapshot."""

    def resolve(reference: str) -> DatasetId | None:
        found = inputs(reference)
        return None if found is None else found.id

    return resolve


def all_located(inputs: Inputs, wanted: Iterable[TransformInput]) -> list[Input]:
    """Every one. Raises InputMissing, which names all that are not there."""
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
