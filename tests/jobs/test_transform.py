"""Derivatives through jobs: created, run, edited, made anew; and who is told of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import kubothek
from kubothek.api.jobs import ExitCode, JobResult, LedgerState
from kubothek.errors import ObjectNotFound
from kubothek.odf import Layout, verify
from kubothek.odf.dataset import Root
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys
from tests.jobs.conftest import Here
from tests.webserver import Web, web

pytestmark = pytest.mark.slow

__all__ = ["web"]

READ: dict[str, Any] = {"kind": "Csv", "header": True, "schema": ["event_time TIMESTAMP", "id BIGINT", "seats BIGINT"]}
PUSHED = {
    "kind": "AddPushSource",
    "sourceName": "default",
    "read": READ,
    "merge": {"kind": "Snapshot", "primaryKey": ["id"]},
}
LARGE = "SELECT event_time, id, seats FROM planes WHERE seats > 100"


class Lake:
    """A store with a root and derivatives in it, as jobs make them."""

    def __init__(self, here: Here, secrets: Path) -> None:
        self.here, self._secrets = here, secrets
        self._pushes = 0

    def job(self, verb: str, uuid: str, **changes: Any) -> dict[str, Any]:
        job = self.here.job(verb)
        claim = {"owner": f"cluster/default/{uuid}", "incarnation": f"uid-{uuid}"}
        return {**job, "uid": f"{verb}-{uuid}", "dataset": {**job["dataset"], "uuid": uuid, "claim": claim}} | changes

    def define(self, uuid: str, *events: Any, **changes: Any) -> tuple[JobResult, int]:
        directory = self._secrets / uuid
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "ed25519").write_bytes(uuid.encode().ljust(32, b"."))
        return self.here.run(self.job("ledger", uuid, metadata=events, identity_dir=str(directory), **changes))

    def derive(self, uuid: str, query: str, *inputs: str, **changes: Any) -> tuple[JobResult, int]:
        return self.define(uuid, transform(query, *inputs), kind="Derivative", inputs=refs(*inputs), **changes)

    def push(self, *rows: tuple[int, int]) -> None:
        """The whole register of planes: number and seats."""
        self._pushes += 1
        text = "event_time,id,seats\n" + "".join(f"2026-11-22 10:00:00,{number},{seats}\n" for number, seats in rows)
        name = self.here.put(f"sources/{self._pushes}.csv", text)
        commit = {**self.here.commit_job(name, commit_id=f"push-{self._pushes}"), "push_source": "default"}
        result, code = self.here.run({**commit, "dataset": self.job("commit", "planes")["dataset"]})
        assert code == ExitCode.DONE, result

    def run(self, uuid: str, *inputs: str, **changes: Any) -> tuple[JobResult, int]:
        return self.here.run(self.job("transform", uuid, inputs=refs(*inputs), **changes))

    def ran(self, uuid: str, *inputs: str, **changes: Any) -> LedgerState:
        result, code = self.run(uuid, *inputs, **changes)
        assert code == ExitCode.DONE, result
        assert result.dataset is not None
        assert result.dataset.ledger is not None
        return result.dataset.ledger

    def rows(self, uuid: str) -> dict[int, int]:
        found = kubothek.open(self.here.store.url).sql(f"SELECT id, seats FROM {uuid}").read_all().to_pylist()
        assert len({row["id"] for row in found}) == len(found)
        return {row["id"]: row["seats"] for row in found}


def transform(query: str, *inputs: str) -> dict[str, Any]:
    named = [{"datasetRef": name} for name in inputs]
    return {"kind": "SetTransform", "inputs": named, "transform": {"kind": "Sql", "engine": "duckdb", "query": query}}


def refs(*inputs: str) -> list[dict[str, str]]:
    return [{"reference": name, "uuid": name} for name in inputs]


@pytest.fixture
def lake(here: Here, tmp_path: Path) -> Lake:
    """With the root `planes`, which has records, and its derivative `large`."""
    found = Lake(here, tmp_path / "secrets")
    assert found.define("planes", PUSHED)[1] == ExitCode.DONE
    found.push((1, 180), (2, 90), (3, 150))
    result, code = found.derive("large", LARGE, "planes")
    assert code == ExitCode.DONE, result
    return found


def test_transform_job_creates_derivative_and_updates_per_run(lake: Lake) -> None:
    first = lake.ran("large", "planes")
    assert lake.rows("large") == {1: 180, 3: 150}
    (read,) = first.inputs
    planes = Root(lake.here.store, _log(lake, "planes")).state
    assert planes.seed is not None
    assert (read.id, read.alias, read.block, read.offset) == (
        str(planes.seed.dataset_id),
        "planes",
        str(planes.head),
        2,
    )
    result, _ = lake.run("large", "planes")
    assert (result.message, result.transform) == ("its inputs have nothing new", result.transform)
    assert result.transform is not None
    assert result.transform.version is None
    lake.push((1, 80), (2, 90), (3, 151))
    after = lake.ran("large", "planes")
    assert lake.rows("large") == {3: 151}
    assert after.blocks > first.blocks
    assert verify(lake.here.store, Layout(".kubothek/large/odf/")).sound


def test_transform_job_derives_from_derivative(lake: Lake) -> None:
    lake.ran("large", "planes")
    assert lake.derive("larger", "SELECT * FROM large WHERE seats > 160", "large")[1] == ExitCode.DONE
    assert lake.ran("larger", "large").records == 1
    assert lake.rows("larger") == {1: 180}


def test_inspect_job_reports_input_positions(lake: Lake) -> None:
    known = lake.ran("large", "planes")
    job = lake.job("inspect", "large")
    dataset = job.pop("dataset")
    result, _ = lake.here.run(job | {"datasets": [dataset]})
    assert result.datasets[0].ledger == known


def test_transform_job_with_missing_inputs_names_all_and_creates_nothing(lake: Lake) -> None:
    result, code = lake.derive("both", "SELECT 1", "gone", "lost")
    assert code == ExitCode.INVALID
    assert "gone, lost" in result.message
    assert _head(lake, "both") is None


def test_transform_job_with_nondeterministic_sql_is_refused(lake: Lake) -> None:
    result, code = lake.derive("now", "SELECT event_time, id, now() AS seats FROM planes", "planes")
    assert (code, result.reason) == (ExitCode.INVALID, "TransformInvalid")
    assert "now" in result.message


def test_changed_query_is_refused_unless_continued_or_reset(lake: Lake) -> None:
    lake.ran("large", "planes")
    small = "SELECT event_time, id, seats FROM planes WHERE seats < 100"
    result, code = lake.derive("large", small, "planes")
    assert (code, result.reason) == (ExitCode.INVALID, "TransformChanged")
    assert lake.derive("large", LARGE, "planes")[0].message == "the chain holds all events"
    assert lake.derive("large", small, "planes", on_change="Continue")[1] == ExitCode.DONE
    lake.push((1, 180), (2, 90), (3, 150), (4, 40), (5, 300))
    lake.ran("large", "planes")
    assert lake.rows("large") == {1: 180, 3: 150, 4: 40}
    assert lake.derive("large", f"{LARGE} AND id > 1", "planes", on_change="Reset")[1] == ExitCode.DONE
    lake.ran("large", "planes")
    assert lake.rows("large") == {3: 150, 5: 300}
    assert verify(lake.here.store, Layout(".kubothek/large/odf/")).sound


def test_diverged_input_stops_derivative_unless_reset(lake: Lake) -> None:
    lake.ran("large", "planes")
    planes = Root(lake.here.store, _log(lake, "planes"))
    planes.reset(list(planes.blocks())[-2].hash)
    lake.push((1, 500))
    result, code = lake.run("large", "planes")
    assert (code, result.reason) == (ExitCode.INVALID, "InputDiverged")
    assert lake.rows("large") == {1: 180, 3: 150}
    result, code = lake.run("large", "planes", on_change="Reset")
    assert code == ExitCode.DONE, result
    assert "rebuilt" in result.message
    assert lake.rows("large") == {1: 500}


def test_verify_job_reruns_derivative_and_checks_inputs_recursively(lake: Lake) -> None:
    lake.ran("large", "planes")
    assert lake.derive("larger", "SELECT * FROM large WHERE seats > 160", "large")[1] == ExitCode.DONE
    lake.ran("larger", "large")
    result, _ = lake.here.run(lake.job("verify", "larger", recursive=True))
    assert result.verify is not None
    assert (result.reason, result.verify.datasets, result.verify.wrong) == ("Succeeded", 3, 0)
    assert result.message.startswith("planes, large, larger: sound")
    (data,) = (lake.here.root / ".kubothek" / "planes" / "odf" / "data").iterdir()
    data.write_bytes(data.read_bytes()[:-1] + b"!")
    result, code = lake.here.run(lake.job("verify", "larger", recursive=True))
    assert (code, result.reason) == (ExitCode.DONE, "Corrupt")
    assert result.verify is not None
    assert result.verify.first is not None
    assert result.verify.dataset == "planes", "the cause, and not what follows from it"


def test_transform_job_on_dataset_of_other_kind_is_refused(lake: Lake) -> None:
    assert "is a root dataset" in lake.derive("planes", LARGE, "large")[0].message
    assert "is a derivative dataset" in lake.define("large", PUSHED)[0].message
    assert lake.run("planes", "large")[1] == ExitCode.INVALID


# --- OpenLineage -----------------------------------------------------------------------------------------------------


def told(web: Web) -> list[Mapping[str, Any]]:
    assert [path for path, _ in web.posted] == ["/api/v1/lineage"] * len(web.posted)
    return [json.loads(body) for _, body in web.posted]


def test_transform_run_emits_lineage_of_inputs_and_outputs(lake: Lake, web: Web) -> None:
    collector = {"url": web.url("").rstrip("/"), "namespace": "cluster/default"}
    lake.ran("large", "planes", lineage=collector)
    start, end = told(web)
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == end["run"]["runId"]
    assert (end["job"]["namespace"], end["job"]["name"]) == ("cluster/default", "large")
    assert end["job"]["facets"]["sql"]["query"] == LARGE
    (source,), (target,) = end["inputs"], end["outputs"]
    assert source["name"].endswith("/lake/planes")
    planes = Root(lake.here.store, _log(lake, "planes")).state
    assert source["facets"]["version"]["datasetVersion"] == str(planes.head)
    assert "version" not in start["inputs"][0]["facets"], "nothing was read yet"
    assert target["outputFacets"]["outputStatistics"]["rowCount"] == 2
    assert [each["name"] for each in target["facets"]["schema"]["fields"]][-2:] == ["id", "seats"]
    assert end["schemaURL"] == "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
    for facet in (end["job"]["facets"]["sql"], target["facets"]["schema"], target["facets"]["version"]):
        assert {"_producer", "_schemaURL"} <= facet.keys()


def test_failed_transform_run_emits_fail_event_and_ignores_collector_error(lake: Lake, web: Web) -> None:
    lake.ran("large", "planes", lineage={"url": "http://127.0.0.1:9", "namespace": "n"})
    planes = Root(lake.here.store, _log(lake, "planes"))
    planes.reset(list(planes.blocks())[-2].hash)
    lake.push((1, 500))
    web.taken = 500
    _, code = lake.run("large", "planes", lineage={"url": web.url("").rstrip("/"), "namespace": "n"})
    assert code == ExitCode.INVALID
    assert [each["eventType"] for each in told(web)] == ["START", "FAIL"]
    assert "planes" in told(web)[1]["run"]["facets"]["errorMessage"]["message"]


def _head(lake: Lake, uuid: str) -> bytes | None:
    try:
        return lake.here.store.get(keys.head(uuid))
    except ObjectNotFound:
        return None


def _log(lake: Lake, uuid: str) -> DatasetLog:
    return DatasetLog(lake.here.store, uuid)
