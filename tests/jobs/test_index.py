"""Indices through jobs: made by the first commit, kept by the next ones, added and dropped by index jobs."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kubothek.api.jobs import ExitCode, IndexState, JobResult
from kubothek.table.indexes import IndexKind, lookup, native
from kubothek.table.indexes.reading import collect_from_files
from tests.jobs.conftest import Here

pytestmark = pytest.mark.slow

NATIVE = {"partition_on": ["part"], "indices": [{"column": "id", "kind": "Native"}]}
KARTOTHEK = {"partition_on": ["part"], "indices": [{"column": "id", "kind": "Kartothek"}]}


def csv(start: int, stop: int) -> str:
    return "part,id,name\n" + "".join(f"{n % 3},{n},name-{n % 10}\n" for n in range(start, stop))


def labels_of(here: Here, column: str, value: object) -> set[str]:
    """The files that hold the value, from the files."""
    files = here.snapshot().head.files()
    return {
        label
        for label, key in files.items()
        if value in pq.read_table(io.BytesIO(here.store.get(key))).column(column).to_pylist()
    }


def found(here: Here, column: str, value: object) -> set[str] | None:
    """The same through the index."""
    snapshot = here.snapshot()
    assert snapshot.schema is not None
    labels = lookup(here.store, snapshot.head, snapshot.schema, column, "=", [value])
    return None if labels is None else labels & snapshot.head.partitions.keys()


def indices(result: JobResult) -> list[tuple[str, str, str]]:
    assert result.dataset is not None
    return [(i.column, i.kind, i.state) for i in result.dataset.indices]


@pytest.mark.parametrize("table", [NATIVE, KARTOTHEK], ids=["Native", "Kartothek"])
def test_commit_jobs_build_and_maintain_indices_of_manifest(either: Here, table: dict[str, Any]) -> None:
    kind = table["indices"][0]["kind"]
    either.put("in/1.csv", csv(0, 300))
    assert indices(either.commit("in/1.csv", table=table)) == [("id", kind, "Ready")]
    either.put("in/2.csv", csv(200, 400))
    either.commit("in/2.csv", commit_id="c2", table=table)
    for value in (0, 1, 250, 399, 400):
        assert found(either, "id", value) == labels_of(either, "id", value), value
    assert len(labels_of(either, "id", 250)) == 2


def test_commit_job_collects_index_entries_while_writing(either: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit does not read what it wrote, nor does Spark's driver."""

    def must_be_nothing(_store: object, _uuid: str, columns: object, files: dict[str, str]) -> object:
        assert files == {}
        return collect_from_files(either.store, "flights", {"id": pa.int64()}, files)

    monkeypatch.setattr("kubothek.table.indexes.maintain.collect_from_files", must_be_nothing)
    either.put("in/1.csv", csv(0, 300))
    either.commit("in/1.csv", table=NATIVE)
    state = either.snapshot().head.index_state
    manifest = native.read_manifest(either.store, state.native["id"])
    assert (manifest.rows, manifest.uncovered) == (300, frozenset())


def test_index_job_adds_converts_and_drops_indices(here: Here) -> None:
    here.put("in/1.csv", csv(0, 50))
    here.commit("in/1.csv", table={"partition_on": ["part"]})
    for wanted in (
        [{"column": "id", "kind": "Native"}, {"column": "name", "kind": "Kartothek"}],
        [{"column": "id", "kind": "Kartothek"}],
        [],
    ):
        result, code = here.run(here.job("index", partition_on=["part"], indices=wanted))
        assert code == ExitCode.DONE
        assert indices(result) == [(each["column"], each["kind"], "Ready") for each in wanted]
        for each in wanted:
            value = 7 if each["column"] == "id" else "name-7"
            assert found(here, each["column"], value) == labels_of(here, each["column"], value)
    version = here.snapshot().version
    again, _ = here.run(here.job("index", partition_on=["part"], indices=[]))
    assert here.snapshot().version == version
    assert "up to date" in again.message


def test_index_job_with_only_changed_dialect_rewrites_index(here: Here) -> None:
    here.put("in/1.csv", csv(0, 5))
    wanted = [{"column": "name", "kind": "Kartothek"}]
    here.commit("in/1.csv", table={"partition_on": ["part"], "indices": wanted})
    result, _ = here.run(here.job("index", partition_on=["part"], indices=wanted, dialect="Plateau"))
    assert result.dataset is not None
    assert result.dataset.dialect == "Plateau"
    stored = pq.read_schema(pa.BufferReader(here.store.get(here.snapshot().head.indices["name"])))
    assert stored.field("name").type == pa.large_string()


@pytest.mark.parametrize(
    ("column", "problem"), [("part", "partition column"), ("nope", "no such column"), ("list", "cannot be indexed")]
)
def test_index_job_on_unsupported_column_is_refused_before_writing(here: Here, column: str, problem: str) -> None:
    rows: dict[str, Any] = {"part": [1], "id": [2], "list": [[1, 2]]}
    here.put("in/1.parquet", pa.table(rows))
    bad = {"partition_on": ["part"], "indices": [{"column": column}]}
    result, code = here.run(here.commit_job("in/1.parquet", format="Parquet", table=bad))
    assert (code, result.reason) == (ExitCode.INVALID, "IndexInvalid")
    assert f"{column!r}" in result.message
    assert problem in result.message
    assert here.head() is None
    assert not [info.key for info in here.store.list("flights/")]
    here.commit("in/1.parquet", format="Parquet", table={"partition_on": ["part"]})
    result, code = here.run(here.job("index", **bad))
    assert (code, result.reason) == (ExitCode.INVALID, "IndexInvalid")


def test_inspect_job_reports_stale_index(here: Here) -> None:
    here.put("in/1.csv", csv(0, 5))
    here.commit("in/1.csv", table=NATIVE)
    assert here.snapshot().head.index_state.kinds() == {"id": IndexKind.NATIVE}
    here.store.delete(here.snapshot().head.index_state.native.values())
    result, _ = here.run(here.inspect_job())
    assert result.datasets[0].indices == (IndexState(column="id", kind="Native", state="Stale", rows=0),)
    mended, code = here.run(here.job("index", **NATIVE))
    assert code == ExitCode.DONE
    assert indices(mended) == [("id", "Native", "Ready")]
    assert found(here, "id", 3) == labels_of(here, "id", 3)
