"""What a soak (``KUBOTHEK_SOAK=1``) tries of everything that can happen, and CI of it."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

SOAK = bool(os.environ.get("KUBOTHEK_SOAK"))


def sampled(cases: Iterable[T], one_in: int) -> list[T]:
    """All of them in a soak; else one in so many, in their order: always the same, of no pattern, so that each value of
    each coordinate is among them.
    """
    everything = list(cases)
    if SOAK:
        return everything
    draw = random.Random(one_in)
    chosen = draw.sample(range(len(everything)), -(-len(everything) // one_in))
    return [everything[index] for index in sorted(chosen)]
