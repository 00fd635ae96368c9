"""Optional sizes of drivers and executors: those of one run, and the operator's limits."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from kubothek.api.meta import Strict
from kubothek.api.rules import Rule
from kubothek.api.values import Quantity, parse_quantity

LEAST_MEMORY = "512Mi"
"""Minimum heap with which Spark starts."""


def _enough(memory: int | str | None) -> bool:
    return memory is None or parse_quantity(memory) >= parse_quantity(LEAST_MEMORY)


def enough_memory(whose: str, path: str) -> Rule:
    """Return the rule that ``memory`` of a part of a spec, if set, suffices for Spark to start."""
    return Rule(
        cel=f"!has(self.memory) || quantity(string(self.memory)).compareTo(quantity('{LEAST_MEMORY}')) >= 0",
        message=f"{path}.memory must be at least {LEAST_MEMORY}, or Spark does not start {whose}",
        holds=lambda self: _enough(self.memory),
    )


class RequestedDriverSize(Strict):
    """The size of a driver; each field is optional."""

    rules: ClassVar[tuple[Rule, ...]] = (enough_memory("its driver", "driver"),)

    cores: Annotated[int | None, Field(ge=1, le=64)] = None
    """CPU cores."""
    memory: Quantity | None = None
    """Memory of the driver's heap."""


class RequestedExecutorSize(Strict):
    """The number and size of executors; each field is optional."""

    rules: ClassVar[tuple[Rule, ...]] = (enough_memory("executors", "executor"),)

    instances: Annotated[int | None, Field(ge=1, le=1000)] = None
    """Number of executors; with dynamic allocation the maximum."""
    cores: Annotated[int | None, Field(ge=1, le=64)] = None
    """CPU cores of each."""
    memory: Quantity | None = None
    """Memory of each one's heap."""


class Sizes(Strict):
    """Sizes of drivers and executors; each field is optional."""

    driver: RequestedDriverSize = RequestedDriverSize()
    """The driver."""
    executor: RequestedExecutorSize = RequestedExecutorSize()
    """Executors."""
