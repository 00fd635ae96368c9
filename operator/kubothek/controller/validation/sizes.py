"""Rules about sizes beyond the operator's limits. Not denied, because limits may be lowered below existing Engines:
jobs are cut to the limit when they start, and the condition of the Engine reports it.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubothek.api.commit import Commit
from kubothek.api.compaction import Compaction
from kubothek.api.engine import Engine
from kubothek.api.profiles import capped, layered, said
from kubothek.api.query import Query
from kubothek.api.verification import Verification
from kubothek.controller.context import Lookup
from kubothek.controller.finding import Finding


def beyond_limits(engine: Engine, there: Lookup) -> Iterator[Finding]:
    """Yield a finding for each size of an Engine that is cut."""
    yield from _cuts("spec", capped(engine.spec, there.engine_limits)[1])


def run_beyond_limits(run: Commit | Query | Compaction | Verification, there: Lookup) -> Iterator[Finding]:
    """Yield a finding for each size of a run that is cut."""
    if run.spec.size is None:
        return
    sizes = said(run.spec.size)
    requested = {f"{part}.{name}" for part, found in sizes.items() for name in found}
    cuts = capped(layered([sizes]), there.engine_limits)[1]
    yield from _cuts("spec.size", tuple(cut for cut in cuts if cut.partition(":")[0] in requested))


def _cuts(where: str, cuts: tuple[str, ...]) -> Iterator[Finding]:
    for cut in cuts:
        path, _, _ = cut.partition(":")
        yield Finding("CutToLimit", f"{where}.{path}", cut, denies=False)
