"""What is refused, each with a clear error, before anything is written: the store is as it was, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from kubothek.catalog import Dataset, Lake
from kubothek.errors import (
    DatasetNotFound,
    FilterInvalid,
    FilterMatchesAll,
    FilterNotMet,
    InputError,
    LakeError,
    OwnedByAnother,
    PartitionInvalid,
    RowLevelNeeded,
    SchemaMismatch,
    SourceEmpty,
    VersionIncomplete,
    VersionNotFound,
)
from kubothek.storage import Store
from kubothek.table.expressions import from_dnf
from kubothek.table.log import Claim, take_claim
from tests.table.operations.table import everything, flights, head, labels

Change = Callable[[Dataset], object]
OTHER = pa.table({"month": [1], "gate": ["A1"]})


def update(values: dict[str, object], where: str = "month = 1") -> Change:
    return lambda table: table.update(values, where=where, row_level=True)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        # filters
        (lambda t: t.delete("mnth = 1"), FilterInvalid, "did you mean 'month'"),
        (lambda t: t.delete("month = 1 AND nothing = 1", row_level=True), FilterInvalid, "nothing"),
        (lambda t: t.delete("month = 'one'"), FilterInvalid, "month.*int64"),
        (lambda t: t.delete("month = "), FilterInvalid, "month = "),
        (lambda t: t.delete(from_dnf([[("mnth", "==", 1)]])), FilterInvalid, "month"),
        (lambda t: t.replace(flights((1, "A", 1)), where="mnth = 1"), FilterInvalid, "month"),
        (lambda t: t.replace(flights((1, "A", 1)), where="FALSE"), FilterInvalid, "selects nothing"),
        (update({"delay": 1}, "mnth = 1"), FilterInvalid, "month"),
        # columns that say nothing about whole files
        (lambda t: t.delete("carrier = 'AA'"), RowLevelNeeded, "'carrier', which neither partitions.*rowLevel: true"),
        (lambda t: t.delete("month = 1 AND delay = 10"), RowLevelNeeded, "'delay'"),
        (lambda t: t.replace(flights((1, "A", 1)), where="month = 1 AND delay = 1"), FilterInvalid, "'delay'.*'month'"),
        (lambda t: t.update({"delay": 1}, where="month = 1"), RowLevelNeeded, "rowLevel: true"),
        # everything by accident
        (lambda t: t.delete("month > 0"), FilterMatchesAll, r"month > 0.*files: 3.*write TRUE"),
        (lambda t: t.delete("month >= 1 OR carrier = 'AA'", row_level=True), FilterMatchesAll, "write TRUE"),
        (lambda t: t.delete("NOT month = 99"), FilterMatchesAll, "write TRUE"),
        (lambda t: t.replace(flights((1, "A", 1)), where="month < 50"), FilterMatchesAll, "leave where out"),
        (update({"delay": 1}, "month IN (1, 2, 3)"), FilterMatchesAll, "write TRUE"),
        # values
        (update({}), InputError, "changes nothing"),
        (update({"dlay": 1}), FilterInvalid, "delay"),
        (update({"delay": "late"}), FilterInvalid, "delay.*int64"),
        (update({"delay": 1.5}), InputError, "'delay'.*1.5.*int64"),
        (update({"delay": 1 << 63}), InputError, "'delay'"),
        (update({"month": None}), PartitionInvalid, "'month'.*NULL"),
        # rows
        (lambda t: t.replace(flights()), SourceEmpty, "no rows"),
        (lambda t: t.overwrite([]), SourceEmpty, "no batch"),
        (lambda t: t.replace(OTHER), SchemaMismatch, "gate"),
        (lambda t: t.overwrite(OTHER), SchemaMismatch, r"(?s)gate.*allowSchemaChange: true"),
        (lambda t: t.replace(flights((1, "A", 1), (2, "A", 1)), where="month = 1"), FilterNotMet, "row 2: month = 2"),
        # words
        (lambda t: t.delete("month = 1", on_conflict="retry"), InputError, "'retry'.*Fail, Retry"),
        # versions
        (lambda t: t.rollback(99), VersionNotFound, "no version 99"),
        (lambda t: t.rollback(0), VersionNotFound, "no version 0"),
        (lambda t: t.rollback(datetime(2000, 1, 1, tzinfo=UTC)), VersionNotFound, "2000"),
    ],
)
def test_operation_with_bad_input_is_refused_and_changes_nothing(
    table: Dataset, store: Store, change: Change, error: type[LakeError], message: str
) -> None:
    before = everything(store)
    with pytest.raises(error, match=message):
        change(table)
    assert everything(store) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.delete("carrier = 'AA' OR carrier != 'AA' OR carrier IS NULL", row_level=True),
        lambda t: t.delete("carrier IS NOT NULL OR carrier IS NULL", row_level=True),
        update({"delay": 1}, "carrier = 'AA' OR carrier != 'AA' OR carrier IS NULL"),
    ],
)
def test_filter_that_matches_all_rows_by_content_is_refused(table: Dataset, store: Store, change: Change) -> None:
    before, versions = head(store), table.version
    with pytest.raises(FilterMatchesAll, match="write TRUE"):
        change(table)
    assert (head(store), table.version) == (before, versions)


def test_replace_with_row_outside_filter_in_second_batch_is_refused(table: Dataset, store: Store) -> None:
    before = head(store)
    pieces = [flights(*[(1, "A", n) for n in range(5)]), flights((1, "A", 1), (2, "A", 1))]
    with pytest.raises(FilterNotMet, match="row 7: month = 2 does not satisfy where month = 1"):
        table.replace([batch for piece in pieces for batch in piece.to_batches()], where="month = 1")
    assert head(store) == before


def test_replace_of_unpartitioned_table_without_filter_is_refused(store: Store) -> None:
    dataset = Lake(store).create_dataset("t")
    dataset.append(pa.table({"v": [1]}))
    before = everything(store)
    with pytest.raises(FilterMatchesAll, match="Overwrite, or where: TRUE"):
        dataset.replace(pa.table({"v": [2]}))
    assert everything(store) == before
    dataset.replace(pa.table({"v": [2]}), where="TRUE")
    assert dataset.scan().read_all().to_pylist() == [{"v": 2}]


def test_update_of_untyped_column_is_refused(store: Store) -> None:
    dataset = Lake(store).create_dataset("t")
    dataset.append(pa.table({"v": [1, 2], "n": pa.nulls(2)}))
    with pytest.raises(InputError, match=r"'n'.*no type yet"):
        dataset.update({"n": 1}, where="v = 1", row_level=True)
    dataset.update({"n": None}, where="v = 1", row_level=True)


def test_row_level_change_of_table_without_columns_is_refused(store: Store) -> None:
    dataset = Lake(store).create_dataset("t")
    with pytest.raises(FilterInvalid, match="'v'"):
        dataset.update({"v": 1}, where="TRUE", row_level=True)
    with pytest.raises(FilterInvalid, match="'v'"):
        dataset.delete("v = 1", row_level=True)
    dataset.delete("TRUE")
    assert dataset.version == 2


def test_rollback_across_schema_change_without_permission_is_refused(table: Dataset, store: Store) -> None:
    table.overwrite(OTHER, allow_schema_change=True)
    before = everything(store)
    with pytest.raises(SchemaMismatch, match=r"(?s)version 2.*'carrier', 'delay'.*allowSchemaChange: true"):
        table.rollback(2)
    assert everything(store) == before


def test_rollback_to_version_with_missing_files_names_files(table: Dataset, store: Store) -> None:
    gone = next(iter(labels(table).values()))
    table.delete("month = 1")
    store.delete([gone])
    before = everything(store)
    with pytest.raises(VersionIncomplete, match=gone):
        table.rollback(2)
    assert everything(store) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.replace(flights((1, "A", 1))),
        lambda t: t.overwrite(flights((1, "A", 1))),
        lambda t: t.delete("month = 1"),
        update({"delay": 1}),
        lambda t: t.rollback(1),
    ],
)
def test_change_of_owned_or_missing_dataset_is_refused(table: Dataset, store: Store, change: Change) -> None:
    with pytest.raises(DatasetNotFound):
        change(Dataset(Lake(store), "nobody"))
    take_claim(store, "flights", Claim("cluster/ns/flights", "uid"))
    before = everything(store)
    with pytest.raises(OwnedByAnother, match="cluster/ns/flights"):
        change(table)
    assert everything(store) == before


def test_row_level_delete_with_missing_file_fails_and_changes_nothing(table: Dataset, store: Store) -> None:
    key = next(key for key in labels(table).values() if "month=2" in key)
    Path(store.url.removeprefix("file://"), key).unlink()
    before = head(store)
    with pytest.raises(VersionIncomplete):
        table.delete("delay = 20", row_level=True)
    assert head(store) == before
