"""Catalogue of a namespace: the Datasets that ``spec.sharing`` exposes, kept up to date by watches."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from kubothek.api.dataset import Dataset
from kubothek.api.kinds import InvalidResource, parse
from kubothek.api.objectstore import ObjectStore
from kubothek.cluster.api import Api, ApiError, ApiUnavailable, Object
from kubothek.cluster.queue import Backoff
from kubothek.controller.references import iceberg_of, store_ref
from kubothek.errors import DatasetNotFound, LakeError, StoreUnavailable
from kubothek.gateway.catalogue import CubeVersion, Place, cube_version
from kubothek.jobs.translate import store_config
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log import Claim
from kubothek.table.log.model.head import IcebergExports
from kubothek.table.log.multi.spec import SEPARATOR

_LOG: Final = logging.getLogger("kubothek.gateway.cluster")
STALE: Final = 300.0
"""Seconds for which the catalogue stays valid without contact to the API server.

A Dataset that stops being exposed meanwhile is served for that time at most.
"""

Open = Callable[[StoreConfig], Store]


@dataclass(frozen=True, slots=True)
class _Exposed:
    uuid: str
    store: str
    public: bool
    claim: Claim | None
    cube: str | None
    iceberg: IcebergExports


class _Datasets:
    """The exposed Datasets, by name."""

    def __init__(self, cluster: str) -> None:
        self.exposed: dict[str, _Exposed] = {}
        self._cluster = cluster

    async def seen(self, obj: Object) -> None:
        name = obj["metadata"]["name"]
        try:
            dataset = parse(obj)
        except InvalidResource as error:
            _LOG.warning("Dataset %s is not served: %s", name, error)
            await self.gone(name)
            return
        assert isinstance(dataset, Dataset)
        sharing = dataset.spec.sharing
        if sharing is None or not sharing.exposed or dataset.metadata.deletion_timestamp is not None:
            await self.gone(name)
            return
        owner = f"{self._cluster}/{dataset.namespace}/{name}"
        claim = Claim(owner, dataset.metadata.uid or "", dataset.spec.adopt)
        found = _Exposed(
            uuid=dataset.uuid,
            store=dataset.spec.store_ref.name,
            public=sharing.public,
            claim=claim if dataset.cube is None else None,
            cube=dataset.cube,
            iceberg=iceberg_of(dataset.spec),
        )
        if self.exposed.get(name) != found:
            _LOG.info("Dataset %s is served%s", name, ", to everybody" if found.public else "")
            self.exposed[name] = found

    async def gone(self, name: str) -> None:
        if self.exposed.pop(name, None) is not None:
            _LOG.info("Dataset %s is not served any more", name)


class _Stores:
    """The usable stores, by name."""

    def __init__(self, opened: Open) -> None:
        self.open: dict[str, tuple[StoreConfig, Store]] = {}
        self._opened = opened

    async def seen(self, obj: Object) -> None:
        name = obj["metadata"]["name"]
        try:
            store = parse(obj)
            assert isinstance(store, ObjectStore)
            config = store_config(store_ref(store))
            known = self.open.get(name)
            if known is None or known[0] != config:
                self.open[name] = config, await asyncio.to_thread(self._opened, config)
        except (InvalidResource, LakeError) as error:
            _LOG.warning("ObjectStore %s cannot be used: %s", name, error)
            await self.gone(name)

    async def gone(self, name: str) -> None:
        self.open.pop(name, None)


class NamespaceCatalogue:
    """Catalogue of the exposed Datasets of a namespace, by name.

    It reads no Secrets. Those of the stores are mounted where jobs have them: ``spec.credentialsSecretRef`` of the
    ObjectStore ``lake`` is at ``/var/run/kubothek/credentials/lake``.

    ``cluster``  first part of the owner in the operator's claims
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        cluster: str,
        opened: Open = open_store,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._datasets = _Datasets(cluster)
        self._stores = _Stores(opened)
        self._followers = (
            Follower(api, "ObjectStore", namespace, self._stores, clock=clock),
            Follower(api, "Dataset", namespace, self._datasets, clock=clock),
        )
        self._clock = clock

    async def run(self) -> None:
        """Follow the cluster, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for follower in self._followers:
                tasks.create_task(follower.run())

    @property
    def ready(self) -> bool:
        """Whether the catalogue is complete and not stale."""
        now = self._clock()
        return all(each.heard is not None and now - each.heard < STALE for each in self._followers)

    @property
    def exposed(self) -> int:
        """The number of exposed Datasets."""
        return len(self._datasets.exposed)

    def place(self, name: str) -> Place:
        """Return the place of a Dataset. Raises DatasetNotFound, StoreUnavailable."""
        found = self._found(name)
        if found is None:
            raise DatasetNotFound(f"there is no dataset {name!r}")
        if (store := self._stores.open.get(found.store)) is None:
            raise StoreUnavailable(f"the ObjectStore {found.store!r} of {name!r} does not exist, or cannot be used")
        return Place(store[1], found.uuid, found.claim, found.iceberg)

    def public(self, name: str) -> bool:
        """Return whether the resource makes the dataset public."""
        return (found := self._found(name)) is not None and found.public

    def names(self) -> Sequence[str]:
        """Return the sorted names of all exposed Datasets."""
        return sorted(self._datasets.exposed)

    def cubes(self) -> Sequence[str]:
        """Return the sorted names of the Cubes that have exposed Datasets."""
        return sorted({each.cube for each in list(self._datasets.exposed.values()) if each.cube is not None})

    def cube(self, name: str) -> CubeVersion | None:
        """Return the current version of a Cube, by the names of its Datasets; None also if one is not exposed."""
        members = {each.uuid: dataset for dataset, each in list(self._datasets.exposed.items()) if each.cube == name}
        if not members:
            return None
        uuid, dataset = next(iter(members.items()))
        prefix, _, _ = uuid.partition(SEPARATOR)
        found = cube_version(self.place(dataset).store, prefix)
        if found is None or not found.datasets.keys() <= members.keys():
            return None
        return CubeVersion(found.version, {members[each]: version for each, version in found.datasets.items()})

    def _found(self, name: str) -> _Exposed | None:
        if not self.ready:
            raise StoreUnavailable("the cluster does not say what is exposed")
        return self._datasets.exposed.get(name)


# Informer for one kind in one namespace: list, then watch, and list again after a gap.


_FORGOTTEN: Final = 410


class Known(Protocol):
    """Receiver of a follower's changes."""

    async def seen(self, obj: Object) -> None:
        """Handle an object that exists in this state."""

    async def gone(self, name: str) -> None:
        """Handle an object that no longer exists."""


class Follower:
    """Informer; ``heard`` is the time of the API server's last message, None before the first complete list."""

    def __init__(
        self,
        api: Api,
        kind: str,
        namespace: str,
        known: Known,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.heard: float | None = None
        self._api = api
        self._kind = kind
        self._namespace = namespace
        self._known = known
        self._backoff = Backoff(initial=0.5, limit=15)
        self._clock = clock
        self._names: set[str] = set()
        self._version = 0
        self._failures = 0

    async def run(self) -> None:
        """Follow until cancelled; errors are logged and retried with backoff."""
        step: Callable[[], Awaitable[None]] = self._list
        while True:
            try:
                await step()
                step, self._failures = self._watch, 0
            except (ApiError, ApiUnavailable) as error:
                step = self._list
                if isinstance(error, ApiError) and error.status == _FORGOTTEN:
                    continue
                self._failures += 1
                delay = self._backoff.delay(self._failures, random.Random())
                _LOG.warning("%s of %s: %s; again in %.1f s", self._kind, self._namespace, error, delay)
                await asyncio.sleep(delay)

    async def _list(self) -> None:
        found: set[str] = set()
        listed = 0
        async for page, version in self._api.pages(self._kind, self._namespace):
            listed = version
            for obj in page:
                found.add(obj["metadata"]["name"])
                await self._known.seen(obj)
        for name in self._names - found:
            await self._known.gone(name)
        self._names, self._version, self.heard = found, listed, self._clock()

    async def _watch(self) -> None:
        """Apply changes. Bookmarks and the end of a watch count as contact, so a quiet namespace is not stale."""
        async for change, obj in self._api.watch(self._kind, self._namespace, self._version):
            self.heard, self._failures = self._clock(), 0
            self._version = int(obj["metadata"]["resourceVersion"])
            if change == "BOOKMARK":
                continue
            name = obj["metadata"]["name"]
            if change == "DELETED":
                self._names.discard(name)
                await self._known.gone(name)
            else:
                self._names.add(name)
                await self._known.seen(obj)
        self.heard = self._clock()
