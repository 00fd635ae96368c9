"""``kubothek run`` over a Dataset that a program writes, too: real jobs."""

from __future__ import annotations

import time
from pathlib import Path

import orjson
import pyarrow as pa
import pytest

import kubothek as door
from kubothek.errors import OwnedByAnother
from tests.cli.conftest import Kubothek
from tests.local.manifests import STORE, commit, dataset, write

WRITERS = "writers: [{name: etl, operations: [Append]}]"


def of(project: Path, name: str) -> dict[str, object]:
    """The status of the Dataset, as the state files have it."""
    saved = project / "store/.kubothek-state/resources/Dataset/default" / f"{name}.json"
    return dict(orjson.loads(saved.read_bytes())["status"])


def await_next_second() -> None:
    """Wait until the clock shows another second: statuses tell inspections apart by the second of their start."""
    began = int(time.time())
    while int(time.time()) == began:
        time.sleep(0.01)


@pytest.mark.slow
def test_run_follows_commits_of_a_writer_and_repairs_nothing(kubothek: Kubothek, project: Path) -> None:
    (project / "store" / "sources").mkdir(parents=True)
    (project / "store" / "sources" / "ok.csv").write_text("a,b\n1,x\n2,y\n3,x\n")
    write(project, STORE, dataset("letters", WRITERS), commit("first", "letters"))
    first = kubothek("run", "-f", "manifests")
    assert (first.code, first.err) == (0, "")

    letters = door.open(project / "store", writer="etl").dataset("letters")
    letters.append(pa.table({"a": [4], "b": ["z"]}), id="batch-4")
    after = letters.version

    await_next_second()
    second = kubothek("run", "-f", "manifests")
    assert (second.code, second.err) == (0, "")
    assert "(1 job, " in second.out  # the inspection
    assert letters.version == after
    status = of(project, "letters")
    assert (status["version"], status["rows"], status["writers"]) == (after, 4, ["etl"])
    by = [(str(record.operation), record.by.rpartition("/")[2]) for record in letters.history()]
    assert by == [("Append", "etl"), ("Append", "letters"), ("Create", "letters")]

    write(project, STORE, dataset("letters"), commit("first", "letters"))
    await_next_second()
    assert kubothek("run", "-f", "manifests").code == 0
    assert not of(project, "letters").get("writers")
    with pytest.raises(OwnedByAnother, match="writers is empty"):
        letters.append(pa.table({"a": [5], "b": ["z"]}))
