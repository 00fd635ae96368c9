"""The protocol keeps its promises in every interleaving, and each of its rules is needed for that.

docs/commit-protocol.md names the rules and the promises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

import pytest

from tests.protocol_model import scenarios
from tests.protocol_model.engine import Explorer, Op, Program, Store, Task, Violation
from tests.protocol_model.programs import Rules
from tests.protocol_model.scenarios import Scenario
from tests.sampling import SOAK

pytestmark = pytest.mark.slow

PROTOCOL = Rules()
LARGE = {
    scenarios.plateau_beside_two_writers,
    scenarios.plateau_beside_two_attempts,
    scenarios.kartothek_beside_two_writers,
    scenarios.kartothek_beside_two_attempts,
    scenarios.collector_beside_a_writer,
    scenarios.collector_beside_a_reader,
    scenarios.collector_beside_an_untagger,
    scenarios.two_moves_and_a_compaction,
    scenarios.two_settle_overwritten_moves,
}
"""Casts whose exploration takes a second or more: a soak's, as nothing but the model decides what comes of it. What is
wrong with each when a rule is left out is looked for always.
"""

FAULTS: list[tuple[set[str], Callable[[Rules], Scenario], str]] = [
    ({"swap_is_conditional"}, scenarios.two_attempts_and_a_writer, "drops .* silently"),
    ({"swap_is_conditional"}, scenarios.plateau_beside_two_writers, "drops .* silently"),
    ({"asks_marker_first"}, scenarios.two_attempts_and_a_writer, "'a' are in the head twice"),
    ({"asks_marker_after_a_lost_swap"}, scenarios.two_attempts_and_a_writer, "'a' are in the head twice"),
    ({"marks_the_head_before_building_on_it"}, scenarios.two_attempts_and_a_writer, "'a' are in the head twice"),
    ({"marks_after_the_swap"}, scenarios.two_attempts_and_a_writer, "neither in the history nor noted"),
    ({"reports_after_the_marker"}, scenarios.plateau_beside_two_writers, "lost without a word"),
    ({"checks_labels"}, scenarios.two_compactions_and_an_append, "'r' are in the head twice"),
    ({"checks_labels"}, scenarios.rewrites, "'r' were deleted, and are back"),
    ({"checks_reads"}, scenarios.rewrites, "computed from other files"),
    ({"checks_reads"}, scenarios.replaces, "computed from other files"),
    ({"looks_for_keys_in_new_files"}, scenarios.merges, "'k' are in the head twice"),
    (
        {"checks_labels", "looks_for_keys_in_new_files"},
        scenarios.merge_beside_a_compaction,
        "are in the head twice|were deleted, and are back",
    ),
    ({"swap_is_conditional"}, scenarios.replaces, "drops .* silently|computed from other files"),
    (
        {"only_a_creation_starts_on_a_tombstone"},
        scenarios.unowned_dataset_dropped_and_made_again,
        "brings back a dataset that was deleted",
    ),
    (
        {"ends_with_the_dataset_it_began_on"},
        scenarios.unowned_dataset_dropped_and_made_again,
        "begun on another dataset of that name|brings back a dataset",
    ),
    ({"ends_with_the_dataset_it_began_on"}, scenarios.creations_beside_a_restore, "begun on another dataset"),
    ({"restores_only_a_tombstone"}, scenarios.creations_beside_a_restore, "drops .* silently|restores a dataset over"),
    ({"swap_is_conditional"}, scenarios.creations_beside_a_restore, "drops .* silently|restores|begun on another"),
    ({"looks_for_lost_commits"}, scenarios.plateau_beside_two_writers, "neither in the history nor noted"),
    ({"looks_for_lost_commits"}, scenarios.kartothek_beside_two_writers, "neither in the history nor noted"),
    ({"marks_what_a_foreign_head_builds_on"}, scenarios.plateau_beside_two_attempts, "'a' are in the head twice"),
    ({"voids_absent_markers"}, scenarios.plateau_beside_two_writers, "neither in the history nor noted"),
    ({"heeds_void_markers"}, scenarios.plateau_beside_two_writers, "neither in the history nor noted"),
    (
        {"looks_at_the_head_before_it_replaces_a_marker"},
        scenarios.overwritten_while_it_is_marked_again,
        "neither in the history nor noted",
    ),
    ({"confirms_in_new_bytes"}, scenarios.overwritten_while_it_is_marked_again, "neither in the history nor noted"),
    (
        {"confirms_in_new_bytes"},
        scenarios.overwritten_from_further_up_while_it_is_marked_again,
        "neither in the history nor noted",
    ),
    ({"confirms_while_the_head_is_there"}, scenarios.overtaken_while_it_confirms, "neither in the history nor noted"),
    ({"voids_differ"}, scenarios.plateau_a_second_time, "neither in the history nor noted"),
    ({"numbers_above_all_records"}, scenarios.overwritten_by_two_more, "is not newer than version"),
    ({"fences_deleted_incarnations"}, scenarios.deleted_and_made_again, "incarnation that was deleted"),
    ({"fences_deletions"}, scenarios.two_deletions_and_an_heir, "incarnation that was deleted|lost without a word"),
    ({"ignores_markers_of_deleted_incarnations"}, scenarios.deleted_and_made_again, "lost without a word"),
    ({"refuses_when_too_slow"}, scenarios.collector_beside_a_writer, "which does not exist"),
    ({"keeps_young_files"}, scenarios.collector_beside_a_writer, "which does not exist"),
    ({"takes_the_time_before_it_looks"}, scenarios.collector_beside_a_writer, "which does not exist"),
    ({"keeps_files_that_were_current_lately"}, scenarios.collector_beside_a_reader, "does not find f"),
    ({"keeps_files_that_were_current_lately"}, scenarios.collector_beside_plateau, "which does not exist"),
    ({"allows_for_the_time_between_record_and_swap"}, scenarios.collector_beside_a_reader, "does not find f"),
    (
        {"keeps_files_of_young_records", "allows_for_the_time_between_record_and_swap"},
        scenarios.collector_beside_a_restore,
        "which does not exist",
    ),
    ({"raises_the_horizon_first"}, scenarios.collector_beside_a_rollback, "which does not exist"),
    ({"rollback_heeds_the_horizon"}, scenarios.collector_beside_a_rollback, "which does not exist"),
    ({"restore_heeds_the_grace"}, scenarios.collector_beside_a_restore, "which does not exist"),
    ({"tags_heed_the_horizon"}, scenarios.collector_beside_a_tagger, "has a tag, and its file o does not exist"),
    ({"keeps_tagged_versions"}, scenarios.collector_beside_an_untagger, "has a tag, and its file o does not exist"),
    ({"keeps_versions_that_had_a_tag_lately"}, scenarios.collector_beside_an_untagger, "does not find o"),
    ({"merges_tags_again"}, scenarios.plateau_beside_a_tagger, "tags were reported, and are lost"),
    ({"serialises_moves"}, scenarios.two_moves_and_a_compaction, "forks the chain"),
    ({"swap_is_conditional"}, scenarios.one_ingest_twice, "drops .* silently|forks the chain|a block twice"),
    ({"asks_marker_first"}, scenarios.one_ingest_twice, "in the head twice|a block twice"),
    ({"notes_drift"}, scenarios.plateau_beside_two_moves, "is not the view of the chain .*, without a word"),
    ({"heeds_drift"}, scenarios.plateau_beside_two_moves, "merged with a table that is not the view"),
    ({"merges_blocks_again_on_the_same_chain_only"}, scenarios.two_settle_overwritten_moves, "forks the chain"),
    ({"keeps_what_an_adoption_replaced"}, scenarios.collector_beside_a_reader_of_a_foreign_head, "does not find i"),
    ({"asks_the_grant_first"}, scenarios.writer_whose_permission_is_withdrawn, "whom nobody permitted"),
    (
        {"asks_the_grant_of_the_head_that_it_replaces"},
        scenarios.writer_whose_permission_is_withdrawn,
        "does not permit it",
    ),
    (
        {"ends_with_the_incarnation_of_the_grant"},
        scenarios.writer_whose_owner_is_made_again,
        "does not permit it",
    ),
    ({"merges_grants_again"}, scenarios.plateau_beside_a_withdrawal, "after its permission was withdrawn"),
    ({"takes_the_reference_forward_only"}, scenarios.two_moves_and_a_compaction, "refs/head is taken back"),
]
"""Rules left out, where that shows, and what then happens."""


@pytest.mark.parametrize(
    "scenario", [cast for cast in scenarios.ALL if SOAK or cast not in LARGE], ids=lambda scenario: scenario.__name__
)
def test_protocol_keeps_invariants_in_every_interleaving(scenario: Callable[[Rules], Scenario]) -> None:
    explored = scenario(PROTOCOL).explore()
    assert explored.ends > 0, "nobody ever finished: the scenario shows nothing"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("left_out", "scenario", "finding"),
    FAULTS,
    ids=lambda value: "+".join(sorted(value)) if isinstance(value, set) else getattr(value, "__name__", ""),
)
def test_protocol_without_rule_violates_invariant(
    left_out: set[str], scenario: Callable[[Rules], Scenario], finding: str
) -> None:
    faulty = replace(PROTOCOL, **dict.fromkeys(left_out, False))
    with pytest.raises(Violation, match=finding) as found:
        scenario(faulty).explore()
    assert 3 <= len(found.value.trace) <= 45, str(found.value)


def test_protocol_faults_cover_every_rule() -> None:
    assert set().union(*(left_out for left_out, _, _ in FAULTS)) == {rule.name for rule in fields(Rules)}


def test_young_record_rules_each_protect_restore_alone() -> None:
    """Each of the two rules protects it alone; together with the fault above this is why both are there."""
    for left_out in ("keeps_files_of_young_records", "allows_for_the_time_between_record_and_swap"):
        scenarios.collector_beside_a_restore(replace(PROTOCOL, **{left_out: False})).explore()


def test_protocol_with_swap_slower_than_half_grace_violates_invariant() -> None:
    with pytest.raises(Violation, match="which does not exist"):
        scenarios.collector_with_nothing_to_expire(PROTOCOL, prompt=False).explore()


def test_protocol_with_foreign_write_slower_than_grace_violates_invariant() -> None:
    with pytest.raises(Violation, match="which does not exist"):
        scenarios.collector_beside_plateau(PROTOCOL, in_time=False).explore()


# --- the explorer itself ---


def _increment(times: int) -> Program:
    """A counter without compare-and-swap."""
    value = yield Op("GET", lambda store: iter([(store.get("n", 0), store)]))
    yield Op(f"PUT {value + 1}", lambda store: iter([(None, {**store, "n": value + 1})]))
    return Task(_increment, (times - 1,)) if times > 1 else None


def test_explorer_visits_every_interleaving() -> None:
    ends = set()
    tasks = {"A": Task(_increment, (2,)), "B": Task(_increment, (2,))}
    Explorer({}, tasks, lambda _store: None, check_end=lambda store: ends.add(store["n"])).run()
    assert ends == {2, 3, 4}


def test_explorer_finds_shortest_trace() -> None:
    def never_two(store: Store) -> None:
        if store.get("n") == 2:
            raise Violation("two")

    with pytest.raises(Violation, match="two") as found:
        Explorer({}, {"A": Task(_increment, (1,)), "B": Task(_increment, (1,))}, never_two).run()
    assert found.value.trace[-1].endswith("PUT 2")
    assert len(found.value.trace) == 4


def test_explorer_above_state_limit_raises_error() -> None:
    with pytest.raises(RuntimeError, match="more than 3 states"):
        Explorer({}, {"A": Task(_increment, (5,))}, lambda _store: None).run(limit=3)
