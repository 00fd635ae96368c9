"""Who may do what, by the cluster: TokenReview says who it is, SubjectAccessReview what they may.

Source of the rules: authentication.k8s.io/v1 and authorization.k8s.io/v1. Answers are good for a few seconds, so a
right that was taken away, or a token whose pod is gone, is refused that much later.
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
"""Seconds for which a yes is good."""
BAD: Final = 2.0
"""And a no: whoever has just been let in does not wait."""
_MOST: Final = 20_000
_AT_A_TIME: Final = 16
"""Reviews: whoever tries tokens does not keep the API server busy."""
_PATIENCE: Final = 10.0
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
"""RFC 6750, 2.1."""
_EVERY: Final = ""
"""No name in a review means all of them."""
_VERBS: Final[Mapping[Verb, str]] = {
    Verb.PULL: "get",
    Verb.QUERY: "get",
    Verb.PUSH: "push",
    Verb.INGEST: "ingest",
    Verb.FORCE: "force",
}


@dataclass(frozen=True, slots=True)
class User(Principal):
    """A user of the cluster, as a TokenReview tells."""

    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class ClusterAccess:
    """What roles of the cluster say of the Datasets of ``namespace``.

    To pull and to query is to ``get`` a Dataset; ``push``, ``ingest`` and ``force`` are verbs of their own. A token is
    good only if it was made for ``audience``: one that was stolen from here is of no use at the API server, and a pod's
    usual token is of no use here.
    """

    def __init__(self, api: Api, namespace: str, audience: str) -> None:
        self._api = api
        self._namespace = namespace
        self._audience = audience
        self._users: Remembered[bytes, User | None] = Remembered(_MOST, _seconds)
        self._rights: Remembered[tuple[User, str, str], bool] = Remembered(_MOST, _seconds)
        self._places = asyncio.Semaphore(_AT_A_TIME)

    async def principal(self, token: str) -> Principal | None:
        """Whose token it is; only its hash is kept. Raises StoreUnavailable."""
        if not _TOKEN.fullmatch(token):
            return None
        return await self._users.get(hashlib.sha256(token.encode()).digest(), partial(self._authenticate, token))

    async def may(self, principal: Principal, verb: Verb, dataset: str) -> bool:
        """Whether a role allows it, for all Datasets or for this one. Raises StoreUnavailable."""
        if not isinstance(principal, User):
            return False
        for name in (_EVERY, dataset):
            key = principal, _VERBS[verb], name
            if await self._rights.get(key, partial(self._authorize, *key)):
                return True
        return False

    async def _authenticate(self, token: str) -> User | None:
        status = await self._review("TokenReview", {"token": token, "audiences": [self._audience]})
        # An authenticator that knows nothing of audiences names none: then it is not known whom the token was made for.
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
            async with asyncio.timeout(_PATIENCE), self._places:
                answer = await self._api.create(kind, None, review)
        except (ApiError, ApiUnavailable, TimeoutError) as error:
            raise StoreUnavailable(
                f"the cluster does not say who may do what: {str(error) or 'it takes too long'}"
            ) from error
        return dict(answer.get("status") or {})


def _seconds(answer: object) -> float:
    return GOOD if answer else BAD


# Answers of a server that are good for a few seconds: asked for once, however many wait for them.


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """The last ``most`` answers. Belongs to one event loop.

    ``seconds``  for which an answer is good
    """

    def __init__(self, most: int, seconds: Callable[[V], float], clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._answers: OrderedDict[K, tuple[V, float]] = OrderedDict()
        self._asked: dict[K, asyncio.Task[V]] = {}

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """The answer; what ``ask`` raises is raised to all who wait, and not remembered."""
        known = self._answers.get(key)
        if known is not None and self._clock() < known[1]:
            self._answers.move_to_end(key)
            return known[0]
        if (task := self._asked.get(key)) is None:
            task = self._asked[key] = asyncio.create_task(self._ask(key, ask))
            task.add_done_callback(_retrieved)
        return await asyncio.shield(task)  # one who goes away does not take the answer along

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
