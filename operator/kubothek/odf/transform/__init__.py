"""The SQL engine of derivative datasets: it updates answers incrementally from ledgers. See docs/transforms.md.

schema = validate(transform, {"flights": schema}, {"flights": Vocabulary()}, Vocabulary())
result = execute(TransformRequest(…))           # the records that result from the new part of the inputs
for batch in result.rows:
    ...
"""

from __future__ import annotations

from kubothek.odf.transform.contract import Records, TransformInput, TransformRequest, TransformResult
from kubothek.odf.transform.run import ENGINE_VERSION, execute, keeps_state, validate

__all__ = [
    "ENGINE_VERSION",
    "Records",
    "TransformInput",
    "TransformRequest",
    "TransformResult",
    "execute",
    "keeps_state",
    "validate",
]
