"""Input of a forecast: the manifests, and the stores that they name."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from kubothek.api.cube import Cube
from kubothek.api.dataset import Dataset
from kubothek.api.objectstore import ObjectStore
from kubothek.cli.manifest_stores import reachable
from kubothek.errors import LakeError
from kubothek.local.apply import Applied
from kubothek.local.manifests import Key
from kubothek.storage import Store, open_store


class Stores:
    """The stores of the manifests, each opened at most once, and never written."""

    def __init__(self, applied: Applied, base: Path) -> None:
        self._applied = applied
        self._base = base
        self._held = ExitStack()
        self._stores: dict[Key, Store | LakeError] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def _home(self, resource: Dataset | Cube) -> Key:
        return Key("ObjectStore", resource.namespace, resource.spec.store_ref.name)

    def _open(self, key: Key) -> Store | LakeError | None:
        """Return the store, or its error, or None if no manifest has it."""
        resource = self._applied.resources.get(key)
        if not isinstance(resource, ObjectStore):
            return None
        if key not in self._stores:
            try:
                config = self._held.enter_context(reachable(resource, self._applied.secrets, self._base))
                self._stores[key] = _readable(open_store(config))
            except LakeError as error:
                self._stores[key] = error
        return self._stores[key]


def _readable(store: Store) -> Store:
    """Return the store after a successful request. Raises StoreError."""
    next(store.list(".kubothek/"), None)
    return store


_MISSING = "which is not in these manifests: add its manifest with -f"


def wrong(store: LakeError | None) -> str:
    """Return why a store cannot be read; the text follows the store's name."""
    return _MISSING if store is None else f"which cannot be read: {store.reason}: {store}"
