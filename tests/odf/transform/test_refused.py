"""What is refused, by name, before a database sees it; and what kind of columns come out of what is not."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kubothek.errors import FormatInvalid, TransformInvalid
from kubothek.odf import Vocabulary
from kubothek.odf.spec.sources import TemporalTable, TransformSql
from kubothek.odf.transform import validate
from tests.hostile.conftest import cases
from tests.odf.transform.streams import FLIGHTS, WEATHER
from tests.odf.transform.world import NAMES, Stream, at, run, sql

pytestmark = pytest.mark.slow

INPUTS = {"flights": Stream("flights", FLIGHTS).schema, "weather": Stream("weather", WEATHER).schema}
GROUPED = "SELECT max(event_time) AS event_time, {} AS x FROM flights GROUP BY carrier"
PARENTHESES = f"SELECT {'(' * 20_000}1{')' * 20_000}"


def checked(transform: TransformSql) -> pa.Schema:
    return validate(transform, INPUTS, dict.fromkeys(INPUTS, Vocabulary()), NAMES)


@cases("statements", every=4)
def test_hostile_statements_are_refused(case: dict[str, Any]) -> None:
    text = case["sql"].replace("{dir}", "/tmp").replace("{parentheses}", PARENTHESES)
    with pytest.raises(TransformInvalid):
        checked(sql(text))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT event_time, now() AS t FROM flights", r"now\(\) is not decided by the inputs alone.*a column of"),
        ("SELECT event_time, current_date AS t FROM flights", "is not decided by the inputs alone"),
        ("SELECT event_time, CURRENT_TIMESTAMP AS t FROM flights", "current_timestamp is not decided"),
        ("SELECT event_time, flights.rowid AS t FROM flights", "rowid is not decided"),
        ("SELECT event_time FROM flights WHERE random() < 0.5", r"random\(\)"),
        ("SELECT event_time, uuid() AS t FROM flights", r"uuid\(\)"),
        ("SELECT event_time, version() AS t FROM flights", r"version\(\)"),
        ("SELECT * FROM flights USING SAMPLE 5", "sample"),
        ("SELECT * FROM (SELECT * FROM '/etc/passwd')", "no input or earlier query '/etc/passwd'"),
        ("SELECT event_time, (SELECT max(wind) FROM weather) AS w FROM flights", "join instead"),
        ("SELECT * FROM flights WHERE carrier IN (SELECT carrier FROM weather)", "join instead"),
        ("SELECT * FROM flights ORDER BY event_time", "leave it out"),
        ("SELECT * FROM flights LIMIT 5", r"QUALIFY row_number\(\)"),
        ("SELECT DISTINCT ON (carrier) * FROM flights", r"QUALIFY row_number\(\)"),
        ("SELECT * FROM flights EXCEPT SELECT * FROM flights", "EXCEPT"),
        ("SELECT * FROM flights f JOIN weather w ON f.delay < w.wind", "needs columns that are equal"),
        ("SELECT * FROM flights f RIGHT JOIN weather w USING (carrier)", "RIGHT JOIN"),
        (
            "SELECT f.* FROM flights f JOIN weather w USING (carrier) JOIN weather v USING (carrier)",
            "one after the other",
        ),
        ("SELECT * FROM flights NATURAL JOIN weather", "NATURAL JOIN"),
        (GROUPED.format("any_value(delay)"), r"any_value\(\) depends on the order.*min"),
        (GROUPED.format("first(delay)"), r"arg_min"),
        (GROUPED.format("list(delay)"), r"list\(x ORDER BY x\)"),
        (GROUPED.format("string_agg(carrier, ',' ORDER BY delay)"), "depends on the order"),
        (GROUPED.format("approx_count_distinct(delay)"), "approx_count_distinct"),
        (GROUPED.format("stddev(ratio)"), "scale the values"),
        (GROUPED.format("kurtosis(delay)"), "there are count, sum"),
        (GROUPED.format("delay"), "column delay has to be in GROUP BY"),
        (GROUPED.format("sum(delay) OVER ()"), "OVER in a SELECT with GROUP BY"),
        ("SELECT carrier, count(*) AS n FROM flights GROUP BY ROLLUP (carrier)", "UNION ALL of steps"),
        ("SELECT event_time, sum(ratio) OVER (PARTITION BY carrier) AS s FROM flights", "cast to DECIMAL"),
        ("SELECT event_time, window(event_time, '0 days') AS w FROM flights GROUP BY ALL", "more than nothing"),
        ("SELECT event_time, HOP(event_time, '2 days', '1 day') AS w FROM flights GROUP BY ALL", "slide no more"),
        ("SELECT carrier FROM flights", "gives no column event_time"),
        ("SELECT carrier AS event_time FROM flights", "timestamps or dates"),
        ("SELECT event_time, delay AS op FROM flights", "the ledger's own"),
        ("SELECT event_time, delay, delay AS Delay FROM flights", "twice"),
        ("SELECT event_time, op AS o FROM flights", '"op" not found'),
        ("SELECT event_time, __weight AS o FROM flights", "the engine's own"),
        ("SELECT event_time, event_time - event_time AS span FROM flights", "span"),
        ("SELECT event_time FROM flights; SELECT 1", "exactly one SELECT"),
        ("SELECT event_time FROM flights AS OF VERSION 3", "no earlier versions"),
    ],
)
def test_unsupported_sql_is_refused_with_reason(query: str, message: str) -> None:
    with pytest.raises(TransformInvalid, match=message):
        checked(sql(query))


def test_unknown_engine_and_invalid_steps_or_keys_are_refused() -> None:
    with pytest.raises(TransformInvalid, match="no engine 'oracle'"):
        checked(sql("SELECT * FROM flights", engine="oracle"))
    with pytest.raises(TransformInvalid, match="needs an alias"):
        checked(sql("SELECT * FROM flights", "SELECT * FROM flights"))
    with pytest.raises(TransformInvalid, match="exists already"):
        checked(sql(("Flights", "SELECT * FROM flights"), "SELECT * FROM flights"))
    query = "SELECT f.* FROM flights f JOIN weather FOR SYSTEM_TIME AS OF f.event_time AS w ON f.carrier = w.carrier"
    key = TemporalTable(name="weather", primary_key=("carrier", "wind"))
    with pytest.raises(TransformInvalid, match="equate wind, which is in its primary key"):
        checked(sql(query, tables=[key]))


def test_transform_output_schema_is_derived_from_query() -> None:
    query = (
        "SELECT delay + 1 AS more, window.start AS event_time, sum(delay) AS s, avg(delay) AS a, sum(fare) AS f, "
        "count(*) AS n, list(carrier ORDER BY carrier) AS l, window.end AS until FROM flights "
        "GROUP BY window(event_time, '1 day'), delay + 1"
    )
    kinds: list[tuple[str, pa.DataType]] = [
        ("event_time", pa.timestamp("ms", "UTC")),
        ("more", pa.int64()),
        ("s", pa.int64()),
        ("a", pa.float64()),
        ("f", pa.decimal128(38, 2)),
        ("n", pa.int64()),
        ("l", pa.list_(pa.string())),
        ("until", pa.timestamp("us", "UTC")),
    ]
    assert checked(sql(query)) == pa.schema(kinds)


def test_checkpoint_that_is_damaged_or_of_other_query_is_refused() -> None:
    stream = Stream("flights", FLIGHTS, [(0, (at(1), "UA", 1, 0.5, None))])
    left: list[bytes] = []
    run(sql(GROUPED.format("sum(delay)")), [stream], [{"flights": 1}], checkpoints=left)
    cuts = [{"flights": 1}]
    for broken, message in ((left[0][:-3], "not a state of this engine"), (b"", "empty"), (left[0], "another query")):
        with pytest.raises(FormatInvalid, match=message):
            run(sql(GROUPED.format("max(delay)")), [stream], cuts, first=broken)
