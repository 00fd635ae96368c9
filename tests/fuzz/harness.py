"""Fuzzing of functions that take foreign bytes: each variant ends in a result or a named error, in bounded memory.

``fuzz(target, seeds)`` runs variants of the seeds in child processes and counts how they end; ``Report.check`` fails
unless all ended well. A variant depends on nothing but the seeds, ``seed`` and its index: ``fuzz(..., start=index,
variants=1)`` repeats one. ``target`` and ``mutate`` are functions of a module, which the children import.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from random import Random

from kubothek.api.kinds import InvalidResource
from kubothek.errors import LakeError
from kubothek.local.errors import LocalError
from tests.sampling import SOAK

Mutation = Callable[[Random, bytes], bytes]
NAMED: tuple[type[BaseException], ...] = (LakeError, InvalidResource, LocalError)

_SOAK_VARIANTS = 100_000
_FATAL_LIMIT = 20
"""Crashes and timeouts after which a run gives up: each costs a process, or the whole deadline."""
_INTERESTING = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, (1 << 63) - 1)


@dataclass(frozen=True)
class Failure:
    """A variant that ended in neither a result nor a named error; ``kind`` is unnamed, crash or timeout."""

    index: int
    kind: str
    text: str


@dataclass
class Report:
    """How the variants ended. ``peak`` is the most resident memory in bytes that one child took beyond its start."""

    target: str
    seed: int
    variants: int = 0
    results: int = 0
    named: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    peak: int = 0

    def check(self) -> Report:
        """Return the report. Raises AssertionError with the first failure and how to repeat it."""
        if self.failures:
            first = self.failures[0]
            again = f"fuzz({self.target}, seeds, seed={self.seed}, start={first.index}, variants=1)"
            raise AssertionError(f"{self}\nvariant {first.index}: {first.kind}; repeat: {again}\n{first.text}")
        return self

    def __str__(self) -> str:
        kinds = Counter(failure.kind for failure in self.failures)
        figures = {"variants": self.variants, "results": self.results, "named errors": self.named.total()}
        figures |= {kind: kinds[kind] for kind in ("unnamed", "crash", "timeout")}
        text = ", ".join(f"{name} {figure}" for name, figure in figures.items())
        return f"{self.target}: {text}, peak memory {self.peak >> 20} MiB; {dict(self.named)}"


def fuzz(
    target: Callable[[bytes], object],
    seeds: Sequence[bytes],
    *,
    variants: int = 200,
    memory: int = 1 << 30,
    deadline: float = 30.0,
    named: tuple[type[BaseException], ...] = NAMED,
    mutate: Mutation | None = None,
    seed: int = 0,
    start: int = 0,
    soak: int = _SOAK_VARIANTS,
) -> Report:
    """Run the target on variants of the seeds, and return how they ended.

    ``variants``  their number; a soak runs ``soak`` unless a start is given
    ``memory``    bytes of address space that a child may take beyond what it has after one run of the first seed
    ``deadline``  seconds for each variant, after which its child is killed
    ``mutate``    makes every other variant, where bytes alone rarely stay well-formed
    """
    stop = start + (soak if SOAK and not start else variants)
    run = partial(_run, target, tuple(seeds), memory, named, mutate, seed, stop)
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    report = Report(f"{target.__module__}.{target.__qualname__}", seed)
    server = context.Process(target=_serve, args=(theirs, run, report, start, stop, deadline), daemon=True)
    server.start()
    theirs.close()
    try:
        return ours.recv()  # type: ignore[no-any-return]
    finally:
        server.kill()
        server.join()


def variant(seeds: Sequence[bytes], seed: int, index: int, mutate: Mutation | None = None) -> bytes:
    """The bytes of a variant."""
    random = Random(f"{seed}/{index}")
    data = seeds[index % len(seeds)]
    if mutate and (index // len(seeds)) % 2:
        return mutate(random, data)
    for _ in range(random.choice((1, 1, 1, 2, 4, 16))):
        data = _mutated(random, data, seeds)
    return data


def _mutated(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    at = random.randrange(len(data) + 1)
    size = random.choice((1, 1, 2, 4, 16, 256))
    head, piece, rest = data[:at], data[at : at + size], data[at + size :]
    match random.randrange(7):
        case 0:
            middle = bytes(byte ^ 1 << random.randrange(8) for byte in piece)
        case 1:
            middle = random.randbytes(size) + piece
        case 2:
            middle = b""
        case 3:
            middle = piece * random.choice((2, 2, 3, 50))
        case 4:
            middle = random.choice(_INTERESTING).to_bytes(8, "little")[:size][:: random.choice((1, -1))]
        case 5:
            middle = str(random.choice(_INTERESTING)).encode()
        case _:  # cut off, or spliced with the end of a seed
            middle, rest = (
                b"",
                random.choice((b"", (other := random.choice(seeds))[random.randrange(len(other) + 1) :])),
            )
    return head + middle + rest


def _serve(
    connection: Connection, run: Callable[..., None], report: Report, start: int, stop: int, deadline: float
) -> None:
    """Fork a child for the variants, and another for the rest after each that dies; this process has no threads."""
    index, fatal = start, 0
    while index < stop and fatal < _FATAL_LIMIT:
        with tempfile.TemporaryFile() as errors:
            ours, theirs = Pipe(duplex=False)
            child = os.fork()
            if not child:
                os.dup2(errors.fileno(), 2)
                run(theirs, index)
                os._exit(0)
            theirs.close()
            kind = "crash"
            with suppress(EOFError):
                while index < stop:
                    if not ours.poll(deadline):
                        kind = "timeout"
                        break
                    _count(report, index, ours.recv())
                    index += 1
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            ours.close()
            if index < stop:
                errors.seek(0)
                text = f"exit status {status}\n{errors.read().decode(errors='replace')}"
                report.failures.append(Failure(index, kind, text))
                report.variants += 1
                index, fatal = index + 1, fatal + 1
    connection.send(report)


def _count(report: Report, index: int, ended: tuple[str, str, int]) -> None:
    kind, text, peak = ended
    report.variants, report.results = report.variants + 1, report.results + (kind == "result")
    report.peak = max(report.peak, peak)
    if kind == "unnamed":
        report.failures.append(Failure(index, kind, text))
    elif kind == "named":
        report.named[text] += 1


def _run(
    target: Callable[[bytes], object],
    seeds: Sequence[bytes],
    memory: int,
    named: tuple[type[BaseException], ...],
    mutate: Mutation | None,
    seed: int,
    stop: int,
    results: Connection,
    start: int,
) -> None:
    """The child: run the variants from ``start`` on, and send how each ended."""
    faulthandler.enable(file=2)
    with suppress(Exception):
        target(seeds[0])  # what is loaded and started once counts as the start
    limit = _status("VmSize") + memory
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    before = _status("VmRSS")
    for index in range(start, stop):
        try:
            target(variant(seeds, seed, index, mutate))
            ended = "result", ""
        except named as error:
            ended = "named", type(error).__name__
        except BaseException:  # noqa: BLE001 - that is what is looked for
            ended = "unnamed", traceback.format_exc()
        results.send((*ended, max(0, _status("VmHWM") - before)))


def _status(name: str) -> int:
    """Bytes, from the kernel's figures on this process."""
    with open("/proc/self/status") as lines:  # noqa: PTH123 - works without memory for more
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))
