"""Real Spark SQL says what a derivative's answer is: the same text, over the states of the same inputs."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.odf.transform.streams import flights, random_cuts, weather
from tests.odf.transform.world import added_up, freeze, run, sql

pytestmark = pytest.mark.slow

QUERIES = {
    "windows": (
        "SELECT window.start AS event_time, window.end AS until, carrier, count(*) AS n, sum(delay) AS s, "
        "avg(ratio) AS r, min(ratio) AS least, count(DISTINCT delay) AS d, count(*) FILTER (WHERE delay > 2) AS late, "
        "bool_or(delay > 5) AS some, max_by(delay, delay) AS m FROM flights "
        "GROUP BY window(event_time, '6 hours'), carrier HAVING count(*) > 1"
    ),
    "hopping": (
        "SELECT window.end AS event_time, carrier, sum(delay) AS s FROM flights "
        "GROUP BY window(event_time, '12 hours', '4 hours'), carrier"
    ),
    "sessions": (
        "SELECT session_window.start AS event_time, session_window.end AS until, carrier, count(delay) AS n "
        "FROM flights GROUP BY session_window(event_time, '3 hours'), carrier"
    ),
    "months": (
        "SELECT date_trunc('month', event_time) AS event_time, carrier, avg(delay) AS a FROM flights GROUP BY 1, 2"
    ),
    "top": (
        "SELECT event_time, carrier, delay FROM (SELECT *, rank() OVER (PARTITION BY carrier ORDER BY delay DESC) AS r "
        "FROM flights WHERE delay IS NOT NULL) AS ranked WHERE r <= 2"
    ),
    "join": (
        "SELECT f.event_time, f.carrier, delay, wind, delay / 2 AS half FROM flights f LEFT JOIN weather w "
        "ON f.carrier = w.carrier AND f.event_time BETWEEN w.event_time - INTERVAL '2 hours' AND w.event_time"
    ),
}


@pytest.mark.parametrize("name", QUERIES)
def test_derivative_result_equals_spark_result(spark: SparkSession, name: str) -> None:
    query = QUERIES[name]
    chance = random.Random(name)
    streams = [flights(chance, 40)] + ([weather(chance, 30)] if "weather" in query else [])
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    for stream in streams:
        spark.createDataFrame(stream.state()).createOrReplaceTempView(stream.name)
    answer = spark.sql(query).toArrow()
    wanted = Counter(_plain(row) for row in zip(*(column.to_pylist() for column in answer.columns), strict=True))
    found = added_up(run(sql(query, engine="spark"), streams, random_cuts(chance, streams, 3), threads=1))
    assert Counter({_plain(row): count for row, count in found.items()}) == wanted


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return freeze([value.replace(tzinfo=None) if isinstance(value, datetime) else value for value in row])
