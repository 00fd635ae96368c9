"""Runs of a derivative's transformation until its inputs have nothing new."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kubothek.api.jobs import OnChange as JobOnChange
from kubothek.errors import InputDiverged, RecordMissing, SchemaMismatch, TransformChanged
from kubothek.odf.derived import Derivative, Inputs, OnChange
from kubothek.odf.derived.running import OURS, Engine
from kubothek.words import count

ON_CHANGE: Final[dict[JobOnChange, OnChange]] = {
    "Stop": OnChange.REFUSE,
    "Continue": OnChange.CONTINUE,
    "Reset": OnChange.RESET,
}
"""The values that manifests use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """The result of a sequence of runs.

    ``version``   of the last commit, None if there was nothing new
    ``runs``      number of runs, which read ``consumed`` records of the inputs and wrote ``records`` records
    ``restarted`` whether all data was rebuilt
    """

    version: int | None = None
    runs: int = 0
    consumed: int = 0
    records: int = 0
    restarted: bool = False

    def __str__(self) -> str:
        if self.version is None:
            return "its inputs have nothing new"
        rebuilt = ", all of it rebuilt" if self.restarted else ""
        return f"version {self.version}: {count(self.records, 'record')} of {self.consumed:,} that were new{rebuilt}"


def derive(
    derivative: Derivative,
    inputs: Inputs,
    *,
    on_change: OnChange = OnChange.REFUSE,
    report: Callable[[Derived], None] = lambda so_far: None,
    engine: Engine = OURS,
) -> Derived:
    """Run the transformation until there is nothing new. Each run is a commit, which stays if a later run fails.

    ``on_change``  RESET: rebuild all data if the transformation cannot continue. It cannot if an input has another
                   history, has other columns or retracts an absent record, or if the engine changed
    ``report``       called after each run with the result so far
    ``engine``     runs the transformation

    Raises what :meth:`Derivative.pull` raises.
    """
    so_far = Derived()
    while True:
        try:
            pulled = derivative.pull(inputs, engine=engine)
        except (InputDiverged, RecordMissing, SchemaMismatch, TransformChanged):
            if on_change is not OnChange.RESET or so_far.restarted:
                raise
            derivative.restart()
            so_far = Derived(restarted=True)
            continue
        done = pulled.done
        if not (done.up_to_date or done.repeated):
            so_far = Derived(
                version=done.version,
                runs=so_far.runs + 1,
                consumed=so_far.consumed + pulled.consumed,
                records=so_far.records + done.records,
                restarted=so_far.restarted,
            )
        report(so_far)
        if not pulled.more:
            return so_far
