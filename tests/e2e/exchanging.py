"""Two sides that know nothing of each other but an address and a token: each a namespace, an operator and a store.

The givers publish by a gateway; the takers pull from it, and push to it.
"""

from __future__ import annotations

from typing import Any

from tests.e2e import manifests
from tests.e2e.gateways import Gateway
from tests.e2e.kubectl import Manifest
from tests.e2e.workspace import Workspace
from tests.faultproxy import FaultProxy

GIVERS, TAKERS = "givers", "takers"
PARTNER = "partner"
"""The service account of the givers for whom the takers have a token."""
ROWS = 10
"""Of each commit, half of them even."""


class Exchange:
    """Both sides.

    ``way``  from the takers to their store; that of the gateway is its own
    """

    def __init__(self, givers: Workspace, takers: Workspace, gateway: Gateway, way: FaultProxy) -> None:
        self.givers, self.takers = givers, takers
        self.gateway = gateway
        self.way = way

    def commit(self, name: str, dataset: str, number: int) -> Manifest:
        """One of the givers' commits, of the rows from ``number`` times :data:`ROWS` on: a slice."""
        rows = range(number * ROWS, (number + 1) * ROWS)
        lines = (f"2026-11-22 10:00:{x:02},{'odd' if x % 2 else 'even'},{x}\n" for x in rows)
        self.givers.put(f"sources/{name}.csv", f"event_time,kind,x\n{''.join(lines)}".encode())
        return manifests.commit(name, dataset, f"sources/{name}.csv")

    def repositories(self) -> list[Manifest]:
        """What the takers know of the givers: ``smart`` and ``simple``, by the two protocols."""
        host = self.gateway.address
        token = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "partner-token"}}
        spec = {"credentialsSecretRef": {"name": "partner-token"}, "caBundle": self.gateway.authority}
        return [
            {**token, "stringData": {"token": self.gateway.token(PARTNER)}},
            manifests.resource("Repository", "smart", {"url": f"odf+https://{host}", "push": True, **spec}),
            manifests.resource("Repository", "simple", {"url": f"https://{host}", **spec}),
        ]

    @staticmethod
    def slices(place: Workspace, dataset: str) -> set[str]:
        """The hashes of a ledger's slices that are in a bucket."""
        return {key.rpartition("/")[2] for key in place.keys(f".kubothek/{dataset}/odf/data/")}


def exposed(name: str, **ledger: Any) -> Manifest:
    """A ledger of the givers that the gateway serves."""
    return manifests.dataset(name, ledger=ledger, sharing={"exposed": True})


def push_source() -> Manifest:
    """Takes the rows of :meth:`Exchange.commit`."""
    return manifests.push_source("event_time TIMESTAMP", "kind STRING", "x BIGINT")


def sync(dataset: str, repository: str, remote: str, direction: str = "Pull") -> Manifest:
    """One that has the name of its Dataset."""
    sides = {"repositoryRef": {"name": repository}, "datasetRef": {"name": dataset}}
    return manifests.resource("Sync", dataset, {**sides, "direction": direction, "remote": remote})


def request(place: Workspace, kind: str, name: str) -> None:
    """Once more, as a person asks for it."""
    place.kubectl("annotate", kind, name, "kubothek.io/requestedAt=again", "--overwrite")
