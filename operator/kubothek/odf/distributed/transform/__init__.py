"""A run that is divided over many processes, with exactly the result of one process. See docs/derivatives.md.

1. *Parts of the records* (:mod:`.ranges`): each runs the queries on its own, as far as they treat each record alone.
   For queries without a state that is all, and the outputs are concatenated in the order of the records.
2. *Parts of the keys*: before an exchange of rows by keys (:mod:`.plan`), parts leave the rows in the order of their
   keys, and samples of the keys. The keys are cut into ranges. A part gets all rows of its range, and the range's part
   of the operator's state. It returns its part of the new state, and leaves rows for the next exchange
   (:mod:`.stages`), or a part of the output.
3. The parts are joined (:mod:`.joining`): states are concatenated in the order of the keys, outputs are merged.

Parts are files of a store, in the form of a checkpoint: sorted tables, in segments that are found by their first keys.
Only their names and a summary travel. They are deleted when the run ends; those of a crash are garbage.
"""

from __future__ import annotations

from kubothek.odf.distributed.transform.plan import Division, Plan, plan_of
from kubothek.odf.distributed.transform.running import Crew, execute_divided
from kubothek.odf.distributed.transform.work import Reads

__all__ = ["Crew", "Division", "Plan", "Reads", "execute_divided", "plan_of"]
