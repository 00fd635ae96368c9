"""Clients of the library beside the cluster, on its bucket: PySpark programs that are killed and restarted, plateau."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
from plateau.io.eager import update_dataset_from_dataframes

from tests.e2e import spark_writer
from tests.e2e.kubectl import PATIENCE
from tests.e2e.workspace import Workspace
from tests.faultproxy import FaultProxy, Hold, Injected, Silence

ROOT = Path(__file__).parents[2]
DATASET = "shared"
HEAD = f"{DATASET}.by-dataset-metadata.json"
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options for a JVM that lives for seconds: its start takes half of the processor time."""
STAGES: dict[str, tuple[str, type[Hold | Silence]]] = {
    "before data": ("/table/", Hold),
    "after data": ("/table/", Silence),
    "before record": ("/commits/", Hold),
    "after record": ("/commits/", Silence),
    "before swap": (HEAD, Hold),
    "after swap": (HEAD, Silence),
    "before marker": ("/applied/", Hold),
    "after marker": ("/applied/", Silence),
}
"""Where a client is killed: the PUT that is under way, and whether the store has done what it asked. After the marker,
the commit is complete, and Spark has not noted it in the checkpoint.
"""


@dataclass
class SparkClient:
    """One program (:mod:`tests.e2e.spark_writer`) in processes of its own, behind a proxy of its own.

    ``kills``   the stages at which it was killed, in order
    ``starts``  how often it was started
    """

    place: Workspace
    proxy: FaultProxy
    kind: str
    job: dict[str, Any]
    log: Path
    kills: list[str] = field(default_factory=list)
    starts: int = 0

    def run(self, stages: Sequence[str]) -> None:
        """Run it to its end, killed at each of these stages, and restarted.

        The request of a killed attempt reaches the store when the next attempt is held at its own stage, or, of the
        last one, while the program runs to its end.
        """
        late: Injected | None = None
        for stage in stages:
            path, fault = STAGES[stage]
            held = self.proxy.inject(fault(), method="PUT", path=path)
            process = self._start()
            deadline = time.monotonic() + PATIENCE
            while not held.arrived.wait(0.1):
                assert process.poll() is None, f"ended before {stage!r}: {self.said()}"
                assert time.monotonic() < deadline, f"waited {PATIENCE} s for {stage!r}: {self.said()}"
            kill_session(process)
            self.kills.append(stage)
            if late is not None:
                late.release()
            late = held
        process = self._start()
        if late is not None:
            late.release()
        try:
            assert process.wait(PATIENCE) == 0, self.said()
        finally:
            kill_session(process)

    def said(self) -> str:
        """Return the end of its log."""
        return self.log.read_text(errors="replace")[-6000:]

    def _start(self) -> subprocess.Popen[bytes]:
        options = {
            "path": self.place.url,
            "uuid": DATASET,
            "endpoint": self.proxy.endpoint,
            "region": "us-east-1",
            "credentialsDir": str(self.place.credentials_dir),
            **self.job.get("options", {}),
        }
        program = [sys.executable, spark_writer.__file__, self.kind, json.dumps({**self.job, "options": options})]
        paths = os.pathsep.join([str(ROOT / "operator"), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable, "JAVA_TOOL_OPTIONS": JVM}
        self.starts += 1
        with self.log.open("ab") as log:
            return subprocess.Popen(program, stdout=log, stderr=log, env=environment, start_new_session=True)


def kill_session(leader: subprocess.Popen[bytes]) -> None:
    """SIGKILL a process and all that it started: also Python workers, which have process groups of their own."""
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, psutil.Error):
            if os.getsid(process.pid) == leader.pid:
                os.kill(process.pid, signal.SIGKILL)
    leader.wait()


def rows_from(first: int, count: int = 10) -> pd.DataFrame:
    """Return rows as :meth:`Workspace.put_rows` does."""
    x = pd.Series(range(first, first + count))
    return pd.DataFrame({"x": x, "p": x % 2, "text": "row " + x.astype(str)})


def append_by_plateau(place: Workspace, first: int, before_head: Callable[[], object]) -> None:
    """Append ten rows as plateau does: it replaces the head without looking whether ``before_head`` changed it."""
    store = place.plateau_store
    put = store.put

    def put_late(key: str, *args: Any, **options: Any) -> Any:
        if key == HEAD:
            before_head()
        return put(key, *args, **options)

    store.put = put_late
    update_dataset_from_dataframes([rows_from(first)], store=lambda: store, dataset_uuid=DATASET, partition_on=["p"])
