"""Resync: a full listing that corrects what the watches missed.

A watch that is down (a restarted API server, a network gap) loses deletions for good: no later event reports them. So
the caches are compared with a full listing every ten minutes, and after each re-listing of a watch.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Sequence

from kubothek.api.bounds import BOUNDING
from kubothek.api.kinds import KINDS
from kubothek.cluster import names
from kubothek.cluster.api import Api, ApiError, ApiUnavailable, Object
from kubothek.cluster.controller import Controller
from kubothek.cluster.queue import Backoff

log = logging.getLogger(__name__)

WATCHED = (*BOUNDING, *KINDS, "Pod")
"""Every kind that the operator watches. Pods come last, so that their owners are cached before."""


class Resync:
    """Comparison of the controller's caches with listings: once at the start, then on request and in intervals."""

    def __init__(self, api: Api, controller: Controller, scopes: Sequence[str | None], interval: float = 600.0) -> None:
        self._api = api
        self._controller = controller
        self._scopes = scopes
        self._interval = interval
        self._rng = random.Random()
        self._requested = asyncio.Event()
        self._metrics = controller.metrics
        self._begun = False

    def request(self) -> None:
        """Request a comparison soon, as a watch may have gaps."""
        self._requested.set()

    async def once(self) -> None:
        """Compare every kind in every scope. Raises ApiError, ApiUnavailable."""
        news: Counter[str] = Counter()
        for kind in WATCHED:
            for scope in self._scopes:
                news[kind] += await self._compare_if_allowed(kind, scope)
        self._metrics.resynced(news if self._begun else {})  # at the start all is new
        self._begun = True

    async def catch_up(self, namespace: str) -> None:
        """Compare every kind in a namespace that was not watched for a while. Raises ApiError, ApiUnavailable.

        Pods come first: if the namespace was re-created, its resources must not see the pods of the old one.
        """
        for kind in ("Pod", *BOUNDING, *KINDS):
            await self._compare_if_allowed(kind, namespace)

    async def until_done(self) -> None:
        """Compare every kind in every scope, with retries until it succeeds."""
        backoff, failures = Backoff(limit=10), 0
        while True:
            try:
                return await self.once()
            except (ApiError, ApiUnavailable) as error:
                failures += 1
                delay = backoff.delay(failures, self._rng)
                log.warning("cannot list: %s; again in %.0f s", error, delay)
                await asyncio.sleep(delay)

    async def run(self) -> None:
        """Compare in intervals (± 10 %) and on request, for ever."""
        while True:
            try:
                async with asyncio.timeout(self._interval * self._rng.uniform(0.9, 1.1)):
                    await self._requested.wait()
            except TimeoutError:
                pass
            self._requested.clear()
            await self.until_done()

    async def compare(self, kind: str, scope: str | None) -> int:
        """Correct the cache of one kind in one scope; return the number of corrections.

        Raises ApiError, ApiUnavailable.
        """
        news = 0
        found: set[str] = set()
        newest = 0
        labels = names.JOB if kind == "Pod" else ""
        async for page, version in self._api.pages(kind, scope, labels=labels):
            newest = version
            for obj in page:
                found.add(obj["metadata"]["uid"])
                news += self._controller.observer.observe(kind, obj)
        missed = [obj for obj in self._known(kind, scope) if _is_missing(obj, found, newest)]
        for obj in missed:
            log.info("%s %s/%s is gone; the watch missed it", kind, scope, obj["metadata"]["name"])
            news += self._controller.observer.deleted(kind, obj)
        return news

    async def _compare_if_allowed(self, kind: str, scope: str | None) -> int:
        """Do as :meth:`compare`, but skip a namespace without rights, which Scopes logs."""
        try:
            return await self.compare(kind, scope)
        except ApiError as error:
            if error.status != 403 or scope is None:
                raise
            return 0

    def _known(self, kind: str, scope: str | None) -> list[Object]:
        return list(self._controller.state.cache(kind).objects(scope))


def _is_missing(obj: Object, found: set[str], listed: int) -> bool:
    """Return whether a cached object is not listed. One newer than the listing was created after it."""
    meta = obj["metadata"]
    return meta["uid"] not in found and int(meta["resourceVersion"]) <= listed
