"""The parts that do no I/O: keys, heads, deltas, conflicts, records."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubothek.errors import VersionIncomplete
from kubothek.table.log import (
    Delta,
    Everything,
    Head,
    Nothing,
    Operation,
    PartitionFile,
    Partitions,
    ReadPredicate,
    Record,
    Totals,
    partition_path,
)
from kubothek.table.log.model import keys
from kubothek.table.log.model.changes import depends_on
from kubothek.table.log.model.deltas import apply, difference, metadata_delta
from kubothek.table.log.model.head import digest
from kubothek.table.log.model.record import Distance, parse_all
from kubothek.table.log.prepare.draft import conflicts, summary

# --- keys ---


def test_object_keys_match_commit_protocol() -> None:
    assert keys.head("u") == "u.by-dataset-metadata.json"
    assert keys.common_metadata("u", "table") == "u/table/_common_metadata"
    assert (
        keys.record("u", 7, "ns/load", "0123456789ab")
        == ".kubothek/u/commits/00000000000000000007-ns%2Fload-0123456789ab.json"
    )
    assert keys.checkpoint("u", 100) == ".kubothek/u/checkpoints/00000000000000000100.json.zst"
    assert keys.marker("u", "ns/load") == ".kubothek/u/applied/ns%2Fload.json"
    assert keys.schema("u", "abc") == ".kubothek/u/schemas/abc"
    assert keys.owner("u") == ".kubothek/u/owner.json"
    assert keys.job("u", "1-2") == ".kubothek/u/jobs/1-2.json"


@given(st.text(min_size=1, max_size=300), st.integers(0, 10**19))
def test_record_key_survives_roundtrip(commit_id: str, version: int) -> None:
    key = keys.record("u", version, commit_id, "0123456789ab")
    parsed = keys.parse_record("u", key)
    assert parsed is not None
    assert (parsed.key, parsed.version, parsed.marker) == (key, version, keys.marker("u", commit_id))
    assert all(len(part.encode()) <= 255 for part in key.split("/"))


@pytest.mark.parametrize(
    "key",
    [
        None,
        7,
        "",
        "u/table/a.parquet",
        ".kubothek/other/commits/00000000000000000007-a-0123456789ab.json",
        ".kubothek/u/commits/7-a-0123456789ab.json",
        ".kubothek/u/commits/00000000000000000007-a/../../b-0123456789ab.json",
        ".kubothek/u/commits/00000000000000000007-a-0123456789ab.json.bak",
    ],
)
def test_foreign_text_as_record_key_returns_none(key: object) -> None:
    assert keys.parse_record("u", key) is None


# --- paths and read predicates ---


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("u/table/a.parquet", ""),
        ("u/table/p=1/a.parquet", "p=1"),
        ("u/table/p=a%2Fb/q=%C3%BC/a.parquet", "p=a%2Fb/q=%C3%BC"),
        ("u/table/p=a b/a.parquet", "p=a%20b"),
        ("u/table/p=x=y/a.parquet", "p=x%3Dy"),
        ("u/table/p=a/b/a.parquet", "p=a"),
    ],
)
def test_partition_path_comparison_ignores_quoting(key: str, path: str) -> None:
    assert partition_path(key) == path


@pytest.mark.parametrize(
    ("reads", "depends"),
    [
        (Nothing(), []),
        (Everything(), ["", "p=1", "p=1/q=2", "p=10"]),
        (Partitions(frozenset({"p=1"})), ["p=1", "p=1/q=2"]),
        (Partitions(frozenset({"p=1/q=2"})), ["p=1/q=2"]),
        (Partitions(frozenset({"p=2"})), []),
        (Partitions(frozenset({""})), ["", "p=1", "p=1/q=2", "p=10"]),
    ],
)
def test_read_predicate_matches_complete_path_components(reads: ReadPredicate, depends: list[str]) -> None:
    assert [path for path in ("", "p=1", "p=1/q=2", "p=10") if depends_on(reads, path)] == depends


# --- heads and deltas ---


def head_of(files: dict[str, str], **more: object) -> Head:
    return Head("u", {label: {"files": {"table": key}} for label, key in files.items()}, **more)  # type: ignore[arg-type]


labels = st.sampled_from("abcdefgh")
tables = st.lists(st.tuples(labels, st.sampled_from("12")), max_size=8).map(dict)


@given(tables, tables)
def test_head_difference_applied_to_old_head_yields_new_head(before: dict[str, str], after: dict[str, str]) -> None:
    old, new = head_of(before), head_of(after)
    added, positions, removed = difference(old, new)
    delta = Delta(
        added=tuple(PartitionFile(label, after[label], 1, 1) for label in added),
        positions=positions,
        removed=removed,
    )
    result = apply(old, delta, 2, "c")
    assert list(result.files().items()) == list(after.items())
    if before == after and list(before) == list(after):
        assert delta.entries == 0


def test_head_difference_of_append_has_no_positions() -> None:
    assert difference(head_of({"a": "1"}), head_of({"a": "1", "b": "2"})) == (("b",), None, ())


@given(
    st.dictionaries(labels, st.integers()),
    st.dictionaries(labels, st.integers()),
)
def test_metadata_delta_applied_to_old_metadata_yields_new_metadata(
    before: dict[str, int], after: dict[str, int]
) -> None:
    to_set, dropped = metadata_delta(before, after)
    result = apply(head_of({}, metadata=before), Delta(metadata=to_set, dropped=dropped), 2, "c")
    assert {k: v for k, v in result.metadata.items() if not k.startswith("kubothek")} == after


def test_rendered_head_is_kartothek_version_4() -> None:
    head = head_of({"p=1/a": "u/table/p=1/a.parquet"}, partition_keys=("p",), metadata={"ü": [1]})
    assert json.loads(head.render()) == {
        "dataset_metadata_version": 4,
        "dataset_uuid": "u",
        "metadata": {"ü": [1]},
        "partitions": {"p=1/a": {"files": {"table": "u/table/p=1/a.parquet"}}},
        "partition_keys": ["p"],
    }
    assert Head.parse("u", head.render()) == head


def test_foreign_metadata_with_nan_is_rendered_as_null() -> None:
    head = Head.parse("u", b'{"dataset_metadata_version": 4, "dataset_uuid": "u", "metadata": {"a": NaN}}')
    assert head.implicit
    assert b'"a":null' in head.render()


def test_missing_partition_keys_are_inferred_from_first_file() -> None:
    document = {
        "dataset_metadata_version": 4,
        "dataset_uuid": "u",
        "partitions": {"x": {"files": {"core": "u/core/p%20q=1/r=2/x.parquet"}}},
    }
    head = Head.parse("u", json.dumps(document).encode())
    assert (head.partition_keys, head.table) == (("p q", "r"), "core")
    new = apply(head, Delta(added=(PartitionFile("y", "k", 1, 1),)), 2, "c")
    assert new.partitions["y"] == {"files": {"core": "k"}}


# --- conflicts ---

A, B = "u/table/p=1/a.parquet", "u/table/p=2/b.parquet"
BASE = head_of({"a": A, "b": B})


def test_unchanged_head_never_conflicts() -> None:
    assert found(BASE, reads=Everything(), removed={"a": A}) == ()


@pytest.mark.parametrize(
    ("now", "reads", "removed", "expected"),
    [
        ({"b": B}, Nothing(), {"a": A}, ["a.parquet is no longer"]),
        ({"a": "u/table/p=1/x.parquet", "b": B}, Nothing(), {"a": A}, ["a.parquet is no longer"]),
        ({"b": B}, Partitions(frozenset({"p=1"})), {}, ["partition p=1 changed"]),
        ({"b": B}, Partitions(frozenset({"p=2"})), {}, []),
        ({"b": B}, Everything(), {}, ["partition p=1 changed"]),
        ({"b": B}, Nothing(), {"b": B}, []),
        ({"a": A, "b": B, "c": "u/table/p=3/c.parquet"}, Everything(), {}, ["partition p=3 changed"]),
        ({"a": A, "b": B}, Everything(), {"a": A}, []),
    ],
)
def test_conflict_rules_report_expected_conflicts(
    now: dict[str, str], reads: ReadPredicate, removed: dict[str, str], expected: list[str]
) -> None:
    messages = found(head_of(now), reads=reads, removed=removed)
    assert len(messages) == len(expected)
    assert all(part in message for part, message in zip(expected, messages, strict=True))


def test_long_conflict_list_is_truncated() -> None:
    assert summary([str(n) for n in range(12)]).endswith("; 9; and 2 more")


def found(now: Head, *, reads: ReadPredicate, removed: dict[str, str]) -> tuple[str, ...]:
    return conflicts(BASE, now, removed=removed, reads=reads)


# --- records ---


@pytest.mark.parametrize("reads", [Nothing(), Everything(), Partitions(frozenset({"p=1", "p=2"}))])
@pytest.mark.parametrize("positions", [None, (0, 2)])
def test_commit_record_survives_roundtrip(reads: ReadPredicate, positions: tuple[int, ...] | None) -> None:
    record = a_record(reads, positions)
    assert Record.parse(record.key, record.render()) == record
    assert record.added == Totals(rows=4, files=2, bytes=6, partitions=1)


def a_record(reads: ReadPredicate, positions: tuple[int, ...] | None) -> Record:
    key, parent, lost = (keys.record("d", version, "x", "0" * 12) for version in (3, 2, 1))
    return Record(
        key=key,
        version=3,
        id="ü/1",
        digest="d",
        operation=Operation.REPLACE,
        time=datetime(2026, 1, 1, 12, tzinfo=UTC),
        by="me",
        parent=parent,
        restores=None,
        recovers=lost,
        delta=Delta(
            added=(PartitionFile("a", "d/table/a.parquet", 1, 2), PartitionFile("b", "d/table/b.parquet", 3, 4)),
            positions=positions,
            removed=(("c", "d/table/c.parquet"),),
            indices={"x": "d/indices/x/i", "y": None},
            metadata={"m": {"n": [1]}},
            dropped=("o",),
            partition_keys=("p",),
            schema="hash",
        ),
        reads=reads,
        totals=Totals(1, 2, 3, 4),
        since_checkpoint=Distance(5, 6),
        head_digest=digest(b""),
    )


@pytest.mark.parametrize(
    "change",
    [
        {"version": "3"},
        {"removed": [["c", "other/table/c.parquet"]]},
        {"added": [["a", "d/table/a", 1, 2.5]]},
        {"format": 2},
    ],
)
def test_records_parsed_together_are_those_that_parse_alone(change: dict[str, object]) -> None:
    record = a_record(Nothing(), None)
    data = record.render()
    damaged = json.dumps(json.loads(data) | change).encode()
    with pytest.raises(VersionIncomplete):
        Record.parse(record.key, damaged)
    other = keys.record("d", 4, "x", "0" * 12)
    assert parse_all({record.key: data, other: damaged}) == {record.key: record}
    assert parse_all({record.key: damaged}) == {}
    assert parse_all({record.key: data, other: data}) == {record.key: record, other: replace(record, key=other)}


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"format": 1}', b'{"format": 2}'])
def test_invalid_commit_record_raises_version_incomplete(data: bytes) -> None:
    with pytest.raises(VersionIncomplete, match="k: "):
        Record.parse("k", data)
