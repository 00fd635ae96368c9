"""Who may write a dataset (commit-protocol, "Ownership and deletion")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import orjson

from kubothek.errors import CommitError, ObjectNotFound, OwnedByAnother, PreconditionFailed
from kubothek.storage import Store
from kubothek.table.log.model import keys


@dataclass(frozen=True, slots=True)
class Claim:
    """Who asks to write.

    ``owner``        ``<clusterId>/<namespace>/<name>`` of the Dataset resource
    ``incarnation``  its uid: a resource that was deleted and made again is the same owner, but a new incarnation
    ``adopts``       whether it may claim a dataset that another library made
    """

    owner: str
    incarnation: str
    adopts: bool = False


def owner_of(store: Store, uuid: str) -> str | None:
    """The owner of the dataset; None if nobody has claimed it."""
    key = keys.owner(uuid)
    try:
        owner = orjson.loads(store.get(key))["owner"]
    except ObjectNotFound:
        return None
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise CommitError(f"{key} in {store.url} is not a claim: {error!r}; take the dataset over again") from error
    return str(owner)


def ensure_claim(store: Store, uuid: str, claim: Claim, *, before_first: Callable[[], None]) -> None:
    """Make sure that the claim stands, claiming an unowned dataset. Raises OwnedByAnother.

    ``before_first`` is called before a dataset that nobody owns is claimed, and may raise to leave it so.
    """
    owner = owner_of(store, uuid)
    if owner is None:
        before_first()
        try:
            store.put_if_absent(keys.owner(uuid), _render(claim))
        except PreconditionFailed:
            owner = owner_of(store, uuid)
        else:
            return
    if owner != claim.owner:
        raise OwnedByAnother(
            f"dataset {uuid!r} in {store.url} belongs to {owner}; {claim.owner} may only read it. "
            "Use another uuid, or take it over: kubothek adopt --take"
        )


def require_unowned(store: Store, uuid: str) -> None:
    """For those who claim nothing, and leave alone what others claimed. Raises OwnedByAnother."""
    if (owner := owner_of(store, uuid)) is not None:
        raise OwnedByAnother(
            f"dataset {uuid!r} in {store.url} belongs to {owner} and is written through that resource only: apply a "
            "Commit manifest, or use another name"
        )


def take_claim(store: Store, uuid: str, claim: Claim) -> None:
    """Make the claim stand whoever owned the dataset: a person's decision."""
    store.put(keys.owner(uuid), _render(claim))


def _render(claim: Claim) -> bytes:
    return orjson.dumps({"owner": claim.owner})
