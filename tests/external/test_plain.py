"""Metadata of files that Kubothek does not own: what is described, matched and skipped, and how it is refreshed."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pytest

from kubothek.errors import Contended, DatasetNotFound, InputError, SkippingInvalid, SourceCorrupt
from kubothek.external import state
from kubothek.external.files import PlainFiles, PlainFormat
from kubothek.external.location import open_location
from kubothek.external.metadata import location
from kubothek.external.refresh import MOST_PARTS, drop
from kubothek.ingest import CsvOptions
from kubothek.table.expressions import parse
from kubothek.table.skipping.files.reading import load_location
from kubothek.table.skipping.model import IndexDefinition, SkippingState
from tests.external.conftest import DEFINITIONS, FILES, Trips


def opened(trips: Trips, where: str, name: str = "trips") -> list[str]:
    """The names of the files that a query opens."""
    found = open_location(trips.store, name)
    return [key.rpartition("/")[2] for key in found.plan(parse(where)).keys]


def part(*numbers: int) -> list[str]:
    return [f"part-{number}.parquet" for number in numbers]


def test_query_opens_only_files_that_can_match(trips: Trips) -> None:
    for number in range(5):
        trips.put(number)
    done = trips.refresh()
    assert (done.added, done.removed, done.index.listed, done.index.described) == (5, 0, 5, 5)
    assert opened(trips, "id = 23") == part(2)
    assert opened(trips, "id BETWEEN 18 AND 22") == part(1, 2)
    assert opened(trips, "city = 'city-4' OR id < 5") == part(0, 4)
    assert opened(trips, "city = 'nowhere'") == []
    plan = open_location(trips.store, "team.trips").plan(parse("id = 23"))
    assert [(step.name, step.files_left) for step in plan.steps] == [
        ("files", 5),
        ("partition keys", 5),
        ("skipping metadata", 1),
    ]
    rows = open_location(trips.store, "trips").dataset(plan).to_table().num_rows
    assert rows == 10


def test_new_or_changed_file_is_opened_until_refresh(trips: Trips) -> None:
    for number in range(3):
        trips.put(number)
    trips.refresh()
    trips.put(7)
    assert opened(trips, "id = 23") == part(2, 7)
    path = trips.root / trips.put(1)  # written again, with the same rows
    assert opened(trips, "id = 23") == part(1, 2, 7)
    os.utime(path, ns=(0, 0))
    assert opened(trips, "id = 23") == part(1, 2, 7), "another time is another version"
    done = trips.refresh()
    assert (done.added, done.removed, done.index.described) == (2, 1, 4)
    assert opened(trips, "id = 23") == part(2)


def test_file_with_same_path_and_time_but_other_content_is_new_version(trips: Trips) -> None:
    path = trips.root / trips.put(1)
    before = path.stat()
    trips.refresh()
    (trips.root / trips.put(2)).rename(path)  # such as in a store whose clock has seconds
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert opened(trips, "id = 23") == [path.name]


def test_refresh_describes_only_new_files_and_keeps_index_small(trips: Trips) -> None:
    for number in range(2 * MOST_PARTS):
        trips.put(number)
        assert trips.refresh().added == 1
    objects = [info.key for info in trips.store.list(state.root("team.trips"))]
    assert len(objects) <= 3 * MOST_PARTS + 1
    assert trips.refresh().added == 0
    for number in range(2 * MOST_PARTS):
        assert opened(trips, f"id = {10 * number + 3}") == part(number)
    (trips.root / FILES.prefix / "part-4.parquet").unlink()
    done = trips.refresh()
    assert (done.removed, done.index.described) == (1, 2 * MOST_PARTS - 1)
    assert sum(part.rows for part in done.index.parts) == done.index.described, "entries of files that are gone go"
    assert len(done.index.parts) <= MOST_PARTS
    assert opened(trips, "id = 53") == part(5)


def test_refresh_with_other_definition_rebuilds_index(trips: Trips) -> None:
    for number in range(3):
        trips.put(number)
    first = trips.refresh()
    smaller = SkippingState(DEFINITIONS.indices[:1])
    second = trips.refresh(smaller)
    assert second.added == 3
    there = {info.key for info in trips.store.list(state.root("team.trips"))}
    assert there.isdisjoint(key for each in first.index.parts for key in each.keys)
    assert opened(trips, "id = 3") == part(0)
    assert opened(trips, "city = 'nowhere'") == part(0, 1, 2)


def test_xskipper_directory_contains_only_xskipper_fields(trips: Trips) -> None:
    key = trips.put(1)
    trips.refresh()
    found = load_location(trips.store, location("team.trips"))
    assert [each.type for each in found.definitions] == ["MinMax", "ValueList", "BloomFilter"]
    assert (found.version, found.identifier) == (4, f"{trips.root}/{FILES.prefix}")
    path = trips.root / key
    moment = path.stat().st_mtime_ns // 1_000_000
    assert found.rows.column("obj_name").to_pylist() == [f"{path}#{moment}"]


def test_metadata_refreshed_by_xskipper_is_used(trips: Trips) -> None:
    """It deletes every entry, and writes files of other names; ours are gone, its ones go by path and time."""
    for number in range(3):
        trips.put(number)
    trips.refresh()
    directory = trips.root / location("team.trips")
    for file in directory.iterdir():
        file.rename(directory / f"part-00000-{file.name}")
    assert opened(trips, "id = 23") == part(2)
    done = trips.refresh()
    assert done.added == 3, "and a refresh of ours makes it whole again"
    assert opened(trips, "city LIKE 'cit%' AND id = 3") == part(0)


def test_directory_names_become_partition_columns(trips: Trips) -> None:
    for month in (1, 2):
        for number in (month, month + 10):
            trips.put(number, name=f"month={month}/zone=a%20b/part-{number}.parquet")
    done = trips.refresh()
    assert done.index.table.partitions == ("month", "zone")
    assert opened(trips, "month = 2") == part(12, 2)
    assert opened(trips, "month = 2 AND id = 23") == part(2)
    assert opened(trips, "zone = 'a b' AND id = 13") == part(1)
    assert opened(trips, "zone = 'other'") == []
    found = open_location(trips.store, "trips")
    table = found.dataset(found.plan(parse("id = 23"))).to_table()
    assert (set(table["month"].to_pylist()), set(table["zone"].to_pylist())) == ({2}, {"a b"})
    with pytest.raises(SkippingInvalid, match="partition column"):
        trips.refresh(SkippingState((IndexDefinition("MinMax", ("month",)),)))


@pytest.mark.parametrize("form", ["ORC", "CSV", "JSONLines"])
def test_csv_json_and_orc_files_are_supported(trips: Trips, form: PlainFormat) -> None:
    directory = trips.root / "landing/trips"
    directory.mkdir(parents=True)
    for number in range(3):
        table = pa.table({"id": [number * 10, None], "city": [f"c{number}", "NA"]})
        path = directory / f"part-{number}.parquet"  # the name tells nothing
        if form == "ORC":
            pyarrow.orc.write_table(table, path)
        elif form == "CSV":
            pyarrow.csv.write_csv(table, path, pyarrow.csv.WriteOptions(delimiter=";"))
        else:
            path.write_text("".join(f'{{"id": {r["id"] or 0}, "city": "{r["city"]}"}}\n' for r in table.to_pylist()))
    files = PlainFiles("landing/trips", form, csv=CsvOptions(delimiter=";"))
    trips.refresh(DEFINITIONS, files)
    assert opened(trips, "id = 20") == part(2)
    assert opened(trips, "city = 'c1'") == part(1)
    found = open_location(trips.store, "trips")
    table = found.dataset(found.plan(parse("id = 20"))).to_table()
    assert table.column("id").to_pylist()[0] == 20


def test_file_that_does_not_match_given_columns_is_left_out(trips: Trips) -> None:
    directory = trips.root / "landing/trips"
    directory.mkdir(parents=True)
    (directory / "a.csv").write_text("id,city\n1,x\n")
    (directory / "b.csv").write_text("id,city\nnothing,x\n")
    columns: dict[str, pa.DataType] = {"id": pa.int64(), "city": pa.string()}
    schema = pa.schema(columns)
    done = trips.refresh(DEFINITIONS, PlainFiles("landing/trips", "CSV", schema=schema))
    assert (done.index.listed, done.index.described) == (2, 1)
    (why,) = done.index.left_out
    assert why.startswith("landing/trips/b.csv: it cannot be read as CSV")
    assert opened(trips, "id = 7") == ["b.csv"], "what is not described is opened"


def test_glob_selects_files_and_hidden_files_are_excluded(trips: Trips) -> None:
    for name in ("2026/a.parquet", "2026/b.txt", "2025/a.parquet", "_tmp/a.parquet", "2026/.a.parquet"):
        trips.put(1, name=name)
    done = trips.refresh(DEFINITIONS, PlainFiles("landing/trips", glob="2026/*.parquet"))
    assert done.index.listed == 1
    assert opened(trips, "id = 13") == ["a.parquet"]


def test_refresh_with_invalid_input_writes_nothing(trips: Trips) -> None:
    with pytest.raises(InputError, match="there is no file"):
        trips.refresh()
    trips.put(1)
    with pytest.raises(SkippingInvalid, match="'nothing'"):
        trips.refresh(SkippingState((IndexDefinition("MinMax", ("nothing",)),)))
    (trips.root / "landing/trips/part-1.parquet").write_text("no Parquet")
    with pytest.raises(SourceCorrupt, match=r"part-1\.parquet"):
        trips.refresh()
    assert list(trips.store.list(".kubothek/")) == []
    with pytest.raises(DatasetNotFound):
        open_location(trips.store, "trips")


def test_concurrent_refresh_raises_contended_and_succeeds_on_retry(
    trips: Trips, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips.put(1)
    read = state.read

    def slow(*args: object) -> state.Kept:
        found = read(trips.store, "team.trips")
        monkeypatch.undo()
        trips.refresh()  # another one comes first
        return found

    monkeypatch.setattr("kubothek.external.refresh.read", slow)
    with pytest.raises(Contended, match="came first"):
        trips.refresh(replace(DEFINITIONS, indices=DEFINITIONS.indices[:1]))
    trips.refresh()
    assert opened(trips, "id = 3") == []
    assert opened(trips, "id = 13") == part(1)


def test_drop_deletes_all_metadata_and_keeps_files(trips: Trips, tmp_path: Path) -> None:
    trips.put(1)
    trips.refresh()
    assert drop(trips.store, "team.trips") >= 3
    assert list(trips.store.list(".kubothek/++plain/")) == []
    assert (tmp_path / "landing/trips/part-1.parquet").exists()
    assert drop(trips.store, "team.trips") == 0


def test_short_name_resolves_only_if_unique_across_namespaces(trips: Trips) -> None:
    trips.put(1)
    trips.refresh()
    assert state.resolved(trips.store, "trips") == "team.trips"
    assert state.resolved(trips.store, "other") is None
    trips.store.put(".kubothek/++plain/other.trips/index.json", b"{}")
    with pytest.raises(InputError, match="several namespaces"):
        state.resolved(trips.store, "trips")
    with pytest.raises(InputError, match="no name"):
        state.root("a/b")
