"""Copy, rename, deletion and restore of datasets, and what plateau reads afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from plateau.io.eager import read_table

import kubothek
from kubothek import AlreadyApplied, IndexDefinition
from kubothek.catalog import Dataset, Lake
from kubothek.errors import (
    Conflict,
    DatasetDeleted,
    DatasetExists,
    DatasetNotFound,
    InputError,
    LakeError,
    OwnedByAnother,
    RestoreExpired,
    StoreUnavailable,
    VersionTagged,
)
from kubothek.table.log import DatasetLog

pytestmark = pytest.mark.filterwarnings("ignore")

ROWS = pa.table({"k": ["a", "b"], "x": [1, 2], "s": ["q", None]})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return kubothek.open(tmp_path / "lake")


@pytest.fixture
def table(lake: Lake) -> Dataset:
    dataset = lake.create_dataset(
        "t",
        partition_on="k",
        indices={"x": "Native", "s": "Kartothek"},
        sort_by="x",
        skipping=IndexDefinition("MinMax", "x"),  # type: ignore[arg-type]
        metadata={"source": "here"},
    )
    dataset.append(ROWS)
    return dataset


def rows(dataset: Dataset) -> list[dict[str, Any]]:
    return dataset.to_arrow(["k", "x", "s"]).sort_by("x").to_pylist()


def test_copy_has_rows_layout_indices_and_metadata_of_version(lake: Lake, table: Dataset, tmp_path: Path) -> None:
    table.append(pa.table({"k": ["c"], "x": [3], "s": ["r"]}))
    other = kubothek.open(tmp_path / "other")
    lake.copy("t", "u", to=other, as_of=2, id="once")
    copy = other.dataset("u")
    assert rows(copy) == ROWS.to_pylist()
    assert (copy.layout, copy.indices, copy.skipping) == (table.layout, table.indices, table.skipping)
    assert copy.metadata["source"] == "here"
    assert [step.files_left for step in copy.plan("x = 1").steps] == [2, 2, 1, 1, 1]
    assert copy.snapshot().head.skipping.parts
    assert str(copy.verify()).startswith("version 1 is sound: 2 files, "), "each file has a hash"
    assert "no hash" not in str(copy.verify())
    assert len(read_table("u", store=f"hfs://{tmp_path}/other")) == 2
    assert isinstance(lake.copy("t", "u", to=other, as_of=2, id="once"), AlreadyApplied)
    for more in ({"id": "twice"}, {}):
        with pytest.raises(DatasetExists, match=r"'u'.*choose another name, or drop it"):
            lake.copy("t", "u", to=other, **more)
    copy.append(ROWS)
    assert (copy.rows, table.rows) == (4, 3)


def test_copy_that_fails_leaves_no_files(lake: Lake, table: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    upload, keys = type(lake.store).upload, {info.key for info in lake.store.list("u")}

    def failing(self: Any, key: str, source: Any) -> str:
        if "k=b" in key:
            raise StoreUnavailable("no")
        return upload(self, key, source)

    monkeypatch.setattr(type(lake.store), "upload", failing)
    with pytest.raises(StoreUnavailable):
        lake.copy("t", "u")
    assert {info.key for info in lake.store.list("u")} == keys
    monkeypatch.undo()
    lake.copy("t", "u")


def test_dropped_dataset_can_be_restored_and_its_name_used_again(lake: Lake, table: Dataset, tmp_path: Path) -> None:
    assert lake.drop("t") == 3
    with pytest.raises(DatasetNotFound, match="'t' was deleted at"):
        lake.drop("t")
    with pytest.raises(DatasetDeleted):
        table.append(ROWS)
    with pytest.raises(Exception, match="t"):
        read_table("t", store=f"hfs://{tmp_path}/lake")
    assert lake.restore("t") == 4
    assert lake.restore("t") == 4
    assert rows(table) == ROWS.to_pylist()
    assert len(read_table("t", store=f"hfs://{tmp_path}/lake")) == 2
    for number in range(3):
        lake.drop("t")
        again = lake.create_dataset("t")
        again.append(pa.table({"other": [number]}))
        assert again.to_arrow().to_pylist() == [{"other": number}]
        with pytest.raises(DatasetExists):
            lake.create_dataset("t")


def test_restore_after_grace_period_is_refused(lake: Lake, table: Dataset, tmp_path: Path) -> None:
    lake.drop("t")
    (tombstone,) = (tmp_path / "lake" / ".kubothek" / "t" / "commits").glob("*3-*drop*")
    two_days_ago = tombstone.stat().st_mtime - 2 * 86400
    os.utime(tombstone, (two_days_ago, two_days_ago))
    with pytest.raises(RestoreExpired, match="its grace period is 24h"):
        lake.restore("t")
    with pytest.raises(DatasetNotFound):
        lake.restore("nothing")


def test_append_that_began_before_drop_does_not_reach_successor(
    lake: Lake, table: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = type(table)._written

    def late(self: Dataset, *given: Any, **more: Any) -> Any:
        done = written(self, *given, **more)
        monkeypatch.undo()
        lake.drop("t")
        lake.create_dataset("t", partition_on="k")
        return done

    monkeypatch.setattr(type(table), "_written", late)
    with pytest.raises(DatasetDeleted, match="was deleted or restored while this commit ran"):
        table.append(ROWS)
    assert table.rows == 0


def test_rename_moves_rows_and_can_be_repeated(lake: Lake, table: Dataset, tmp_path: Path) -> None:
    lake.create_dataset("u")
    lake.drop("u")
    done = lake.rename("t", "u")
    assert rows(lake.dataset("u")) == ROWS.to_pylist()
    assert len(read_table("u", store=f"hfs://{tmp_path}/lake")) == 2
    with pytest.raises(DatasetNotFound, match="'t' was deleted at"):
        lake.dataset("t")
    again = lake.rename("t", "u")
    assert isinstance(again, AlreadyApplied)
    assert again.version == done.version
    with pytest.raises(DatasetNotFound, match="'t' was deleted at"):
        lake.rename("t", "v")
    lake.restore("t")
    assert rows(lake.dataset("t")) == ROWS.to_pylist()


def test_rename_after_crash_between_its_commits_continues(
    lake: Lake, table: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*given: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(DatasetLog, "delete", crash)
    with pytest.raises(KeyboardInterrupt):
        lake.rename("t", "u")
    monkeypatch.undo()
    assert rows(table) == rows(lake.dataset("u")) == ROWS.to_pylist()
    assert isinstance(lake.rename("t", "u"), AlreadyApplied)
    with pytest.raises(DatasetNotFound):
        lake.dataset("t")
    assert rows(lake.dataset("u")) == ROWS.to_pylist()


def test_rename_beside_another_commit_loses_no_row(lake: Lake, table: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    delete = DatasetLog.delete

    def late(self: DatasetLog, *given: Any, **more: Any) -> Any:
        monkeypatch.undo()
        table.append(ROWS)
        return delete(self, *given, **more)

    monkeypatch.setattr(DatasetLog, "delete", late)
    with pytest.raises(Conflict, match="'t' has version 3 now, not 2: another commit came first"):
        lake.rename("t", "u")
    assert table.rows == 4
    with pytest.raises(DatasetNotFound, match="'u' was deleted at"):
        lake.dataset("u")
    lake.rename("t", "u")
    assert lake.dataset("u").rows == 4


REFUSED: dict[str, tuple[Callable[[Lake], Any], type[LakeError], str]] = {
    "same name": (lambda lake: lake.rename("t", "t"), InputError, "'t' has this name already"),
    "unknown": (lambda lake: lake.rename("nothing", "u"), DatasetNotFound, "no dataset 'nothing'"),
    "unknown copy": (lambda lake: lake.copy("nothing", "u"), DatasetNotFound, "no dataset 'nothing'"),
    "unknown drop": (lambda lake: lake.drop("nothing"), DatasetNotFound, "no dataset 'nothing'"),
    "taken": (lambda lake: lake.rename("t", "c++seed"), DatasetExists, "choose another name"),
    "member drop": (lambda lake: lake.drop("c++seed"), InputError, "belongs to a cube .* kubothek cube delete"),
    "member": (lambda lake: lake.rename("c++seed", "u"), InputError, "belongs to a cube .* kubothek cube copy"),
    "bad name": (lambda lake: lake.copy("t", "a/b"), InputError, "dataset uuid 'a/b'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_move_says_why_and_changes_nothing(lake: Lake, table: Dataset, case: str) -> None:
    lake.create_cube("c", dimension_columns="x", partition_columns="k").build(ROWS.drop_columns(["s"]))
    before = {info.key for info in lake.store.list("")}
    act, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        act(lake)
    assert {info.key for info in lake.store.list("")} == before


def test_rename_of_tagged_dataset_is_refused(lake: Lake, table: Dataset) -> None:
    table.tag("audit", 2)
    with pytest.raises(VersionTagged, match=r"has tags \(audit\)"):
        lake.rename("t", "u")
    table.untag("audit")
    lake.rename("t", "u")


def test_moves_of_owned_dataset_are_refused_before_any_write(lake: Lake, table: Dataset) -> None:
    lake.store.put(".kubothek/t/owner.json", b'{"owner": "here/default/t"}')
    keys = {info.key for info in lake.store.list("")}
    for act in (lambda: lake.drop("t"), lambda: lake.restore("t"), lambda: lake.rename("t", "u")):
        with pytest.raises(OwnedByAnother, match="here/default/t"):
            act()
    assert {info.key for info in lake.store.list("")} == keys
    lake.copy("t", "u")
    assert rows(lake.dataset("u")) == ROWS.to_pylist()


def test_copy_of_cube_member_is_plain_dataset(lake: Lake) -> None:
    lake.create_cube("c", dimension_columns="x", partition_columns="k").build(ROWS.drop_columns(["s"]))
    lake.copy("c++seed", "plain")
    assert not [key for key in lake.dataset("plain").metadata if key.startswith("ktk_cube_")]
    assert lake.drop("plain") == 2
