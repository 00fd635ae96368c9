"""Leader election among several operators by a Lease (coordination.k8s.io/v1) that the leader renews.

It saves API calls and prevents two operators from undoing each other's writes. Data does not depend on it: a leader
that lost the Lease without noticing may start jobs a little longer, and their commits still happen exactly once
(docs/commit-protocol.md).

A loss of the Lease is not a failure: the process got too little CPU time, or its API server did not answer. It cancels
its work, as every step may be interrupted, and becomes a candidate again. It keeps its caches, so that it continues at
once if no other operator took the Lease.
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
"""Statuses of a lost race: another operator created the Lease first, or changed the version that our patch tests."""


class _Lost(Exception):
    """The Lease is lost: another operator may hold it, so the work must stop at once."""


@dataclass(frozen=True, slots=True)
class Times:
    """Times in seconds. Another operator replaces one that dies after at most ``duration`` + ``poll``."""

    duration: float = 12.0
    """Time without a renewal after which other operators take the Lease."""
    deadline: float = 8.0
    """Time without a renewal after which the holder stops its work: shorter than ``duration``."""
    renew: float = 3.0
    poll: float = 2.0


class Lease:
    """One Lease as one operator (``identity``) sees it.

    Wall clocks are not trusted: the time without a renewal counts from our first observation of the last one, on a
    monotonic clock.
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
        """Whether a request for the Lease has ever succeeded."""
        self._api = api
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._times = times or Times()
        self._clock = clock
        self._seen: tuple[object, float] = (None, clock())

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run ``work`` while the Lease is ours: start it at each acquisition, cancel it at each loss.

        Returns when the work ends, and raises what it raises. If the Lease is still ours, it is released after the end
        of the work. Raises ApiError if the first request is denied.
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
        """Run the work and renew the Lease. Raises _Lost once the work has stopped."""
        working, keeping = asyncio.ensure_future(work()), asyncio.ensure_future(self._keep())
        try:
            await asyncio.wait((working, keeping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (working, keeping):
                task.cancel()
            await asyncio.gather(working, keeping, return_exceptions=True)
            if keeping.cancelled():  # it did not fail, so the Lease is still ours
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
        """Return whether the step succeeded; False means that a retry may help.

        After the first success a denial is retried too: an API server that has just started may not know our rights.
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
        """Acquire or renew the Lease. Raises _Lost if another operator took it from us."""
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
        """Release the Lease. Retry once on a conflict: a cancelled renewal may arrive between read and write."""
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
