"""Whatever breaks, and however often: every Commit is applied once, every condition is right, and nothing is left over.

`make chaos` goes on for an hour (times KUBOTHEK_SOAK), with all faults in an order that ``KUBOTHEK_SEED`` decides, and
prints how long each took to be over.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from tests.e2e.beside import when_others_are_done
from tests.e2e.chaos import Stage, table_of
from tests.e2e.faults import OWN, SHARED

SOAKED = 3600.0 * float(os.environ.get("KUBOTHEK_SOAK") or 0)
"""Seconds for which faults follow each other at random, once each has been there."""
SHORT = (
    ("operator killed", "driver killed"),
    ("bad weather at S3",),
    ("API server restarted", "etcd restarted"),
)
"""What strikes in `make test`, in the two minutes that it has: the most severe, and one upon the other."""

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(3600 + 2 * SOAKED)]


def struck(faults: dict[str, Callable[[Stage], None]]) -> dict[str, Callable[[Stage], None]]:
    """Of these faults, those for which there is time."""
    if SOAKED:
        return faults
    chosen = {short: [faults[name] for name in short if name in faults] for short in SHORT}
    return {", ".join(short): partial(in_turn, strikes) for short, strikes in chosen.items() if strikes}


def in_turn(strikes: Sequence[Callable[[Stage], None]], stage: Stage) -> None:
    """One fault upon the other, without calm between them."""
    for strike in strikes:
        strike(stage)


def test_commits_under_faults_of_own_components_lose_no_rows(chaos: Stage) -> None:
    chaos.prepare()
    for name, strike in struck(OWN).items():
        chaos.round(name, strike)
        chaos.compact("plain")  # under the next one


@when_others_are_done
def test_commits_under_faults_of_cluster_lose_no_rows(chaos: Stage) -> None:
    for name, strike in struck(SHARED).items():
        chaos.round(name, strike)
    faults, until = OWN | SHARED, time.monotonic() + SOAKED
    while time.monotonic() < until:
        name = chaos.random.choice([*faults])
        if chaos.random.random() < 0.2:
            chaos.compact("parts")
        chaos.round(name, faults[name], commits=chaos.random.randint(1, 3))
    print(table_of(chaos.blows))
