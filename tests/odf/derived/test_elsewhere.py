"""What a derivative is made of depends on nothing but its inputs: made anew by another process, with other processors,
threads, memory, time zone, language, hash seed and umask, its slices and states are the same bytes (DAT-08, DAT-09);
and Spark, which replays each piece in a task of its own, finds what one process finds (VE-02).
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import unix_millis

from kubothek.odf.derived import Limits, inputs_of
from kubothek.odf.derived.verification import verify_runs
from kubothek.spark import session as spark_session
from kubothek.spark.sweep import spread_with_spark
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.storage.parallel import spread_here
from tests.odf.derived.test_histories import START
from tests.odf.derived.world import APPEND, derived, layout, opened, push, root, settle, transform
from tests.odf.transform.streams import flights, weather
from tests.odf.transform.test_kinds import queries
from tests.odf.transform.world import added_up, batches, run, sql

pytestmark = pytest.mark.slow

QUERY = (
    "SELECT window.start AS event_time, carrier, count(*) AS flights, sum(delay) AS delay, avg(delay / 7.0) AS mean, "
    "max(delay) AS most, list(id ORDER BY id) AS ids FROM flights GROUP BY window(event_time, '1 hour'), carrier"
)
MACHINES = {
    "small": (
        ("48MB", "1", "1"),
        {"TZ": "Pacific/Chatham", "LANG": "tr_TR.UTF-8", "LC_ALL": "C", "PYTHONHASHSEED": "7"},
        0o077,
    ),
    "large": (
        ("2GB", "8", "2"),
        {"TZ": "America/St_Johns", "LANG": "de_DE.UTF-8", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0"},
        0o002,
    ),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a store with a derivative of three runs, with doubles, lists and values in its state."""
    directory, chance = tmp_path_factory.mktemp("made"), random.Random(9)
    store = open_store(StoreConfig(directory.as_uri()))
    root(store, merge=APPEND)
    derived(store, "hours", transform(QUERY))
    for _ in range(3):
        rows = {n: (chance.choice(["UA", "Ü", "I", "i"]), chance.randrange(-30, 300)) for n in range(4_000)}
        times = [START + timedelta(minutes=chance.randrange(5_000)) for _ in rows]
        push(store, rows, event_time=pa.array(times, pa.timestamp("ms", "UTC")))
    assert settle(store, "hours", Limits(records=1)) == 3
    return directory


def contents(store: Store) -> dict[str, bytes]:
    where = layout("hours")
    return {
        info.key: store.get(info.key) for prefix in (where.slices, where.checkpoints) for info in store.list(prefix)
    }


@pytest.mark.requirement("DAT-08")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("machine", MACHINES)
def test_derivative_rebuilt_on_other_machine_has_identical_bytes(made: Path, tmp_path: Path, machine: str) -> None:
    limits, environment, umask = MACHINES[machine]
    shutil.copytree(made, tmp_path / "store")
    store = open_store(StoreConfig((tmp_path / "store").as_uri()))
    before = contents(store)
    assert len(before) == 6
    store.delete(before)
    done = subprocess.run(
        [sys.executable, "-m", "tests.odf.derived.elsewhere", store.url, "hours", *limits],
        env={**os.environ, **environment},
        umask=umask,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == {"slices": 3, "checkpoints": 3, "runs": 3}
    assert contents(store) == before


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    conf = {"spark.master": "local[2]", "spark.driver.memory": "1g", "spark.ui.enabled": "false"}
    with spark_session.running(conf) as session:
        yield session


@pytest.mark.requirement("EN-08")
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["filter", "tumbling", "sessions", "ranks", "left join"])
def test_batched_runs_match_spark_result_on_complete_input(tmp_path: Path, spark: SparkSession, kind: str) -> None:
    """The same text, as Spark understands it."""
    chance, (query, _) = random.Random(kind), queries(kind)
    streams = [flights(chance, 60)] + ([weather(chance, 30)] if "weather" in query else [])
    for stream in streams:
        state = stream.state()
        times = state.column("event_time").cast(pa.timestamp("us", "UTC"))
        pq.write_table(state.set_column(0, "event_time", times), tmp_path / f"{stream.name}.parquet")
        spark.read.parquet(str(tmp_path / f"{stream.name}.parquet")).createOrReplaceTempView(stream.name)
    found = spark.sql(query).withColumn("event_time", unix_millis("event_time")).collect()
    runs = run(sql(query, engine="spark"), streams, batches(streams, 7))
    ours = {
        (None if moment is None else int(moment.timestamp() * 1000), *rest): n
        for (moment, *rest), n in added_up(runs).items()
    }
    assert ours == Counter(tuple(row) for row in found)


@pytest.mark.requirement("VE-02")
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_verification_with_spark_matches_single_process(made: Path, tmp_path: Path, spark: SparkSession) -> None:
    shutil.copytree(made, tmp_path / "store")
    store = open_store(StoreConfig((tmp_path / "store").as_uri()))
    head = opened(store, "hours").state.head
    assert head is not None
    here = verify_runs(store, layout("hours"), head, inputs_of(store), spread_here(store, 1))
    assert here == []
    assert verify_runs(store, layout("hours"), head, inputs_of(store), spread_with_spark(spark, store.config)) == here
    store.delete([next(key for key in sorted(contents(store)) if key.startswith(layout("hours").checkpoints))])
    spread = spread_with_spark(spark, store.config)
    assert verify_runs(store, layout("hours"), head, inputs_of(store), spread) == here, "the run before makes it again"
