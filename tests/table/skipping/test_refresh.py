"""Metadata over thousands of commits: bounded in number, exact for the head, and safe for real Xskipper meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kubothek.errors import SkippingInvalid
from kubothek.storage import ObjectInfo
from kubothek.table.skipping import names
from kubothek.table.skipping.entries import EntrySchema, definitions_tag, fields
from kubothek.table.skipping.files.reading import load, load_location
from kubothek.table.skipping.files.writing import write
from kubothek.table.skipping.model import Encryption, IndexDefinition, Part, SkippingState, require_footer_key
from kubothek.table.skipping.refresh import merged, tidied
from kubothek.table.skipping.sentinel import pause, resume
from tests.table.log.memory import MemoryStore

SOAK = bool(os.environ.get("KUBOTHEK_SOAK"))
COLUMNS: dict[str, pa.DataType] = {"i": pa.int64(), "s": pa.string(), "t": pa.timestamp("us")}
TABLE = pa.schema(COLUMNS)
DEFINITIONS = (IndexDefinition("MinMax", ("i",)), IndexDefinition("ValueList", ("s",)))
OTHER = (*DEFINITIONS, IndexDefinition("MinMax", ("t",)))


def entries(schema: EntrySchema, numbers: Sequence[int]) -> pa.Table:
    """The entries of files of these numbers."""
    columns: list[list[Any]] = [[f"u/t/{n}.parquet" for n in numbers], [1000 + n for n in numbers]]
    for field in schema.indices:
        if pa.types.is_list(field.type):
            columns.append([[str(n), str(n + 1)] for n in numbers])
        else:
            moment = pa.types.is_timestamp(field.type.field(0).type)
            ends = [datetime(2020, 1, 1) + timedelta(n) if moment else n for n in numbers]
            columns.append([{"min": end, "max": end} for end in ends])
    arrays: list[Any] = [pa.array(c, f.type) for c, f in zip(columns, schema.arrow, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema.arrow)


def numbers_in(store: MemoryStore, parts: Sequence[Part]) -> list[int]:
    """Of the files that have entries, which are checked on the way."""
    found = []
    for part in parts:
        table = load(store, part)
        assert table.num_rows == part.rows
        for row in table.to_pylist():
            number = int(row["key"].removeprefix("u/t/").removesuffix(".parquet"))
            assert row["modified"] == 1000 + number
            assert row["i_minmax_1"] == {"min": number, "max": number}
            assert row["s_valuelist_1"] == [str(number), str(number + 1)]
            found.append(number)
    return found


def test_skipping_metadata_over_many_commits_stays_small() -> None:
    """Each commit adds a file; now and then files go. In the end there are few parts, which load about as fast as
    freshly written ones, without most of the entries of what is gone.
    """
    commits = 10_000 if SOAK else 120
    store, schema = MemoryStore(), fields(DEFINITIONS, TABLE)
    live: set[int] = set()
    parts: tuple[Part, ...] = ()
    written = 0

    def holds(key: str) -> bool:
        return int(key[4:-8]) in live

    for n in range(commits):
        live.add(n)
        if n % 10 == 9:
            live.difference_update(range(n - 9, n - 5))
        added = write(store, "u", "t", schema, entries(schema, [n]))
        before = len(store.objects)
        parts = tidied(store, "u", "t", schema, (*parts, added), holds)
        assert len(store.objects) - before <= 1
        written += sum(part.rows for part in parts[-1:])
        assert len(parts) <= 3 * commits.bit_length() // 2 + 1
        kept = {key for part in parts for key in part.keys}
        if n % 50 == 0:  # the collector
            store.delete([key for key in store.objects if key not in kept])
    assert written <= commits * commits.bit_length() / 2
    found = numbers_in(store, parts)
    assert len(found) == len(set(found))
    assert live <= set(found)
    assert len(found) <= 1.2 * len(live) + 50

    fresh = [write(store, "u", "t", schema, entries(schema, sorted(live)))]
    for these in (fresh, parts):
        for part in these:
            load(store, part)
    took = [min(_seconds(store, these) for _ in range(5)) for these in (fresh, parts)]
    if SOAK:
        assert took[1] <= 2 * took[0], took
    whole = merged(store, "u", "t", schema, parts, holds=holds)
    assert len(whole) == 1
    assert sorted(numbers_in(store, whole)) == sorted(live)


def _seconds(store: MemoryStore, parts: Sequence[Part]) -> float:
    start = time.perf_counter()
    for part in parts:
        load(store, part)
    return time.perf_counter() - start


def test_merge_keeps_last_duplicate_and_omits_unreadable_parts() -> None:
    store, schema = MemoryStore(), fields(DEFINITIONS, TABLE)
    first, second, lost, third = (
        write(store, "u", "t", schema, entries(schema, numbers)) for numbers in ([1, 2], [2, 3], [4], [])
    )
    other_schema = fields(OTHER, TABLE)
    other = write(store, "u", "t", other_schema, entries(other_schema, [7]))
    store.delete(lost.keys)
    parts = (first, other, lost, second, third)
    found = merged(store, "u", "t", schema, parts, holds=lambda key: key != "u/t/1.parquet")
    assert found[0] == other
    assert [part.rows for part in found] == [1, 2]
    assert numbers_in(store, found[1:]) == [2, 3]
    times = {"u/t/2.parquet": 7}
    moved = merged(store, "u", "t", schema, found[1:], times=times)
    assert load(store, moved[0]).column("modified").to_pylist() == [7, 0]
    assert merged(store, "u", "t", schema, [lost]) == ()
    # Both sets of the other wish are merged, each index exact.
    again = write(store, "u", "t", other_schema, entries(other_schema, [8]))
    (both,) = merged(store, "u", "t", other_schema, [other, again])
    bounds: list[Any] = load(store, both).column("t_minmax_1").to_pylist()
    assert [row["min"] for row in bounds] == [
        datetime(2020, 1, 8),
        datetime(2020, 1, 9),
    ]


def test_large_skipping_parts_are_left_to_maintenance() -> None:
    store, schema = MemoryStore(), fields(DEFINITIONS, TABLE)
    part = write(store, "u", "t", schema, entries(schema, [1]))
    large = [Part(part.key, 40_000, 1 << 20, None) for _ in range(6)]
    heavy = [Part(part.key, 2, 5 << 20, None) for _ in range(6)]
    for parts in (large, heavy):
        assert tidied(store, "u", "t", schema, parts, lambda _: True) == tuple(parts)


def test_xskipper_skips_nothing_during_skipping_change() -> None:
    """Whatever files of two wishes lie there, the first by name has no index; it goes when only one wish is left."""
    store = MemoryStore()
    old, new = fields(DEFINITIONS, TABLE), fields(OTHER, TABLE)
    pause(store, "u", "t", old)
    assert not store.objects  # nothing to pause
    before = write(store, "u", "t", old, entries(old, [1]))
    pause(store, "u", "t", new)
    pause(store, "u", "t", new)
    after = write(store, "u", "t", new, entries(new, [1]))
    late = write(store, "u", "t", old, entries(old, [2]))  # by a writer that knows the old wish
    place = names.location("u")
    listed = [info.key for info in store.list(place)]
    assert len(listed) == 4
    first = pq.ParquetFile(pa.BufferReader(store.get(listed[0])))
    assert first.schema_arrow.names == ["obj_name"]
    assert first.metadata.num_rows == 0
    assert b"tableIdentifier" not in b"".join((first.metadata.metadata or {}).values())
    assert load_location(store, place).rows.num_rows == 2

    now, grace = datetime.now(UTC), timedelta(hours=1)
    tag = definitions_tag(new)
    assert not resume(store, "u", tag, {before.key}, now=now + 2 * grace, grace=grace)
    assert before.key in store.objects
    assert late.key not in store.objects
    assert not resume(store, "u", tag, set(), now=now, grace=grace)  # another late one may come
    assert before.key not in store.objects
    assert [names.is_pause(info.key) for info in store.list(place)] == [True, False]
    assert resume(store, "u", tag, set(), now=now + 2 * grace, grace=grace)
    assert [info.key for info in store.list(place)] == [after.key]
    assert load(store, after).num_rows == 1
    # Who wants no index any more, leaves none behind; a stranger's file is never touched, and keeps the pause.
    pause(store, "u", "t", new)
    store.put(f"{place}stranger.parquet", b"")
    assert not resume(store, "u", None, set(), now=now + 2 * grace, grace=grace)
    assert [info.key.removeprefix(place)[:10] for info in store.list(place)] == ["definition", "stranger.p"]


def test_skipping_definitions_with_other_columns_have_other_ids() -> None:
    plain = definitions_tag(fields(DEFINITIONS, TABLE))
    assert plain == definitions_tag(fields(DEFINITIONS, TABLE))
    wider = TABLE.set(0, pa.field("i", pa.float64()))
    key = (DEFINITIONS[0], IndexDefinition("ValueList", ("s",), key="k1"))
    ids = [
        plain,
        definitions_tag(fields(OTHER, TABLE)),
        definitions_tag(fields(DEFINITIONS[::-1], TABLE)),
        definitions_tag(fields(DEFINITIONS, wider)),
        definitions_tag(fields(DEFINITIONS, TABLE, ["t"])),
        definitions_tag(fields(key, TABLE), Encryption("k0")),
        definitions_tag(fields(key, TABLE), Encryption("k0", plaintext_footer=True)),
    ]
    assert len(set(ids)) == len(ids)
    require_footer_key(SkippingState(key, (), Encryption("k0")))
    with pytest.raises(SkippingInvalid, match="footerKey"):
        require_footer_key(SkippingState(key))


def test_foreign_object_names_are_not_own_keys() -> None:
    good = names.new_key(names.location("u"), "01234567")
    assert names.is_own_key("u", good)
    assert names.is_own_key("u", names.new_pause_key(names.location("u")))
    assert names.is_own_key("u", names.new_key(names.own_location("u"), "01234567"))
    place = names.location("u")
    for key in (f"{place}part-00000.parquet", f"{place}a/{good.rpartition('/')[2]}", good[1:], f"{good}.tmp"):
        assert not names.is_own_key("u", key)
    assert names.definitions_tag_of(good) == "01234567"
    info = ObjectInfo(good, 0, "", datetime.now(UTC))
    assert not names.is_pause(info.key)
