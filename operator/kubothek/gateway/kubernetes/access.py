"""Access control by the cluster: TokenReview authenticates, SubjectAccessReview authorises.

Their specifications are authentication.k8s.io/v1 and authorization.k8s.io/v1. Answers are cached for a few seconds, so
a revoked right, or the token of a deleted pod, is accepted for that time.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from kubothek.api.meta import GROUP
from kubothek.cluster.api import Api, ApiError, ApiUnavailable, Object
from kubothek.errors import StoreUnavailable
from kubothek.gateway.access import Principal, Verb

GOOD: Final = 10.0
"""Seconds for which a positive answer is cached."""
BAD: Final = 2.0
"""Seconds for which a negative answer is cached; short, so that a new right takes effect soon."""
_MOST: Final = 20_000
_AT_A_TIME: Final = 16
"""Concurrent reviews: guesses of tokens must not overload the API server."""
_PATIENCE: Final = 10.0
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
"""RFC 6750, 2.1."""
_EVERY: Final = ""
"""An empty name in a review means all Datasets."""
_VERBS: Final[Mapping[Verb, str]] = {
    Verb.PULL: "get",
    Verb.QUERY: "get",
    Verb.PUSH: "push",
    Verb.INGEST: "ingest",
    Verb.FORCE: "force",
}


@dataclass(frozen=True, slots=True)
class User(Principal):
    """A user of the cluster, from a TokenReview."""

    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class ClusterAccess:
    """Access to the Datasets of ``namespace`` by the cluster's roles.

    A pull or a query needs the verb ``get`` on a Dataset; ``push``, ``ingest`` and ``force`` are separate verbs. Tokens
    are valid only with this ``audience``. So a token stolen from the gateway is useless at the API server, and a pod's
    default token is useless here.
    """

    def __init__(self, api: Api, namespace: str, audience: str) -> None:
        self._api = api
        self._namespace = namespace
        self._audience = audience
        self._users: Remembered[bytes, User | None] = Remembered(_MOST, _seconds)
        self._rights: Remembered[tuple[User, str, str], bool] = Remembered(_MOST, _seconds)
        self._slots = asyncio.Semaphore(_AT_A_TIME)

    async def principal(self, token: str) -> Principal | None:
        """Return the user of a token; the cache holds only the token's hash. Raises StoreUnavailable."""
        if not _TOKEN.fullmatch(token):
            return None
        return await self._users.get(hashlib.sha256(token.encode()).digest(), partial(self._authenticate, token))

    async def may(self, principal: Principal, verb: Verb, dataset: str) -> bool:
        """Return whether a role allows it, for all Datasets or for this one. Raises StoreUnavailable."""
        if not isinstance(principal, User):
            return False
        for name in (_EVERY, dataset):
            key = principal, _VERBS[verb], name
            if await self._rights.get(key, partial(self._authorize, *key)):
                return True
        return False

    async def _authenticate(self, token: str) -> User | None:
        status = await self._review("TokenReview", {"token": token, "audiences": [self._audience]})
        # An authenticator without support for audiences returns none, and then the token's audience is unknown.
        if not status.get("authenticated") or self._audience not in (status.get("audiences") or ()):
            return None
        user = status.get("user") or {}
        if not user.get("username"):
            return None
        extra = sorted((key, tuple(values)) for key, values in (user.get("extra") or {}).items())
        return User(user["username"], user.get("uid") or "", tuple(user.get("groups") or ()), tuple(extra))

    async def _authorize(self, user: User, verb: str, dataset: str) -> bool:
        spec = {
            "user": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {key: list(values) for key, values in user.extra},
            "resourceAttributes": {
                "group": GROUP,
                "resource": "datasets",
                "namespace": self._namespace,
                "verb": verb,
                "name": dataset,
            },
        }
        status = await self._review("SubjectAccessReview", spec)
        return bool(status.get("allowed")) and not status.get("denied")

    async def _review(self, kind: str, spec: Object) -> Object:
        group = "authentication.k8s.io" if kind == "TokenReview" else "authorization.k8s.io"
        review: dict[str, Any] = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
        try:
            async with asyncio.timeout(_PATIENCE), self._slots:
                answer = await self._api.create(kind, None, review)
        except (ApiError, ApiUnavailable, TimeoutError) as error:
            raise StoreUnavailable(
                f"the cluster does not say who may do what: {str(error) or 'it takes too long'}"
            ) from error
        return dict(answer.get("status") or {})


def _seconds(answer: object) -> float:
    return GOOD if answer else BAD


# Cache of answers for a few seconds; concurrent requests for one answer share one call.


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """Cache of the last ``most`` answers, for one event loop.

    ``seconds``  returns the lifetime of an answer
    """

    def __init__(self, most: int, seconds: Callable[[V], float], clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._answers: OrderedDict[K, tuple[V, float]] = OrderedDict()
        self._asked: dict[K, asyncio.Task[V]] = {}

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """Return the answer. An exception of ``ask`` is raised in all waiting callers, and is not cached."""
        known = self._answers.get(key)
        if known is not None and self._clock() < known[1]:
            self._answers.move_to_end(key)
            return known[0]
        if (task := self._asked.get(key)) is None:
            task = self._asked[key] = asyncio.create_task(self._ask(key, ask))
            task.add_done_callback(_retrieved)
        return await asyncio.shield(task)  # a cancelled caller must not cancel the others' answer

    async def _ask(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        try:
            asked = self._clock()
            answer = await ask()
            self._answers.pop(key, None)
            self._answers[key] = answer, asked + self._seconds(answer)
            if len(self._answers) > self._most:
                self._answers.popitem(last=False)
            return answer
        finally:
            del self._asked[key]


def _retrieved(task: asyncio.Task[V]) -> None:
    if not task.cancelled():
        task.exception()
