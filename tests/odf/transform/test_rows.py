"""Map, filter, flatten, union: what treats each record alone."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.odf.transform.world import Stream, added_up, at, plainly, run, sql, whole

pytestmark = pytest.mark.slow

MS = pa.timestamp("ms", "UTC")
COLUMNS: list[tuple[str, pa.DataType]] = [
    ("event_time", MS),
    ("carrier", pa.string()),
    ("delay", pa.int64()),
    ("stops", pa.list_(pa.string())),
]


def flights() -> Stream:
    return Stream(
        "flights",
        COLUMNS,
        [
            (0, (at(1), "UA", 5, ("a", "b"))),
            (0, (at(2), "AA", 50, ())),
            (2, (at(1), "UA", 5, ("a", "b"))),
            (3, (at(1), "UA", 15, ("a", "c"))),
            (2, (at(2), "AA", 50, ())),
            (3, (at(2), "AA", 7, None)),
            (1, (at(1), "UA", 15, ("a", "c"))),
            (0, (at(0), None, None, ("z",))),
        ],
    )


def ops(output: pa.Table) -> list[tuple[int, object]]:
    return [(row["op"], row.get("delay", row.get("stop"))) for row in output.to_pylist()]


def test_map_query_keeps_record_operations() -> None:
    (output,) = run(sql("SELECT event_time, delay + 1 AS delay FROM flights"), [flights()], whole([flights()]))
    assert ops(output) == [(0, 6), (0, 51), (2, 6), (3, 16), (2, 51), (3, 8), (1, 16), (0, None)]
    assert output.schema.names == ["op", "event_time", "delay"]
    assert output.schema.field("event_time").type == MS


def test_filter_query_splits_correction_that_passes_only_on_one_side() -> None:
    (output,) = run(sql("SELECT * FROM flights WHERE delay > 10"), [flights()], whole([flights()]))
    assert ops(output) == [(0, 50), (0, 15), (1, 50), (1, 15)]


def test_correction_of_unselected_column_is_dropped() -> None:
    (output,) = run(sql("SELECT event_time, carrier FROM flights"), [flights()], whole([flights()]))
    assert output.column("op").to_pylist() == [0, 0, 1, 0]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT event_time, unnest(stops) AS stop FROM flights",
        "SELECT event_time, stop FROM flights, unnest(flights.stops) AS u(stop)",
        "SELECT f.event_time, u.stop FROM flights f CROSS JOIN LATERAL (SELECT unnest(f.stops) AS stop) u",
        "SELECT event_time, s.stop FROM (SELECT event_time, unnest(stops) AS stop FROM flights) s WHERE stop <> 'b'",
        "WITH x AS (SELECT event_time, stops FROM flights) SELECT event_time, unnest(stops) AS stop FROM x",
        "SELECT event_time, carrier AS stop FROM flights UNION ALL SELECT event_time, unnest(stops) FROM flights",
    ],
)
def test_unnest_of_list_matches_plain_sql(query: str) -> None:
    stream = flights()
    for cuts in (whole([stream]), [{"flights": 3}, {"flights": 4}, {"flights": 8}]):
        assert added_up(run(sql(query), [stream], cuts)) == plainly(query, [stream])


def test_unnest_of_corrected_list_corrects_changed_elements_only() -> None:
    (output,) = run(sql("SELECT event_time, unnest(stops) AS stop FROM flights"), [flights()], whole([flights()]))
    assert ops(output) == [(0, "a"), (0, "b"), (2, "b"), (3, "c"), (1, "a"), (1, "c"), (0, "z")]


def test_query_steps_use_division_semantics_of_engine() -> None:
    steps = [("late", "SELECT `event_time`, delay / 2 AS half FROM flights WHERE delay > 4")]
    for engine, halves in (("spark", [2.5, 25.0]), ("datafusion", [2, 25])):
        transform = sql(*steps, "SELECT * FROM late", engine=engine)
        (output,) = run(transform, [flights()], [{"flights": 2}])
        assert output.column("half").to_pylist() == halves
