"""Another machine, as far as one can be had: ``python -m tests.odf.derived.elsewhere STORE NAME MEMORY THREADS CPUS``.

Makes the slices and states of a derivative anew from its inputs, in a process of other limits, on other processors,
and with whatever environment it was given. Prints what it made as JSON; what comes out otherwise than the chain says
raises.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial

from kubothek.odf.derived import Derivative, inputs_of, running
from kubothek.odf.transform import execute
from kubothek.storage import StoreConfig, open_store
from kubothek.table.log import DatasetLog


def main(url: str, name: str, memory: str, threads: str, processors: str) -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(processors)])
    setattr(running, "execute", partial(execute, memory=memory, threads=int(threads)))  # noqa: B010 - not exported
    store = open_store(StoreConfig(url))
    made = Derivative(store, DatasetLog(store, name)).restore(inputs_of(store))
    print(json.dumps({"slices": made.slices, "checkpoints": made.checkpoints, "runs": made.runs}))


if __name__ == "__main__":
    main(*sys.argv[1:])
