"""The selection of configured namespaces to watch: those in which we have rights.

The deletion of a namespace first deletes our RoleBinding, then the other objects. A watch that breaks there cannot be
reopened, which would end kopf and so the service of all namespaces. So a namespace without rights is not watched. When
rights (re)appear, it is watched again after objects deleted meanwhile are removed from the cache. Until then its
Datasets are listed, by a right that we have everywhere (docs/decisions/0006).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

# kopf's own namespace observer fills these, but it needs rights that we do not request.
from kopf._cogs.structs.references import Insights, NamespaceName

from kubothek.cluster.api import Api, ApiError, ApiUnavailable
from kubothek.cluster.controller import Controller
from kubothek.cluster.resync import Resync

log = logging.getLogger(__name__)

CHECK_SECONDS = 4.0
"""Interval of the checks: less than kopf retries after a 403 (the sum of its ``error_backoffs``, 8.5 s)."""


class Scopes:
    """Limits ``insights.namespaces``, which kopf watches, to the namespaces in which we have rights."""

    def __init__(self, api: Api, namespaces: Sequence[str], controller: Controller, resync: Resync) -> None:
        self._api = api
        self._namespaces = namespaces
        self._datasets = controller.state.resources["Dataset"]
        self._resync = resync
        self._reported: list[str] = []
        self.insights = Insights()

    async def run(self) -> None:
        """Check the rights periodically, for ever."""
        while True:
            try:
                await self.check()
            except (ApiError, ApiUnavailable) as error:
                log.warning("cannot tell which namespaces may be watched: %s", error)
            await asyncio.sleep(CHECK_SECONDS)

    async def check(self) -> None:
        """Watch exactly the namespaces in which we have rights. Raises ApiError, ApiUnavailable."""
        watched = {NamespaceName(name) for name in self._namespaces if await self._may_watch(name)}
        for back in watched.intersection(self._reported):
            await self._resync.catch_up(back)
        lost = sorted(set(self._namespaces) - watched)
        if lost and lost != self._reported:
            log.warning("left out until there are rights in them (or deleted): %s", ", ".join(lost))
        self._reported = lost
        if self.insights.namespaces != watched:
            async with self.insights.revised:
                self.insights.namespaces.clear()
                self.insights.namespaces.update(watched)
                self.insights.revised.notify_all()
        for name in lost:
            if any(self._datasets.objects(name)):
                await self._resync.compare("Dataset", name)

    async def _may_watch(self, namespace: str) -> bool:
        try:
            await self._api.get("Commit", namespace, "any")
        except ApiError as error:
            if error.status != 403:
                raise
            return False
        return True
