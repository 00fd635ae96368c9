"""The sizes of the pods of a job, from its Engine. In client mode Spark does not compute the driver's limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kubothek.api.engine import EngineSpec
from kubothek.api.values import parse_quantity

MIB = 1024 * 1024

DRIVER_PORT = 7078
BLOCK_MANAGER_PORT = 7079

PYTHON = 512 * MIB
"""Bytes for the driver's Python process: pyarrow, boto3, one source below ``sparkFrom`` and its Parquet files."""
_JVM_OVERHEAD_LEAST = 384 * MIB
_JVM_OVERHEAD_FACTOR = 0.1
EXECUTOR_OVERHEAD_FACTOR = 0.4
"""Overhead of an executor as a part of its heap: mostly for Python, which Spark in client mode does not count."""


@dataclass(frozen=True, slots=True)
class Container:
    """The resources of one container."""

    cpu: int
    """Request in thousandths of a core, without a limit."""
    memory: int
    """Request and limit in bytes."""


_LIGHT = Container(100, PYTHON)


def driver(engine: EngineSpec, *, heavy: bool) -> dict[str, Any]:
    """Return requests and limits of the driver's container; ``heavy`` if the job may start a JVM or DuckDB.

    The memory request equals the limit, so that a job is not killed when other pods need memory. CPU has no limit, as a
    throttled driver would only hold its executors longer. The request is half of the cores, as a driver works in
    bursts.
    """
    size = heavy_driver(engine) if heavy else _LIGHT
    memory = mebibytes(size.memory)
    return {"requests": {"cpu": f"{size.cpu}m", "memory": memory}, "limits": {"memory": memory}}


def heavy_driver(engine: EngineSpec) -> Container:
    """Return the size of the driver of a job that reads data."""
    heap = parse_quantity(engine.driver.memory)
    overhead = max(_JVM_OVERHEAD_LEAST, int(heap * _JVM_OVERHEAD_FACTOR))
    return Container(500 * engine.driver.cores, heap + overhead + PYTHON + in_memory(engine))


def executor(engine: EngineSpec) -> Container:
    """Return the size of one executor, as Spark computes it."""
    heap = parse_quantity(engine.executor.memory)
    return Container(1000 * engine.executor.cores, heap + executor_overhead(engine) + in_memory(engine))


def executors(engine: EngineSpec) -> tuple[int, int, int]:
    """Return the minimum, initial and maximum number of executors.

    Layers and limits may leave these inconsistent; then ``max`` has precedence.
    """
    dynamic = engine.dynamic_allocation
    if dynamic is None or not dynamic.enabled:
        return (engine.executor.instances,) * 3
    most = dynamic.max or max(engine.executor.instances, dynamic.min)
    least = min(dynamic.min, most)
    return least, least if dynamic.initial is None else min(max(dynamic.initial, least), most), most


def in_memory(engine: EngineSpec) -> int:
    """Return the bytes of memory for a pod's scratch space."""
    scratch = engine.scratch
    return parse_quantity(scratch.size or 0) if scratch is not None and scratch.medium == "Memory" else 0


def executor_overhead(engine: EngineSpec) -> int:
    """Return the bytes of memory of an executor beyond its heap."""
    heap = parse_quantity(engine.executor.memory)
    return max(_JVM_OVERHEAD_LEAST, int(heap * EXECUTOR_OVERHEAD_FACTOR))


def jvm(quantity: int | str) -> str:
    """Render a quantity in the JVM's notation: whole mebibytes."""
    return f"{parse_quantity(quantity) // MIB}m"


def mebibytes(size: int) -> str:
    """Render a number of bytes in Kubernetes' notation: mebibytes, rounded up."""
    return f"{-(-size // MIB)}Mi"
