"""PySpark, Python and plateau write into a Dataset that the operator keeps: each row is in it once.

``KUBOTHEK_SOAK=1`` kills the programs at all stages, in several rounds.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest

import kubothek
from kubothek.catalog import Dataset
from kubothek.errors import OwnedByAnother
from kubothek.storage.base import PROBE_PREFIX
from tests.e2e import manifests
from tests.e2e.clients import DATASET, HEAD, STAGES, SparkClient, append_by_plateau, rows_from
from tests.e2e.kubectl import PATIENCE, Manifest, eventually
from tests.e2e.workspace import Workspace
from tests.faultproxy import FaultProxy, Hold
from tests.sampling import SOAK

ROUNDS = 3 if SOAK else 1
SHORT = {"batch": ["after swap"], "stream": ["after marker"]}
"""The stages in CI, where each costs a start of Spark."""
ROWS = 10
WRITERS = [
    {"name": "etl", "operations": ["Append"]},
    {"name": "stream", "operations": ["Append"]},
    {"name": "notebook", "operations": ["Append"]},
]

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600 + ROUNDS * 600)]


def test_rows_of_killed_clients_beside_operator_and_plateau_are_kept_once(writers: Workspace) -> None:
    writers.prepare()
    admit(writers, WRITERS)
    draw = random.Random(int(os.environ.get("KUBOTHEK_SEED", "1")))
    expected: dict[int, str] = {}
    for number in range(ROUNDS):
        stages = {kind: draw.sample([*STAGES], len(STAGES)) if SOAK else short for kind, short in SHORT.items()}
        expected |= play_round(writers, number, stages)
        require_rows(writers, expected)
    dataset = open_as(writers)
    eventually(lambda: "Compact" in {record.operation for record in dataset.history()} or None, "a compaction")
    records = [*dataset.history()]
    authors = {record.id: record.by for record in records}
    owner = next(by for by in authors.values() if by.endswith(f"/{writers.kubectl.namespace}/{DATASET}"))
    assert {authors[id_] for id_ in authors if id_.startswith("load-")} == {"etl"}
    assert {authors[id_] for id_ in authors if id_.startswith("note-")} == {"notebook"}
    assert set(Counter(authors.values())) >= {"etl", "stream", "notebook", owner}
    assert {"Append", "Merge", "External", "Recovered", "Compact"} <= {str(record.operation) for record in records}
    status = inspected(writers)
    assert (status["version"], status["rows"]) == (dataset.version, len(expected))
    assert sorted(status["writers"]) == ["etl", "notebook", "stream"]


def test_client_that_is_not_admitted_is_refused_before_first_byte(writers: Workspace) -> None:
    writers.prepare()
    admit(writers, WRITERS)
    with FaultProxy(writers.cluster.s3_host_endpoint) as proxy:
        for name, change in ((None, "append"), ("intruder", "append"), ("notebook", "overwrite")):
            with pytest.raises(OwnedByAnother, match=r"spec\.writers"):
                getattr(open_as(writers, name, proxy.endpoint), change)(pa.table({"x": [-1], "p": [1], "text": ["no"]}))
    writes = [request for request in proxy.requests if request.method != "GET"]
    assert all(PROBE_PREFIX.encode() in request.path.encode() + request.body for request in writes)


def test_changed_writers_fence_a_commit_at_its_swap(writers: Workspace) -> None:
    """Its files and its record are written under the former list; the swap of the head is late."""
    writers.prepare()
    admit(writers, WRITERS)
    rows = pa.Table.from_pandas(rows_from(-10), preserve_index=False)
    with FaultProxy(writers.cluster.s3_host_endpoint) as proxy, ThreadPoolExecutor(1) as pool:
        held = proxy.inject(Hold(), method="PUT", path=HEAD)
        stale = pool.submit(open_as(writers, "notebook", proxy.endpoint).append, rows)
        try:
            assert held.arrived.wait(PATIENCE)
            admit(writers, WRITERS[:2])
        finally:
            held.release()
        with pytest.raises(OwnedByAnother, match="notebook"):
            stale.result(PATIENCE)
    assert min(writers.column(DATASET), default=0) >= 0
    with pytest.raises(OwnedByAnother, match="does not permit 'notebook'"):
        open_as(writers, "notebook").append(rows)


def admit(place: Workspace, listed: list[dict[str, Any]]) -> None:
    """Apply the Dataset with these writers, and wait until its table admits them."""
    columns = [{"name": "x", "type": "int64"}, {"name": "p", "type": "int64"}, {"name": "text", "type": "string"}]
    compaction = {"compaction": {"minFiles": 4}}
    table = {"partitionOn": ["p"], "schema": columns, "indices": [{"column": "text"}]}
    place.kubectl.apply(manifests.dataset(DATASET, table=table, writers=listed, maintenance=compaction))
    names = sorted(each["name"] for each in listed)

    def are_admitted() -> bool:
        status = place.kubectl.get("kds", DATASET).get("status", {})
        return sorted(status.get("writers", [])) == names

    eventually(are_admitted, f"{DATASET} to admit {names}", every=0.2)


def play_round(place: Workspace, number: int, stages: dict[str, list[str]]) -> dict[int, str]:
    """Let all write at once; return the text of each row that they wrote, by x."""
    base, began = 100_000 * number, time.monotonic()
    loads, files = (
        [base + start + ROWS * n for n in range(1 + len(stages[kind]))]
        for kind, start in (("batch", 10_000), ("stream", 20_000))
    )
    with (
        TemporaryDirectory() as directory,
        FaultProxy(place.cluster.s3_host_endpoint) as one,
        FaultProxy(place.cluster.s3_host_endpoint) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        here = Path(directory)
        (here / "landing").mkdir()
        for first in files:
            rows_from(first).to_csv(here / f"landing/{first}.csv", header=False, index=False)
        streaming = {
            "options": {"writer": "stream"},
            "landing": f"{here}/landing",
            "checkpoint": f"{here}/checkpoint",
        }
        loading = {"options": {"writer": "etl"}, "firsts": loads, "rows": ROWS}
        clients = {
            "batch": SparkClient(place, one, "batch", loading, here / "batch.log"),
            "stream": SparkClient(place, other, "stream", streaming, here / "stream.log"),
        }
        running = [pool.submit(client.run, stages[kind]) for kind, client in clients.items()]
        commit(place, f"add-{number}", base)
        merge(place, f"merge-{number}", base + 5)
        note = pa.Table.from_pandas(rows_from(base + 40_000), preserve_index=False)

        def others_commit() -> None:
            """A commit of the notebook, and what the batch had done when it was killed first."""
            open_as(place, "notebook").append(note, id=f"note-{number}")
            eventually(lambda: clients["batch"].kills or running[0].done(), "the batch to be killed", every=0.1)

        append_by_plateau(place, base + 30_000, before_head=others_commit)
        for each in running:
            each.result()
    commit(place, f"last-{number}", base + 50_000)
    took = time.monotonic() - began
    killed = ", ".join(f"{kind} at {' / '.join(client.kills)}" for kind, client in clients.items())
    print(
        f"\nround {number}: {sum(c.starts for c in clients.values())} starts of Spark in {took:.0f} s; killed: {killed}"
    )
    firsts = [base, *loads, *files, base + 30_000, base + 40_000, base + 50_000]
    rows = {x: f"row {x}" for first in firsts for x in range(first, first + ROWS)}
    return rows | {x: f"merged {x}" for x in range(base + 5, base + 15)}


def commit(place: Workspace, name: str, first: int) -> None:
    """Append ten rows by a manifest."""
    place.put_rows(f"sources/{name}.csv", first)
    place.kubectl.apply(manifests.commit(name, DATASET, f"sources/{name}.csv"))
    place.kubectl.wait_for("Complete", f"kcm/{name}")


def merge(place: Workspace, name: str, first: int) -> None:
    """Merge ten rows by a manifest: others of their key are updated."""
    rows = "".join(f"{x},{x % 2},merged {x}\n" for x in range(first, first + ROWS))
    place.put(f"sources/{name}.csv", f"x,p,text\n{rows}".encode())
    clauses = {"whenMatched": [{"action": "Update"}], "whenNotMatched": [{"action": "Insert"}]}
    manifest = manifests.commit(name, DATASET, f"sources/{name}.csv", operation="Merge", key=["x"], **clauses)
    place.kubectl.apply(manifest)
    place.kubectl.wait_for("Complete", f"kcm/{name}")


def require_rows(place: Workspace, expected: dict[int, str]) -> None:
    """Raise AssertionError unless the table has exactly these rows, and its index finds them."""
    found = open_as(place).scan(columns=["x", "text"]).read_pandas()
    twice = sorted(found["x"][found["x"].duplicated()])
    assert not twice, f"rows came twice: {twice}"
    rows = dict(zip(found["x"], found["text"], strict=True))
    assert rows == expected, f"lost {sorted(expected.keys() - rows)}, too many {sorted(rows.keys() - expected)}"
    x = max(expected)
    assert open_as(place).scan(columns=["x"], where=f"text = 'row {x}'").read_all()["x"].to_pylist() == [x]


def inspected(place: Workspace) -> Manifest:
    """Return the status of the Dataset once an inspection has shown the newest version."""
    place.kubectl("annotate", "kos", "lake", f"kubothek.io/requestedAt={time.time()}", "--overwrite")

    def newest() -> Manifest | None:
        status: Manifest = place.kubectl.get("kds", DATASET)["status"]
        return status if status.get("version") == open_as(place).version else None

    return eventually(newest, "the inspection to show the newest version")


def open_as(place: Workspace, writer: str | None = None, endpoint: str | None = None) -> Dataset:
    """Return the dataset for a client of this name."""
    lake = kubothek.open(
        place.url,
        endpoint=endpoint or place.cluster.s3_host_endpoint,
        region="us-east-1",
        credentials_dir=str(place.credentials_dir),
        writer=writer,
    )
    return lake.dataset(DATASET)
