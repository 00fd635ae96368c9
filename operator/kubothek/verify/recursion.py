"""Verification of a derivative dataset and all its upstream datasets, to the roots: each one once, inputs first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kubothek.errors import InputMissing, LakeError, StoreError
from kubothek.odf import Level
from kubothek.odf.dataset import Ledger
from kubothek.odf.derived.inputs import Inputs, inputs_of, located
from kubothek.storage import Store
from kubothek.storage.parallel import ReportProgress, Spread
from kubothek.table.log import DatasetLog
from kubothek.verify.datasets import DatasetVerdict, verify_dataset


@dataclass(frozen=True, slots=True)
class Verified:
    """A dataset and its verdict."""

    uuid: str
    verdict: DatasetVerdict


def verify_recursively(
    store: Store,
    uuid: str,
    *,
    level: Level = Level.FULL,
    inputs: Inputs | None = None,
    log_of: Callable[[str], DatasetLog] | None = None,
    progress: ReportProgress = lambda done, total: None,
    spread: Spread | None = None,
) -> list[Verified]:
    """Verify the dataset and all its upstream datasets, roots first, so that the first unsound one is the cause.

    A missing input is a finding of the dataset that consumes it. Raises what verify_dataset raises.
    """
    inputs = inputs or inputs_of(store)
    make = log_of or (lambda name: DatasetLog(store, name))
    return [
        Verified(name, verify_dataset(store, make(name), level=level, progress=progress, spread=spread, inputs=inputs))
        for name in upstream_first(store, uuid, inputs, make)
    ]


def upstream_first(store: Store, uuid: str, inputs: Inputs, log_of: Callable[[str], DatasetLog]) -> list[str]:
    """Return the names of the dataset and all its upstream datasets, each after its inputs."""
    order: dict[str, None] = {}
    entered: set[str] = set()
    stack = [(uuid, iter(_inputs(store, uuid, inputs, log_of)))]
    entered.add(uuid)
    while stack:
        name, rest = stack[-1]
        following = next(rest, None)
        if following is None:
            order[name] = None
            stack.pop()
        elif following not in entered:
            entered.add(following)
            stack.append((following, iter(_inputs(store, following, inputs, log_of))))
    return [*order]


def _inputs(store: Store, uuid: str, inputs: Inputs, log_of: Callable[[str], DatasetLog]) -> Iterator[str]:
    """Yield the names of its inputs that exist; its own verification reports the others."""
    try:
        transform = Ledger(store, log_of(uuid)).state.transform
    except StoreError:
        raise
    except LakeError:
        return
    for each in transform.inputs if transform is not None else ():
        try:
            yield located(inputs, each).uuid
        except InputMissing:
            continue
