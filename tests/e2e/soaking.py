"""A lake that keeps itself: four writers, readers of two libraries, compaction and collection, all at once.

`make soak` makes 200 commits instead of 20.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from plateau.io.eager import read_table

from tests.e2e import manifests
from tests.e2e.kubectl import Manifest, eventually
from tests.e2e.workspace import Workspace

COMMITS = 200 if os.environ.get("KUBOTHEK_SOAK") else 20
WRITERS = 4
ROWS = 10
"""Of each commit, half of them in each of the table's two partitions."""
GRACE = timedelta(minutes=1)
"""The shortest that a GCPolicy may have."""
AGE = 1.5 * GRACE
"""How old a collection wants it: half of it may pass between a commit's record and its swap."""
OPTIMUM = 2
"""Files: one a partition, as there are only bytes in them."""

PAUSE = 2.0
"""Seconds between two reads of a reader."""

LIMIT = 1000 + 20 * COMMITS
"""Seconds that it may take."""


def policy() -> Manifest:
    """Keeps the present version only, and looks every minute."""
    spec = {
        "selector": {"all": True},
        "schedule": {"cron": "* * * * *"},
        "retention": {"versions": 1},
        "gracePeriod": f"{GRACE.seconds}s",
        "mode": "Enforce",
    }
    return manifests.resource("GCPolicy", "everything", spec)


class Acknowledged:
    """The rows of the commits that are complete: whoever begins to read now has to find them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: set[int] = set()

    def add(self, first: int) -> None:
        with self._lock:
            self._rows.update(range(first, first + ROWS))

    def now(self) -> set[int]:
        with self._lock:
            return set(self._rows)


def write(soak: Workspace, writer: int, done: Acknowledged) -> None:
    """One commit after another, as a pipeline makes them."""
    for number in range(writer, COMMITS, WRITERS):
        name, first = f"commit-{number}", ROWS * number
        soak.put_rows(f"sources/{name}.csv", first, ROWS)
        soak.kubectl.apply(manifests.commit(name, "soak", f"sources/{name}.csv"))
        soak.kubectl.wait_for("Complete", f"kcm/{name}")
        done.add(first)


@contextmanager
def readers(read: dict[str, Callable[[], list[int]]], done: Acknowledged) -> Iterator[dict[str, int]]:
    """Read all along; every read must find what was complete when it began, and nothing twice. Yields their counts."""
    over = threading.Event()
    counts = dict.fromkeys(read, 0)

    def keep_reading(name: str) -> None:
        while not over.is_set():
            expected = done.now()
            found = read[name]()
            assert len(found) == len(set(found)), f"{name}: rows came twice"
            assert expected <= set(found), f"{name}: lost {sorted(expected - set(found))}"
            counts[name] += 1
            over.wait(PAUSE)

    with ThreadPoolExecutor(len(read)) as pool:
        reading = [pool.submit(keep_reading, name) for name in read]
        try:
            yield counts
        finally:
            over.set()
        for each in reading:
            each.result()


def unneeded(soak: Workspace) -> set[str]:
    """Data files in the bucket that the present version does not have."""
    files = set(soak.lake.dataset("soak").snapshot().head.files().values())
    return {key for key in soak.keys("soak/table/") if key.endswith(".parquet")} - files


def keep_house(soak: Workspace) -> None:
    """The whole of it. Raises AssertionError for a row that is lost or comes twice, and for garbage that stays."""
    soak.prepare()
    kubectl, done = soak.kubectl, Acknowledged()
    compaction = {"minFiles": 4}
    kubectl.apply(manifests.dataset("soak", ["p"], maintenance={"compaction": compaction}), policy())
    soak.put_rows("sources/first.csv", ROWS * COMMITS, ROWS)
    kubectl.apply(manifests.commit("first", "soak", "sources/first.csv"))
    kubectl.wait_for("Complete", "kcm/first")
    done.add(ROWS * COMMITS)

    read = {
        "kubothek": lambda: soak.column("soak"),
        "plateau": lambda: [int(x) for x in read_table("soak", store=lambda: soak.plateau_store, columns=["x"])["x"]],
    }
    with readers(read, done) as counts:
        with ThreadPoolExecutor(WRITERS) as pool:
            for writing in [pool.submit(write, soak, writer, done) for writer in range(WRITERS)]:
                writing.result()
        eventually(lambda: is_compact(kubectl.get("kds", "soak")), "compaction to catch up")
        aged = datetime.now(UTC) + AGE
        eventually(lambda: collected_after(kubectl.get("kgc", "everything"), aged), "a collection")

    assert sorted(soak.column("soak")) == list(range(ROWS * (COMMITS + 1)))
    assert len(soak.lake.dataset("soak").snapshot().head.files()) <= 2 * OPTIMUM
    assert unneeded(soak) == set()
    assert min(counts.values()) > COMMITS / 4, counts
    operations = {str(record.operation) for record in soak.lake.dataset("soak").history()}
    assert operations & {"Compact", "Expire"}


def is_compact(dataset: dict[str, Any]) -> bool:
    """Whether the Dataset has all rows and nothing left to compact, and nothing under way."""
    status = dataset["status"]
    complete = status["rows"] == ROWS * (COMMITS + 1) and status["files"] <= 2 * OPTIMUM
    return bool(complete and status.get("compaction", {}).get("done"))


def collected_after(policy: dict[str, Any], moment: datetime) -> bool:
    """Whether a collection that began after the moment is over."""
    last = policy.get("status", {}).get("last") or {}
    started = last.get("startedTime")
    return started is not None and datetime.fromisoformat(started) > moment
