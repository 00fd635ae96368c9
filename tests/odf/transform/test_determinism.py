"""The same records and the same state, byte for byte, whatever the machine."""

from __future__ import annotations

import random

import pytest

from kubothek.odf import logical_hash
from tests.odf.transform.streams import flights, random_cuts, weather
from tests.odf.transform.test_kinds import KINDS
from tests.odf.transform.world import run, sql

pytestmark = pytest.mark.slow

KIND = ["sums", "values", "hopping", "newest", "left join", "temporal join"]


@pytest.mark.parametrize("kind", KIND)
def test_transform_output_is_independent_of_thread_count(kind: str) -> None:
    chance = random.Random(kind)
    both = KINDS[kind]
    query = both if isinstance(both, str) else both[0]
    streams = [flights(chance, 300)] + ([weather(chance, 60)] if "weather" in query else [])
    cuts = random_cuts(chance, streams, 2)
    found = []
    for threads in (1, 2, 8):
        checkpoints: list[bytes] = []
        outputs = run(sql(query), streams, cuts, threads=threads, checkpoints=checkpoints)
        found.append(([logical_hash(output.schema, output.to_batches()) for output in outputs], checkpoints))
    assert found[0] == found[1] == found[2]
