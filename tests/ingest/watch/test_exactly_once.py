"""Thousands of files over many runs, with kills, re-uploads and jobs at once: each version of a file exactly once.

``make soak`` runs it at full size: 100,000 files over 50 runs.
"""

from __future__ import annotations

import json
import os
import random
import resource
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kubothek.api.jobs import JOB, IntakeJob, IntakeOutcome
from kubothek.errors import Conflict, Contended, DatasetNotFound
from kubothek.ingest.watch import attempts
from kubothek.jobs import intake
from kubothek.jobs.progress import Reporter
from kubothek.storage import StoreConfig, open_store
from kubothek.table.log import DatasetLog
from tests.faultstore import Crash, Fault, FaultStore

pytestmark = pytest.mark.slow

FILES, RUNS = (100_000, 50) if os.environ.get("KUBOTHEK_SOAK") else (2_000, 10)
OWNER = "cluster/default/events"


class Landings:
    """Files that land and are uploaded again; each version holds one row, with a number of its own."""

    def __init__(self, root: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.root = root
        self.store = open_store(StoreConfig(root.as_uri()))
        self.newest: dict[str, int] = {}
        self.must: set[int] = set()
        self.may: set[int] = set()
        """Versions that were overwritten at a moment when nobody can say whether they had been taken."""
        self._count = 0

    def put(self, name: str) -> None:
        """Upload a file, or another version of it. It appears as a whole, as on S3."""
        self._count += 1
        path = self.root / "landing" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        work = path.with_name(f".{path.name}")
        work.write_text(f"v\n{self._count}\n")
        work.replace(path)
        self.must.add(self._count)
        self.newest[name] = self._count

    def land(self, count: int) -> None:
        """New files, whose names sort anywhere."""
        for _ in range(count):
            self.put(f"{self.rng.randrange(20):02}/{self.rng.getrandbits(64):016x}.csv")

    def upload_again(self, count: int, taken: Counter[int]) -> None:
        """Other versions of files of before; a version that nobody took yet is gone for good."""
        for name in self.rng.sample(sorted(self.newest), min(count, len(self.newest))):
            before = self.newest[name]
            if not taken[before]:
                self.must.discard(before)
            self.put(name)

    def overwrite_somewhere(self) -> None:
        """Another version of some file, at a moment in the middle of a look."""
        name = self.rng.choice(sorted(self.newest))
        self.must.discard(self.newest[name])
        self.may.add(self.newest[name])
        self.put(name)

    def job(self, number: int) -> IntakeJob:
        job = {
            "verb": "intake",
            "job": f"events-intake-{number}",
            "uid": "uid-1",
            "store": {"name": "lake", "url": self.root.as_uri()},
            "dataset": {"uuid": "events", "claim": {"owner": OWNER, "incarnation": "uid-1"}},
            "name": "landing",
            "source": {"format": "CSV", "columns": [{"name": "v", "type": "int64"}]},
            "prefix": "landing/",
            "max_files": max(50, FILES // 100),
            "max_bytes": 1 << 30,
            "reading": "r",
            "spark": {"from_bytes": 1 << 60},
        }
        parsed = JOB.validate_python(job)
        assert isinstance(parsed, IntakeJob)
        return parsed

    def look(self, number: int, store: FaultStore | None = None) -> IntakeOutcome:
        with Path(os.devnull).open("w") as nowhere:
            result = intake.run(self.job(number), store or self.store, Reporter(nowhere))
        assert result.intake is not None
        return result.intake

    def rows(self) -> Counter[int]:
        """What is in the table."""
        found: Counter[int] = Counter()
        for key in DatasetLog(self.store, "events").snapshot().head.files().values():
            found.update(pq.read_table(self.root / key, partitioning=None)["v"].to_numpy().tolist())
        return found


def looks_at_once(landings: Landings, number: int) -> None:
    """Two jobs, as if a pod had only looked lost."""

    def look() -> None:
        with suppress(Conflict, Contended):
            landings.look(number)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def look_with_trouble(landings: Landings, number: int) -> bool:
    """A job that is killed at one of its writes, if it makes that many; while it works a file is overwritten."""
    rng = landings.rng
    store = FaultStore(landings.store, Fault(nth=rng.randint(1, 24), after=rng.random() < 0.5))
    overwrites = {rng.randrange(1, 100)}

    def between(_name: str, _key: str) -> None:
        if len(store.calls) in overwrites:
            overwrites.discard(len(store.calls))
            landings.overwrite_somewhere()

    store.before_call = between
    try:
        landings.look(number, store)
    except Crash:
        return True
    return False


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_every_file_version_is_ingested_exactly_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "DEATHS", 1 << 30)  # the kills here are no file's fault
    landings = Landings(tmp_path, seed=4)
    began, kills, looks, taken = time.monotonic(), 0, 0, Counter[int]()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for run in range(RUNS):
        landings.land(FILES // RUNS)
        landings.upload_again(FILES // RUNS // 10 if run else 0, taken)
        if run % 5 == 4:
            looks_at_once(landings, run)
        else:
            kills += look_with_trouble(landings, run)
        looks += 1
        with suppress(DatasetNotFound):  # killed before the first commit
            taken = landings.rows()
    while (last := landings.look(RUNS)).commits:
        looks += 1
    found = landings.rows()
    figures = {
        "files": len(landings.newest),
        "versions taken": len(found),
        "overwritten while a look was under way": len(landings.may),
        "runs": RUNS,
        "looks": looks,
        "kills": kills,
        "commits": sum(1 for _ in DatasetLog(landings.store, "events").history()),
        "seconds": round(time.monotonic() - began),
        "peak MiB over the start": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024,
    }
    with capsys.disabled():
        print(json.dumps(figures))
    twice = {number: count for number, count in found.items() if count > 1}
    assert twice == {}
    assert landings.must - set(found) == set()
    assert set(found) - landings.must - landings.may == set()
    assert (last.waiting_files, last.taken) == (0, len(found))
    assert kills >= RUNS // 3
