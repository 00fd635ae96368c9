"""Derivative datasets: SQL over other ledgers, updated incrementally run by run. See docs/derivatives.md.

inputs = inputs_of(store)
delays = create(store, DatasetLog(store, "delays"), snapshot, owner_key_file(path), inputs)
while delays.pull(inputs).more:
    ...
"""

from __future__ import annotations

from kubothek.odf.derived.batching import Limits
from kubothek.odf.derived.creating import create
from kubothek.odf.derived.handle import Derivative, OnChange, Pulled, open_ledger
from kubothek.odf.derived.inputs import Input, Inputs, inputs_of
from kubothek.odf.derived.waiting import Pending, Trouble

__all__ = [
    "Derivative",
    "Input",
    "Inputs",
    "Limits",
    "OnChange",
    "Pending",
    "Pulled",
    "Trouble",
    "create",
    "inputs_of",
    "open_ledger",
]
