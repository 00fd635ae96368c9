"""The owner of a dataset, which alone may write it (commit-protocol, "Ownership and deletion")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import orjson

from kubothek.errors import CommitError, ObjectNotFound, OwnedByAnother, PreconditionFailed
from kubothek.storage import Store
from kubothek.table.log.model import keys


@dataclass(frozen=True, slots=True)
class Claim:
    """The identity of a writer.

    ``owner``        ``<clusterId>/<namespace>/<name>`` of the Dataset resource
    ``incarnation``  its uid: a resource that was deleted and created again is the same owner, but a new incarnation
    ``adopts``       whether it may claim a dataset that another library made
    """

    owner: str
    incarnation: str
    adopts: bool = False


def owner_of(store: Store, uuid: str) -> str | None:
    """Return the owner of the dataset; None if it has none."""
    key = keys.owner(uuid)
    try:
        owner = orjson.loads(store.get(key))["owner"]
    except ObjectNotFound:
        return None
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise CommitError(f"{key} in {store.url} is not a claim: {error!r}; take the dataset over again") from error
    return str(owner)


def ensure_claim(store: Store, uuid: str, claim: Claim, *, before_first: Callable[[], None]) -> None:
    """Check that the dataset has this claim, and claim it if it has no owner. Raises OwnedByAnother.

    ``before_first`` is called before a dataset without an owner is claimed, and may raise to prevent that.
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
    """Raise OwnedByAnother if the dataset has an owner: for writers without a claim."""
    if (owner := owner_of(store, uuid)) is not None:
        raise OwnedByAnother(
            f"dataset {uuid!r} in {store.url} belongs to {owner} and is written through that resource only: apply a "
            "Commit manifest, or use another name"
        )


def take_claim(store: Store, uuid: str, claim: Claim) -> None:
    """Set the claim, even if the dataset has another owner: a user's decision."""
    store.put(keys.owner(uuid), _render(claim))


def _render(claim: Claim) -> bytes:
    return orjson.dumps({"owner": claim.owner})
