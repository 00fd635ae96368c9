"""A file that kills the job which reads it is set aside; what else landed is taken, each version exactly once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from kubothek.errors import LakeError, SourceUnavailable
from kubothek.ingest.watch import Landed, Report, attempts
from kubothek.table.log import Snapshot
from kubothek.table.operations import Written
from tests.faultstore import Crash
from tests.ingest.watch.conftest import Lake, LineLoader

pytestmark = pytest.mark.slow


class Killing(LineLoader):
    """Ends as a killed process does, or otherwise, when it reads one of some files."""

    def __init__(self, lake: Lake, *poison: str, end: Callable[[], BaseException] = Crash) -> None:
        super().__init__(lake.store, lake.store)
        self.poison = {f"landing/{name}" for name in poison}
        self.end = end
        self.groups: list[int] = []

    def load(
        self, snapshot: Snapshot, files: Sequence[Landed], schema: pa.Schema | None, zones: Mapping[str, str]
    ) -> Written:
        self.groups.append(len(files))
        if any(file.key in self.poison for file in files):
            raise self.end()
        return super().load(snapshot, files, schema, zones)


def note(lake: Lake) -> list[str]:
    return [info.key for info in lake.store.list("") if info.key.endswith("reading.json")]


def deaths(lake: Lake, loader: LineLoader, **terms: Any) -> int:
    """How many jobs die until one comes to its end."""
    for count in range(50):
        try:
            lake.round(loader=loader, **terms).run()
        except (Crash, RuntimeError):
            continue
        return count
    raise AssertionError("no job came to its end")


def taken(lake: Lake) -> list[str]:
    return sorted(lake.lines().elements())


def test_file_that_kills_two_jobs_is_quarantined(lake: Lake) -> None:
    for name in ("a", "b", "c"):
        lake.land(name, name)
    assert deaths(lake, Killing(lake, "b"), quarantine=True) == 2
    assert taken(lake) == ["a", "c"]
    assert note(lake) == []
    assert lake.take(quarantine=True).quarantined == 1


def test_single_file_that_kills_jobs_does_not_block_later_files(lake: Lake) -> None:
    lake.land("a", "a")
    loader = Killing(lake, "a")
    assert deaths(lake, loader, quarantine=True) == 2
    lake.land("b", "b")
    assert deaths(lake, loader, quarantine=True) == 0
    assert taken(lake) == ["b"]
    assert note(lake) == []


def test_file_that_kills_jobs_stalls_source_without_quarantine(lake: Lake) -> None:
    lake.land("a", "a")
    lake.land("b", "b")
    loader = Killing(lake, "b")
    assert deaths(lake, loader) == 2
    report: Report = lake.round(loader=loader).run()
    assert report.stalled is not None
    assert "2 jobs died without an error while they read this file" in report.stalled.message
    assert taken(lake) == ["a"]


def test_replaced_file_that_killed_jobs_is_read_again(lake: Lake) -> None:
    lake.land("a", "a")
    lake.land("b", "b")
    assert deaths(lake, Killing(lake, "b"), quarantine=True) == 2
    lake.land("b", "better")
    lake.take(quarantine=True)
    assert taken(lake) == ["a", "better"]


def stopped() -> BaseException:
    """What ends a job that is told to stop."""
    attempts.give_up()
    return Crash()


def test_file_that_exceeds_deadline_of_two_jobs_is_quarantined(lake: Lake) -> None:
    for name in ("a", "b", "c"):
        lake.land(name, name)
    assert deaths(lake, Killing(lake, "b", end=stopped), quarantine=True, deadline=0.0) == 2
    assert taken(lake) == ["a", "c"]
    assert note(lake) == []


@pytest.mark.parametrize(("reads_from", "stopped_at"), [(0, 3000), (2000, 3590)])
def test_job_stopped_early_or_after_other_files_blames_no_file(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, reads_from: float, stopped_at: float
) -> None:
    def late() -> BaseException:
        monkeypatch.setattr(attempts, "monotonic", lambda: float(stopped_at))
        return stopped()

    lake.land("a", "a")
    monkeypatch.setattr(attempts, "monotonic", lambda: 0.0)
    job = lake.round(loader=Killing(lake, "a", end=late), quarantine=True, deadline=3600.0)
    monkeypatch.setattr(attempts, "monotonic", lambda: reads_from)
    with pytest.raises(Crash):
        job.run()
    assert note(lake) == []


@pytest.mark.parametrize("poison", ["f000", "f123", "f399"])
def test_poison_file_among_many_is_found_after_few_crashes(lake: Lake, poison: str) -> None:
    for number in range(400):
        lake.land(f"f{number:03}", str(number))
    loader = Killing(lake, poison)
    assert deaths(lake, loader, quarantine=True) == 4  # on 400 files, 25, 1 and 1
    assert len(taken(lake)) == 399
    assert len(loader.groups) < 100


def test_unexpected_error_counts_as_crash(lake: Lake) -> None:
    lake.land("a", "a")
    lake.land("b", "b")
    assert deaths(lake, Killing(lake, "b", end=RuntimeError), quarantine=True) == 2
    assert taken(lake) == ["a"]


@pytest.mark.parametrize("end", [lambda: SourceUnavailable("no answer"), KeyboardInterrupt])
def test_known_error_or_interrupt_counts_as_no_crash(lake: Lake, end: Callable[[], BaseException]) -> None:
    lake.land("a", "a")
    for _ in range(3):
        with pytest.raises((LakeError, KeyboardInterrupt)):
            lake.round(loader=Killing(lake, "a", end=end), quarantine=True).run()
        assert note(lake) == []
    lake.take(quarantine=True)
    assert taken(lake) == ["a"]


def test_damaged_attempt_record_is_ignored(lake: Lake) -> None:
    lake.land("a", "a")
    with pytest.raises(Crash):
        lake.round(loader=Killing(lake, "a")).run()
    (key,) = note(lake)
    for data in (b"", b"[]", b'{"files": [["a"]]}', b'{"files": [["a", "b", "x", 1]]}'):
        lake.store.put(key, data)
        lake.round(loader=Killing(lake)).run()
        lake.land("a", str(data))
    assert len(taken(lake)) == 4


def test_job_stopped_from_outside_counts_as_no_crash(lake: Lake) -> None:
    lake.land("a", "a")
    for _ in range(3):
        with pytest.raises(Crash):
            lake.round(loader=Killing(lake, "a", end=stopped), quarantine=True).run()
        assert note(lake) == []
    with pytest.raises(Crash):
        lake.round(loader=Killing(lake, "a"), quarantine=True).run()
    (key,) = note(lake)
    before = lake.store.get(key)
    with pytest.raises(Crash):
        lake.round(loader=Killing(lake, "a", end=stopped), quarantine=True).run()
    assert lake.store.get(key) == before
