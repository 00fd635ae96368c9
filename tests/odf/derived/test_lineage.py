"""Where records come from, and where they go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from kubothek.errors import InputError, InputMissing
from kubothek.odf.derived import inputs_of
from kubothek.odf.lineage import dot, graph, of_record, record_dot, record_tree, to_json, tree
from kubothek.odf.spec.events import SetTransform
from kubothek.odf.spec.sources import TransformSql
from kubothek.storage import Store
from tests.odf.derived.world import APPEND, PER_CARRIER, derived, opened, pull, push, root, settle, transform

pytestmark = pytest.mark.slow


def built(store: Store) -> None:
    """flights -> late -> both <- more, and carriers from flights."""
    root(store)
    root(store, "more", APPEND)
    push(store, {1: ("AA", 20), 2: ("BB", 5), 3: ("CC", 30)})
    push(store, {9: ("ZZ", 40)}, "more")
    derived(store)
    derived(store, "carriers", transform(PER_CARRIER))
    query = "SELECT event_time, id, delay FROM late UNION ALL SELECT event_time, id, delay FROM m"
    inputs = transform("", "late", ("more", "m")).inputs
    derived(store, "both", SetTransform(inputs=inputs, transform=TransformSql(engine="spark", query=query)))
    for name in ("late", "carriers", "both"):
        settle(store, name)


@pytest.mark.requirement("REQ-04")
def test_lineage_graph_reaches_roots_and_last_derivatives(store: Store) -> None:
    built(store)
    push(store, {1: ("AA", 20), 2: ("BB", 50), 3: ("CC", 30)})
    settle(store)
    found = graph(store, "late")
    assert [node.name for node in found.nodes] == ["flights", "late", "both"]
    told = tree(found).splitlines()
    assert told[0].startswith("late: derivative, 3 records")
    assert told[1] == "made of:"
    assert told[2].startswith("└─ flights: root, 5 records, block ")
    assert told[3] == "used by:"
    assert "└─ both: derivative" in told[4]
    assert "consumed up to block" in told[4]
    assert [node.name for node in graph(store, "both", down=False).nodes] == ["flights", "late", "more", "both"]
    assert {node.name for node in graph(store, "flights").nodes} == {"flights", "late", "carriers", "both"}
    data = to_json(graph(store, "both"))
    edges = {(edge["alias"], edge["offset"], edge["latest"]) for edge in data["edges"]}
    assert edges == {("flights", 4, True), ("late", 1, False), ("m", 0, True)}
    consumed = opened(store, "both").state.consumed[opened(store).id]
    assert str(consumed.block) in {edge["block"] for edge in data["edges"]}
    text = dot(graph(store, "both"))
    assert text.count(" -> ") == 3
    assert text.count("shape=cylinder") == 2


def test_lineage_input_missing_from_store_is_shown_as_missing(store: Store) -> None:
    built(store)
    store.delete([info.key for info in store.list("more")])
    found = graph(store, "both", down=False)
    assert [node.name for node in found.nodes if node.uuid is None] == ["m"]
    assert "m: did:odf:" in tree(found)
    assert "style=dashed" in dot(found)
    with pytest.raises(InputMissing, match="no ledger 'nothing'"):
        graph(store, "nothing")


@pytest.mark.requirement("REQ-04")
def test_lineage_of_row_wise_record_returns_source_record(store: Store) -> None:
    built(store)
    push(store, {1: ("AA", 20), 2: ("BB", 50), 3: ("CC", 9)})
    pull(store)
    settle(store, "both")
    last = of_record(store, "late", opened(store).state.last_offset or 0, inputs_of(store))
    assert last.exact
    (source,) = last.sources
    assert source.record is not None
    assert source.record["id"] == last.record["id"]
    assert source.record["delay"] == last.record["delay"]
    whole = [of_record(store, "both", offset, inputs_of(store)) for offset in range(3)]
    named = {one.alias for each in whole for one in each.sources if one.offset is not None}
    assert named == {"late", "m"}
    assert all(each.exact for each in whole)
    with pytest.raises(InputError, match="no record at offset 99"):
        of_record(store, "late", 99, inputs_of(store))
    with pytest.raises(InputError, match="root dataset"):
        of_record(store, "flights", 0, inputs_of(store))


@pytest.mark.requirement("REQ-04")
def test_lineage_of_grouped_record_returns_members_of_that_version(store: Store) -> None:
    built(store)
    push(store, {1: ("AA", 20), 2: ("BB", 50), 3: ("CC", 30)})
    push(store, {1: ("AA", 20), 2: ("BB", 50), 3: ("CC", 30), 4: ("BB", 7)})
    settle(store, "carriers")
    found = of_record(store, "carriers", 0, inputs_of(store))
    assert found.exact
    assert [(one.alias, one.first, one.last, one.members) for one in found.sources] == [("flights", 0, 2, [0])]
    last = of_record(store, "carriers", opened(store, "carriers").state.last_offset or 0, inputs_of(store))
    (source,) = last.sources
    assert last.record["carrier"] == "BB"
    assert (last.exact, source.members) == (True, [4, 5]), "the later half of a correction, and one that came later"
    before = of_record(store, "carriers", 3, inputs_of(store))
    assert (before.record["op"], before.record["carrier"]) == (2, "BB")
    assert before.sources[0].members == [1], "what is taken back was made of what stood before"


@pytest.mark.requirement("REQ-04")
def test_lineage_of_window_record_returns_members_of_its_time_and_key(store: Store) -> None:
    root(store, merge=APPEND)
    start = datetime(2026, 11, 22, tzinfo=UTC)
    for day in range(3):
        times = [start + timedelta(days=day, hours=hours) for hours in (1, 2, 7, 8)]
        flights = {day * 4 + n: ("AB"[n % 2], n) for n in range(4)}
        push(store, flights, event_time=pa.array(times, pa.timestamp("ms", "UTC")))
    windows = "FROM flights GROUP BY window(event_time, '6 hours'), carrier"
    queries = {
        "windows": f"SELECT window.start AS event_time, carrier, count(*) AS n {windows}",
        "hidden": f"SELECT window.start AS event_time, count(*) AS n {windows}",
        "sessions": "SELECT min(event_time) AS event_time, count(*) AS n FROM flights "
        "GROUP BY session_window(event_time, '1 hour')",
    }
    for name, query in queries.items():
        derived(store, name, transform(query))
        settle(store, name)
    found = {
        (found.record["event_time"].day, found.record["event_time"].hour, found.record["carrier"]): found
        for found in (of_record(store, "windows", offset, inputs_of(store)) for offset in range(12))
    }
    assert len(found) == 12
    assert all(each.exact for each in found.values())
    assert found[23, 6, "B"].sources[0].members == [7]
    assert sorted(n for each in found.values() for n in each.sources[0].members or ()) == list(range(12))
    hidden = of_record(store, "hidden", 0, inputs_of(store))
    assert (hidden.exact, hidden.sources[0].members) == (True, [0]), "of two that are alike, the first is of the first"
    assert of_record(store, "hidden", 1, inputs_of(store)).sources[0].members == [1]
    lone = [of_record(store, "sessions", offset, inputs_of(store)).sources[0].members for offset in range(3)]
    assert lone == [[0], [1], [2]], "an hour apart is apart"


@pytest.mark.requirement("REQ-04")
def test_lineage_through_joins_and_steps_returns_root_records(store: Store) -> None:
    """Of a group over a join of what is filtered from one root, and another root; corrected on the way."""
    root(store)
    root(store, "more", APPEND)
    push(store, {1: ("AA", 20), 2: ("BB", 5), 3: ("CC", 30), 4: ("AA", 40)})
    push(store, {7: ("AA", 1), 8: ("AA", 2), 9: ("CC", 3)}, "more")
    derived(store)
    chosen = "SELECT l.event_time, l.carrier, l.delay, m.id FROM late l JOIN more m ON l.carrier = m.carrier"
    sums = "max(event_time) AS event_time, carrier, count(*) AS n, sum(delay) AS d"
    join = f"WITH pairings AS ({chosen}) SELECT {sums} FROM pairings GROUP BY carrier"
    derived(store, "pairs", transform(join, "late", "more"))
    for name in ("late", "pairs"):
        settle(store, name)
    push(store, {1: ("AA", 20), 2: ("BB", 5), 3: ("CC", 30), 4: ("AA", 50)})
    for name in ("late", "pairs"):
        settle(store, name)
    last = opened(store, "pairs").state.last_offset or 0
    found = of_record(store, "pairs", last, inputs_of(store), recursive=True)
    assert (found.record["op"], found.record["carrier"], found.record["n"], found.record["d"]) == (3, "AA", 4, 140)
    late, more = found.sources
    assert (found.exact, more.members, more.sources) == (True, [0, 1], None)
    flights = [source.members for source in late.sources or ()]
    standing = {1: 0, 4: 5}
    assert flights == [sorted(standing.values())]
    assert [found.refused, late.refused] == [None, None]
    told = record_tree(found).splitlines()
    assert told[2:] == [
        f"├─ late, 2 records: {', '.join(map(str, late.members or ()))}",
        "│  └─ flights, 2 records: 0, 5",
        "└─ more, 2 records: 0, 1",
    ]
    assert record_dot(found).count(" -> ") == 3
    assert of_record(store, "pairs", last, inputs_of(store)).sources[0].sources is None, "it was not asked for"


@pytest.mark.requirement("REQ-04")
def test_lineage_that_cannot_be_determined_reports_reason(store: Store) -> None:
    """Late records are left out for good, even if what they would have taken back is not."""
    root(store)
    query = (
        "SELECT /*+ LATE(IGNORE), LATENESS('1 hour') */ window.start AS event_time, count(*) AS n FROM flights "
        "GROUP BY window(event_time, '1 hour')"
    )
    derived(store, "counts", transform(query))
    push(store, {1: ("AA", 20), 2: ("BB", 5)})
    settle(store, "counts")
    assert of_record(store, "counts", 0, inputs_of(store)).sources[0].members == [0, 1]
    push(store, {1: ("AA", 20)})
    settle(store, "counts")
    found = of_record(store, "counts", opened(store, "counts").state.last_offset or 0, inputs_of(store))
    (source,) = found.sources
    assert not found.exact
    assert "LATENESS leaves out records of input 'flights'" in (found.refused or "")
    assert (source.members, source.last) == (None, 2)
    assert "cannot be determined: LATENESS" in record_tree(found)
