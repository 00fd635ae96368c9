"""An export after a commit, by a process that knows what it exported last: requests, and other exports in between."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import kubothek
from kubothek import Dataset, IcebergExport, Lake
from kubothek.errors import TooSlow
from kubothek.storage.immutable_cache import Kept
from kubothek.table.iceberg import objects, published
from kubothek.table.iceberg.export import export
from tests.s3server import S3Server
from tests.table.iceberg.test_export import check, directory, files, rows


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return kubothek.open(tmp_path / "lake")


def export_after(dataset: Dataset, committed: Any) -> IcebergExport:
    """Export as the program does that has just committed."""
    return export(dataset._store, dataset._log(writing=True), committed=committed.record_key)


@contextmanager
def another_process() -> Iterator[None]:
    """Without what this process remembers of its exports."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(published, "_LAST", Kept(1 << 20))
        patch.setattr(objects, "_WRITTEN", Kept(1 << 20))
        yield


@pytest.mark.s3
def test_export_after_a_commit_makes_four_requests_on_s3(tmp_path: Path) -> None:
    with S3Server() as s3:
        secret = str(s3.write_secret(tmp_path / "secret"))
        lake = kubothek.open(f"s3://{s3.create_bucket('exports')}", endpoint=s3.endpoint, credentials_dir=secret)
        dataset = lake.create_dataset("t")
        export_after(dataset, dataset.append(rows(0, 3)))
        for _ in range(2):
            committed = dataset.append(rows(3, 3))
            before = len(_requests(s3, lake))
            export_after(dataset, committed)
            made = _requests(s3, lake)[before:-1]
            assert [method for method, _ in made] == ["PUT"] * 4
            names = [key.rpartition("/")[2] for _, key in made]
            assert names[2:] == [f"v{committed.version}.metadata.json", "version-hint.text"]


def _requests(s3: S3Server, lake: Lake) -> list[tuple[str, str]]:
    """Method and key of all requests, up to one that is made here."""
    mark = f"mark-{time.monotonic_ns()}"
    lake.store.put(mark, b"")
    while mark not in (text := s3.log.read_text()):
        time.sleep(0.01)
    columns = (line.split("|") for line in text.splitlines() if "| vgw |" in line)
    return [(method.strip(), key.strip()) for _, _, _, _, _, method, key, *_ in columns]


def test_export_in_between_is_continued(lake: Lake) -> None:
    dataset = lake.create_dataset("t")
    export_after(dataset, dataset.append(rows(0, 3)))
    with another_process():
        other = lake.dataset("t")
        export_after(other, other.append(rows(3, 3)))
    table = check(dataset, export_after(dataset, dataset.append(rows(6, 3))))
    log = [entry.metadata_file.rpartition("/")[2] for entry in table.metadata.metadata_log]
    assert log == ["v2.metadata.json", "v3.metadata.json"]


def test_export_of_an_earlier_commit_leaves_a_later_one(lake: Lake) -> None:
    dataset = lake.create_dataset("t")
    export_after(dataset, dataset.append(rows(0, 3)))
    late = dataset.append(rows(3, 3))
    with another_process():
        other = lake.dataset("t")
        later = export_after(other, other.append(rows(6, 3)))
    sound = files(later)
    assert export_after(dataset, late).version == later.version
    assert sound.items() <= files(later).items()


def test_tables_replaced_by_a_rebuild_are_continued(lake: Lake) -> None:
    dataset = lake.create_dataset("t")
    exported = export_after(dataset, dataset.append(rows(0, 3)))
    with another_process():
        for path in directory(exported).iterdir():
            path.unlink()
        lake.dataset("t").export_iceberg()
    check(dataset, export_after(dataset, dataset.append(rows(3, 3))))


def test_export_that_outlasts_the_grace_is_an_error(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = lake.create_dataset("t")
    exported = export_after(dataset, dataset.append(rows(0, 3)))
    sound = files(exported)
    dataset.append(rows(3, 3))
    monkeypatch.setattr(published, "_NEVER_TOO_SLOW", timedelta())
    monkeypatch.setattr(published.Publications, "_limit", timedelta())
    with pytest.raises(TooSlow, match="garbage collection may delete its files"):
        dataset.export_iceberg()
    assert sound.items() <= files(exported).items()


def test_last_export_that_is_old_is_read_again(lake: Lake) -> None:
    dataset = lake.create_dataset("t")
    exported = export_after(dataset, dataset.append(rows(0, 3)))
    known = published._LAST.recall((lake.store.url, "t"))
    assert known
    began, ticks = known[0].at
    published._LAST.keep((lake.store.url, "t"), replace(known[0], at=(began - timedelta(days=1), ticks)), 1)
    (directory(exported) / "v2.metadata.json").unlink()
    table = check(dataset, export_after(dataset, dataset.append(rows(3, 3))))
    assert table.metadata.metadata_log == []
