"""Where records come from, and where they go."""

from __future__ import annotations

import pytest

from kubothek.lake.errors import InputError, InputMissing
from kubothek.lake.ledger.derivative import inputs_of
from kubothek.lake.ledger.derivative.lineage import dot, graph, of_record, to_json, tree
from kubothek.lake.ledger.events import SetTransform
from kubothek.lake.ledger.sources import TransformSql
from kubothek.lake.store import Store
from tests.derivative.world import APPEND, PER_CARRIER, derived, opened, pull, push, root, settle, transform


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


def test_req_04_a_graph_goes_up_to_the_roots_and_down_to_the_last(store: Store) -> None:
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


def test_what_is_not_in_the_store_is_shown_as_such(store: Store) -> None:
    built(store)
    store.delete([info.key for info in store.list("more")])
    found = graph(store, "both", down=False)
    assert [node.name for node in found.nodes if node.uuid is None] == ["m"]
    assert "m: did:odf:" in tree(found)
    assert "style=dashed" in dot(found)
    with pytest.raises(InputMissing, match="no ledger 'nothing'"):
        graph(store, "nothing")


def test_req_04_a_record_of_a_row_wise_transformation_is_traced_to_its_record(store: Store) -> None:
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


def test_req_04_a_record_of_a_group_comes_from_what_was_there(store: Store) -> None:
    built(store)
    found = of_record(store, "carriers", 0, inputs_of(store))
    assert not found.exact
    assert [(one.alias, one.first, one.last, one.offset) for one in found.sources] == [("flights", 0, 2, None)]
