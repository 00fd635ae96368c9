"""A run that is divided over many processes, to exactly what one process makes of it. See docs/derivatives.md.

1. *Parts of the records* (:mod:`.ranges`): each runs the queries on its own, as far as records are looked at alone.
   Of queries without a state that is all, and what comes out follows each other as the records do.
2. *Parts of the keys*: where rows come together by keys (:mod:`.plan`), the parts before leave them in the order of
   these, and say which keys there are about. The keys are cut into ranges. A part gets all rows of its range and the
   range's part of the operator's state, gives its part of the new state, and leaves rows for the next place
   (:mod:`.stages`), or a part of the output.
3. The parts are put together (:mod:`.joining`): states follow each other as the keys do, outputs are merged.

Parts are files of a store, in the form of a checkpoint: tables in order, in segments that are found by what they begin
with. Only their names and a little about them travel. They are gone when the run ends; what a crash leaves is garbage.
"""

from __future__ import annotations

from kubothek.odf.distributed.transform.plan import Division, Plan, plan_of
from kubothek.odf.distributed.transform.running import Crew, execute_divided
from kubothek.odf.distributed.transform.work import Reads

__all__ = ["Crew", "Division", "Plan", "Reads", "execute_divided", "plan_of"]
