"""How big pods are. In client mode nobody but us computes the driver's limit."""

from __future__ import annotations

from typing import Any

from kubothek.resources.engine import EngineSpec
from kubothek.resources.values import parse_quantity

MIB = 1024 * 1024

DRIVER_PORT = 7078
BLOCK_MANAGER_PORT = 7079

PYTHON = 512 * MIB
"""The driver's Python process: pyarrow, boto3, one source below ``sparkFrom`` and its Parquet files."""
_JVM_OVERHEAD_LEAST = 384 * MIB
_JVM_OVERHEAD_FACTOR = 0.1
EXECUTOR_OVERHEAD_FACTOR = 0.4
"""What an executor needs beyond its heap: most of it for Python, which Spark in client mode does not count."""


def driver(engine: EngineSpec, *, heavy: bool, in_memory: int = 0) -> dict[str, Any]:
    """Requests and limits of the driver's container; ``heavy`` if the job may start a JVM, or DuckDB in its place,
    which may keep ``in_memory`` bytes of files in memory.

    Memory is requested as it is limited, so that a job is not killed for what others use. CPU has no limit, as a
    throttled driver only holds its executors longer, and half of it is requested, as a driver works in bursts.
    """
    if not heavy:
        memory = mebibytes(PYTHON)
        return {"requests": {"cpu": "100m", "memory": memory}, "limits": {"memory": memory}}
    heap = parse_quantity(engine.driver.memory)
    memory = mebibytes(heap + max(_JVM_OVERHEAD_LEAST, int(heap * _JVM_OVERHEAD_FACTOR)) + PYTHON + in_memory)
    return {"requests": {"cpu": f"{500 * engine.driver.cores}m", "memory": memory}, "limits": {"memory": memory}}


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
