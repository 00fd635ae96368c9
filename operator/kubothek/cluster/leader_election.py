"""Which of several operators works: the holder of a Lease (coordination.k8s.io/v1), renewed while it lives.

It spares API calls and keeps two operators from working against each other. Data does not depend on it: a holder that
was taken for dead and is not can start jobs a little longer, and their commits are exactly once all the same
(docs/commit-protocol.md).

To lose it is no failure: a process that came too seldom to its turn, or whose API server was away, stops in the middle
of what it does, as every step of the work may be interrupted, and stands again. It knows all that it knew, so that it
goes on at once when nobody else has come.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from kubothek.cluster.api import CONFLICT, Api, ApiError, ApiUnavailable, Object

_LOG: Final = logging.getLogger(__name__)
_CONFLICTS: Final = (CONFLICT, 422)
"""Somebody else was first: with creating it, or with the version that our patch tests for."""


class _Lost(Exception):
    """Another operator may hold the Lease now; what works by it must stop at once."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds. An operator that dies is followed after ``duration`` and ``poll`` at most."""

    duration: float = 12.0
    """Without a renewal for so long, the others take the holder for dead."""
    deadline: float = 8.0
    """Without a renewal for so long, the holder takes itself for dead: sooner than the others do."""
    renew: float = 3.0
    poll: float = 2.0


class Lease:
    """One Lease as one operator (``identity``) sees it.

    Nobody's wall clock is trusted: how long the holder has been silent is measured from when *we* first saw its last
    renewal, on a clock that no one sets.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        name: str,
        identity: str,
        times: Times | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._held = False
        self._heard = False
        """Whether the API server ever let us do something with it."""
        self._api = api
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._times = times or Times()
        self._clock = clock
        self._seen: tuple[object, float] = (None, clock())

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do ``work`` as long as the Lease is ours, again and again: it is begun with the taking, cancelled at a loss.

        Ends when the work does, with what it raised. Whatever ends it, the Lease is given back after the work's end.
        Raises ApiError if we have no right to the Lease from the beginning.
        """
        while True:
            while not await self._tried(self._take):
                await asyncio.sleep(self._times.poll)
            _LOG.info("%s holds the Lease %s/%s", self._identity, self._namespace, self._name)
            try:
                self._held = True
                return await self._lead(work)
            except _Lost as lost:
                _LOG.warning("%s works no more, and waits: %s", self._identity, lost)
            finally:
                self._held = False

    async def _lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Raises _Lost, when nothing of the work goes on any more."""
        working, keeping = asyncio.ensure_future(work()), asyncio.ensure_future(self._keep())
        try:
            await asyncio.wait((working, keeping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (working, keeping):
                task.cancel()
            await asyncio.gather(working, keeping, return_exceptions=True)
            if keeping.cancelled():  # so it is ours still
                await self._tried(self._give_back)
        for task in (working, keeping):
            if not task.cancelled():
                task.result()

    async def _keep(self) -> None:
        renewed = self._clock()
        while True:
            await asyncio.sleep(self._times.renew)
            asked = self._clock()
            try:
                async with asyncio.timeout(max(renewed + self._times.deadline - asked, 0)):
                    if await self._tried(self._take):
                        renewed = asked
            except TimeoutError:
                pass
            if self._clock() - renewed >= self._times.deadline:
                raise _Lost(f"the Lease {self._namespace}/{self._name} was not renewed for too long")

    async def _tried(self, step: Callable[[], Awaitable[bool]]) -> bool:
        """Whether it worked out. An API server that does not answer is no answer: it is asked again, and so is one
        that knows nothing of our rights in the first moments of its life.
        """
        try:
            done = bool(await step())
        except ApiUnavailable as error:
            _LOG.warning("Lease %s/%s: %s", self._namespace, self._name, error)
            return False
        except ApiError as error:
            if error.status in _CONFLICTS:
                return False
            if not self._heard:
                raise
            _LOG.warning("Lease %s/%s: %s", self._namespace, self._name, error)
            return False
        self._heard = True
        return done

    async def _take(self) -> bool:
        """Take it, or renew it. Raises _Lost if it was ours and is another's."""
        lease = await self._api.get("Lease", self._namespace, self._name)
        if lease is None:
            spec = self._spec({})
            await self._api.create("Lease", self._namespace, self._object(spec))
            return True
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity")
        if holder not in (None, "", self._identity):
            if self._held:
                raise _Lost(f"{holder} holds the Lease {self._namespace}/{self._name} now")
            if not self._silent(lease):
                return False
            _LOG.info("%s has not renewed the Lease for %.0f s", holder, self._times.duration)
        await self._write(lease, self._spec(spec))
        return True

    def _silent(self, lease: Object) -> bool:
        version, since = lease["metadata"]["resourceVersion"], self._clock()
        if self._seen[0] != version:
            self._seen = version, since
        return since - self._seen[1] >= self._times.duration

    async def _give_back(self) -> bool:
        """A renewal that was cancelled on its way may arrive between our look and our write: then both once more."""
        for last in (False, True):
            lease = await self._api.get("Lease", self._namespace, self._name)
            if lease is None or lease["spec"].get("holderIdentity") != self._identity:
                break
            try:
                await self._write(lease, {**lease["spec"], "holderIdentity": ""})
                break
            except ApiError as error:
                if last or error.status not in _CONFLICTS:
                    raise
        return True

    async def _write(self, lease: Object, spec: Object) -> None:
        version = {"op": "test", "path": "/metadata/resourceVersion", "value": lease["metadata"]["resourceVersion"]}
        change = {"op": "add", "path": "/spec", "value": spec}
        await self._api.json_patch("Lease", self._namespace, self._name, [version, change])

    def _spec(self, before: Object) -> Object:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        ours = before.get("holderIdentity") == self._identity
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": round(self._times.duration),
            "acquireTime": before["acquireTime"] if ours else now,
            "renewTime": now,
            "leaseTransitions": before.get("leaseTransitions", 0) + (not ours and bool(before)),
        }

    def _object(self, spec: Object) -> Object:
        metadata = {"name": self._name, "namespace": self._namespace}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
