"""Two sides share datasets: one publishes, the other pulls, verifies and derives, and pushes that back.

One story in the order of the tests; each begins what the next ones wait for.
"""

from __future__ import annotations

import pytest

from tests.e2e import manifests
from tests.e2e.exchanging import PARTNER, ROWS, Exchange, exposed, push_source, request, sync
from tests.e2e.kubectl import PATIENCE, eventually
from tests.faultproxy import Hold

pytestmark = pytest.mark.cluster

FIRST, LATER = ("a", "b", "c"), ("d", "e")
"""The commits to ``planes``, a slice each: before the first pull, and after it."""
EVENS = "SELECT event_time, kind, x FROM copy WHERE kind = 'even'"


def test_pull_whose_pod_dies_resumes(exchange: Exchange) -> None:
    givers, takers, gateway = exchange.givers, exchange.takers, exchange.gateway
    givers.prepare(endpoint=gateway.proxy.endpoint)
    givers.kubectl.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": PARTNER}},
        exposed("planes", metadata=[push_source()]),
        exposed("rotten", metadata=[push_source()]),
        exposed("returned", kind="Copy"),
        exchange.commit("rotten", "rotten", 0),
        *(exchange.commit(name, "planes", number) for number, name in enumerate(FIRST)),
    )
    gateway.let_in(PARTNER, "pull")
    takers.prepare(endpoint=exchange.way.endpoint)
    givers.kubectl.wait_for("Ready", *(f"kcm/{name}" for name in FIRST))

    exported = "the Iceberg export of what a gateway serves"
    eventually(lambda: givers.kubectl.get("kds", "planes")["status"].get("iceberg", {}).get("lag") == 0, exported)

    held = exchange.way.inject(Hold(), method="PUT", path=".kubothek/copy/odf/data/")
    takers.kubectl.apply(
        *exchange.repositories(),
        manifests.dataset("copy", ledger={"kind": "Copy"}),
        manifests.derivative("evens", "copy", EVENS),
        sync("copy", "smart", "planes"),
    )
    assert held.arrived.wait(PATIENCE), takers.kubectl.situation("ksync/copy")
    eventually(lambda: len(exchange.slices(takers, "copy")) == len(FIRST) - 1, "the other slices to arrive")
    arrived = exchange.slices(takers, "copy")
    assert takers.head("copy") is None, "until all of it is there, nothing is"
    takers.kubectl.kill("copy-sync-1")
    takers.kubectl.wait_for_object("pod", "copy-sync-2")
    held.release()
    takers.kubectl.wait_for("Ready", "ksync/copy")
    sent = gateway.moved("GET", "planes")
    assert sent.keys() == exchange.slices(givers, "planes")
    assert {sent[name] for name in arrived} == {1}
    assert takers.column("copy") == givers.column("planes") == [*range(len(FIRST) * ROWS)]


def test_pull_of_tampered_object_is_refused_and_names_object(exchange: Exchange) -> None:
    givers, takers = exchange.givers, exchange.takers
    givers.kubectl.apply(*(exchange.commit(name, "planes", number) for number, name in enumerate(LATER, len(FIRST))))
    givers.kubectl.wait_for("Ready", "kcm/rotten")
    (key,) = givers.keys(".kubothek/rotten/odf/data/")
    whole = givers.read(key)
    givers.put(key, whole[:-1] + bytes([whole[-1] ^ 1]))
    takers.kubectl.apply(
        manifests.dataset("fresh", ledger={"kind": "Copy"}),
        sync("fresh", "simple", "rotten"),
        sync("evens", "smart", "returned", direction="Push"),  # the next test's
    )
    refused = takers.kubectl.wait_for_reason("ksync", "fresh", "Corrupt")
    assert refused["status"] == "False"
    assert key.rpartition("/")[2] in refused["message"]
    assert takers.head("fresh") is None
    givers.put(key, whole)
    request(takers, "ksync", "fresh")


def test_push_without_role_is_refused(exchange: Exchange) -> None:
    refused = exchange.takers.kubectl.wait_for_reason("ksync", "evens", "AccessDenied")
    assert "/returned/push" in refused["message"]
    (line,) = (line for line in exchange.gateway.audit() if line.get("verb") == "push")
    assert (line["status"], line["principal"]) == (403, f"system:serviceaccount:givers:{PARTNER}")
    exchange.gateway.let_in(PARTNER, "push")


def test_pull_from_gateway_that_dies_transfers_nothing_twice(exchange: Exchange) -> None:
    givers, takers, gateway = exchange.givers, exchange.takers, exchange.gateway
    givers.kubectl.wait_for("Ready", *(f"kcm/{name}" for name in LATER))
    late, *others = sorted(exchange.slices(givers, "planes") - exchange.slices(takers, "copy"))
    held = gateway.proxy.inject(Hold(), method="GET", path=late)
    request(takers, "ksync", "copy")
    assert held.arrived.wait(PATIENCE), takers.kubectl.situation("ksync/copy")
    eventually(lambda: all(gateway.moved("GET", "planes")[name] for name in others), "the other slices to be sent")
    gateway.kill()
    held.release()
    rows = (len(FIRST) + len(LATER)) * ROWS
    eventually(lambda: takers.kubectl.get("kds", "copy")["status"].get("rows") == rows, "all rows to arrive")
    sent = gateway.moved("GET", "planes")
    assert sent.keys() == exchange.slices(givers, "planes")
    assert len(others) == len(LATER) - 1
    assert {sent[name] for name in others} == {1}
    assert takers.column("copy") == [*range(rows)]


def test_derivative_is_pushed_back_and_can_be_verified_there(exchange: Exchange) -> None:
    givers, takers = exchange.givers, exchange.takers
    expected = [*range(0, (len(FIRST) + len(LATER)) * ROWS, 2)]
    eventually(lambda: takers.kubectl.get("kds", "evens")["status"].get("rows") == len(expected), "all that is even")
    request(takers, "ksync", "evens")
    takers.kubectl.apply(manifests.verification("evens", "evens", recursive=True))
    takers.kubectl.wait_for("Ready", "ksync/evens", "ksync/fresh")
    assert takers.kubectl.get("ksync", "evens")["status"]["relation"] == "Ahead"
    assert exchange.gateway.moved("PUT", "returned") == dict.fromkeys(exchange.slices(takers, "evens"), 1)

    request(givers, "kos", "lake")
    givers.kubectl.apply(manifests.verification("returned", "returned", recursive=True))
    givers.kubectl.wait_for("Complete", "kver/returned")
    takers.kubectl.wait_for("Complete", "kver/evens")
    for side, name in ((takers, "evens"), (givers, "returned")):
        found = side.kubectl.get("kver", name)["status"]
        assert (found["verdict"], found["datasets"]) == ("Sound", 2), "with what it was derived from"
        assert side.column(name) == expected
    assert takers.column("fresh") == [*range(ROWS)], "what was tampered with, once it was whole again"
