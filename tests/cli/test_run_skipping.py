"""``kubothek run`` with real jobs: skipping metadata of a Dataset and of plain files, and what queries had of it."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kubothek.api.dataset import Dataset
from kubothek.api.meta import Resource
from kubothek.api.skippingindex import SkippingIndex
from kubothek.local.manifests import Key
from kubothek.local.state import State
from tests.cli.conftest import Kubothek
from tests.local.manifests import STORE, commit, dataset, write

R = TypeVar("R", bound=Resource)
SKIPPING = "table: {skipping: {indices: [{type: MinMax, column: a}, {type: Prefix, column: b, length: 2}]}}"
QUERY = """\
---
apiVersion: kubothek.io/v1alpha1
kind: Query
metadata: {name: report}
spec:
  storeRef: {name: lake}
  dependsOn: [{name: one}, {name: two}]
  sql: SELECT b FROM letters WHERE a = 20
  result: {location: {path: reports, format: CSV}}
"""
INDEX = """\
---
apiVersion: kubothek.io/v1alpha1
kind: SkippingIndex
metadata: {name: trips}
spec:
  location: {storeRef: {name: lake}, prefix: landing/trips}
  skipping: {auto: true, indices: [{type: BloomFilter, column: id}]}
"""


def sources(project: Path) -> None:
    for number, name in enumerate(("one", "two")):
        file = project / "store" / "sources" / f"{name}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("a,b\n" + "".join(f"{10 * number + n},{name}-{n}\n" for n in range(10)))


def commits() -> list[str]:
    return [commit(name, "letters", f"sources/{name}.csv") for name in ("one", "two")]


def state_of(project: Path, kind: type[R], name: str) -> R:
    """What runs on this machine remember of a resource."""
    state = State.of((project / "store").as_uri(), None, project)
    found = state.load(kind, Key(kind.__name__, "default", name))
    assert isinstance(found, kind)
    return found


@pytest.mark.slow
def test_run_builds_and_maintains_skipping_index_of_dataset(kubothek: Kubothek, project: Path) -> None:
    sources(project)
    write(project, STORE, dataset("letters"), *commits())
    assert kubothek("run", "-f", "manifests").code == 0
    write(project, STORE, dataset("letters", SKIPPING), *commits())
    planned = kubothek("plan", "-f", "manifests").out
    assert "spec.table.skipping" in planned
    assert "a job on edit" in planned
    done = kubothek("run", "-f", "manifests")
    assert (done.code, done.err) == (0, "")
    assert "2 of 2 files described" in kubothek("skipping", "describe", "letters", "-f", "manifests").out
    write(project, STORE, dataset("letters", SKIPPING), *commits(), QUERY.replace("a = 20", "a = 12"))
    assert kubothek("run", "-f", "manifests").code == 0
    status = state_of(project, Dataset, "letters").status
    achieved, skipping = status.skipping_achieved, status.skipping
    assert achieved is not None
    assert (achieved.queries, achieved.considered, achieved.skipped, achieved.share) == (1, 2, 1, "50%")
    assert skipping is not None
    assert skipping.coverage == "100%"
    assert kubothek("run", "-f", "manifests").out.startswith("up to date: ")


@pytest.mark.slow
def test_run_refreshes_skipping_index_of_plain_files(kubothek: Kubothek, project: Path) -> None:
    directory = project / "store" / "landing" / "trips"
    directory.mkdir(parents=True)
    for number in range(3):
        pq.write_table(pa.table({"id": range(100 * number, 100 * number + 100)}), directory / f"{number}.parquet")
    write(project, STORE, INDEX)
    assert "describes 3 files" in kubothek("plan", "-f", "manifests").out
    first = kubothek("run", "-f", "manifests")
    assert (first.code, first.err) == (0, "")
    assert "all of 3 files are described" in kubothek("plan", "-f", "manifests").out
    answer = kubothek("query", "SELECT count(*) AS n FROM trips WHERE id = 120", "-f", "manifests")
    assert "from trips (1 file)" in answer.out
    pq.write_table(pa.table({"id": [7]}), directory / "late.parquet")
    assert "describes 1 new file of 4" in kubothek("plan", "-f", "manifests").out
    assert kubothek("run", "-f", "manifests").code == 0
    assert "from trips (2 files)" in kubothek("query", "SELECT 1 FROM trips WHERE id = 7", "-f", "manifests").out
    status = state_of(project, SkippingIndex, "trips").status
    assert (status.files, status.described, status.added) == (4, 4, 1)
    assert "4 of 4 files are described" in kubothek("get", "ksi", "-f", "manifests").out
