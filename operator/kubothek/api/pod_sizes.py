"""How big the pods of a job are, as its Engine says. In client mode nobody but us computes the driver's limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kubothek.api.engine import EngineSpec
from kubothek.api.values import parse_quantity

MIB = 1024 * 1024

DRIVER_PORT = 7078
BLOCK_MANAGER_PORT = 7079

PYTHON = 512 * MIB
"""The driver's Python process: pyarrow, boto3, one source below ``sparkFrom`` and its Parquet files."""
_JVM_OVERHEAD_LEAST = 384 * MIB
_JVM_OVERHEAD_FACTOR = 0.1
EXECUTOR_OVERHEAD_FACTOR = 0.4
"""What an executor needs beyond its heap: most of it for Python, which Spark in client mode does not count."""


@dataclass(frozen=True, slots=True)
class Container:
    """What one container asks for."""

    cpu: int
    """Thousandths of a core. There is no limit of it."""
    memory: int
    """Bytes, of which it gets no more."""


_LIGHT = Container(100, PYTHON)


def driver(engine: EngineSpec, *, heavy: bool) -> dict[str, Any]:
    """Requests and limits of the driver's container; ``heavy`` if the job may start a JVM, or DuckDB in its place.

    Memory is requested as it is limited, so that a job is not killed for what others use. CPU has no limit, as a
    throttled driver only holds its executors longer, and half of it is requested, as a driver works in bursts.
    """
    size = heavy_driver(engine) if heavy else _LIGHT
    memory = mebibytes(size.memory)
    return {"requests": {"cpu": f"{size.cpu}m", "memory": memory}, "limits": {"memory": memory}}


def heavy_driver(engine: EngineSpec) -> Container:
    """The driver of a job that reads data."""
    heap = parse_quantity(engine.driver.memory)
    overhead = max(_JVM_OVERHEAD_LEAST, int(heap * _JVM_OVERHEAD_FACTOR))
    return Container(500 * engine.driver.cores, heap + overhead + PYTHON + in_memory(engine))


def executor(engine: EngineSpec) -> Container:
    """One executor, as Spark makes it."""
    heap = parse_quantity(engine.executor.memory)
    return Container(1000 * engine.executor.cores, heap + executor_overhead(engine) + in_memory(engine))


def executors(engine: EngineSpec) -> tuple[int, int, int]:
    """How many there are at least, at first and at most. What layers and limits left in no order is put in one: ``max``
    decides.
    """
    dynamic = engine.dynamic_allocation
    if dynamic is None or not dynamic.enabled:
        return (engine.executor.instances,) * 3
    most = dynamic.max or max(engine.executor.instances, dynamic.min)
    least = min(dynamic.min, most)
    return least, least if dynamic.initial is None else min(max(dynamic.initial, least), most), most


def in_memory(engine: EngineSpec) -> int:
    """Bytes of memory that a pod's scratch may take."""
    scratch = engine.scratch
    return parse_quantity(scratch.size or 0) if scratch is not None and scratch.medium == "Memory" else 0


def executor_overhead(engine: EngineSpec) -> int:
    """Bytes of memory of an executor beyond its heap."""
    heap = parse_quantity(engine.executor.memory)
    return max(_JVM_OVERHEAD_LEAST, int(heap * EXECUTOR_OVERHEAD_FACTOR))


def jvm(quantity: int | str) -> str:
    """A quantity in the JVM's notation: whole mebibytes."""
    return f"{parse_quantity(quantity) // MIB}m"


def mebibytes(size: int) -> str:
    """A quantity in Kubernetes' notation, rounded up."""
    return f"{-(-size // MIB)}Mi"
