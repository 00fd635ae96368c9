"""A round takes each version of a file once, in order, in bounded batches, and knows good files from bad ones."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from kubothek.errors import Conflict, Contended, InputError, StoreUnavailable, VersionIncomplete
from kubothek.ingest.watch import Landed, Page
from kubothek.ingest.watch.round import BATCHES
from kubothek.table.log import DatasetLog, Transaction
from kubothek.table.log.model import keys
from tests.faultstore import Crash, Fault, FaultStore, every_crash
from tests.ingest.watch.conftest import UUID, Lake, LineLoader, refusal
from tests.table.log.memory import MemoryStore

pytestmark = pytest.mark.slow


def test_landed_files_are_ingested_once(lake: Lake) -> None:
    lake.land("a", "1", "2")
    lake.land("b", "3")
    first, second = lake.take(), lake.take()
    assert (first.commits, first.files, first.rows) == (1, 2, 3)
    assert (second.commits, second.files, second.last) == (0, 0, None)
    assert lake.lines() == {"1": 1, "2": 1, "3": 1}
    assert second.page == first.page


def test_late_file_is_ingested_wherever_its_name_sorts(lake: Lake) -> None:
    lake.land("m", "m")
    lake.take()
    for key in ("a", "z", "m0"):
        lake.land(key, key)
        lake.take()
    assert lake.lines() == {"m": 1, "a": 1, "z": 1, "m0": 1}


def test_file_uploaded_again_is_ingested_as_new_version_once(lake: Lake) -> None:
    lake.land("a", "old")
    lake.take()
    lake.land("a", "new")
    lake.take()
    lake.take()
    assert lake.lines() == {"old": 1, "new": 1}


def test_file_removed_and_restored_unchanged_is_not_ingested_again(lake: Lake) -> None:
    lake.land("a", "1")
    lake.take()
    assert isinstance(lake.store, MemoryStore)
    objects = lake.store.objects
    kept = objects.pop("landing/a")
    lake.take()
    objects["landing/a"] = kept
    assert lake.take().files == 0


def test_ingestion_batch_respects_file_limit(lake: Lake) -> None:
    for i in range(7):
        lake.land(f"{i}", str(i))
    report = lake.take(max_files=3)
    assert (report.commits, report.files, lake.versions()) == (3, 7, 3)


def test_ingestion_batch_respects_byte_limit_except_for_large_file(lake: Lake) -> None:
    for i in range(4):
        lake.land(f"{i}", "x" * 9)
    lake.land("large", "y" * 99)
    report = lake.take(max_bytes=20)
    assert (report.commits, report.files) == (3, 5)


def test_ingestion_round_leaves_rest_for_next_and_reports_backlog(lake: Lake) -> None:
    count = BATCHES + 3
    etags = [lake.land(f"{i:02}", str(i)) for i in range(count)]
    report = lake.take(max_files=1)
    assert (report.commits, report.waiting.files) == (BATCHES, 3)
    assert report.waiting.bytes == sum(len(f"{i}\n") for i in range(BATCHES, count))
    oldest = lake.store.stat(f"landing/{BATCHES:02}").modified
    assert report.waiting.since() == report.current_until == oldest
    assert lake.take(max_files=1).waiting.files == 0
    assert sum(lake.lines().values()) == len(etags)


def test_oldest_files_are_ingested_first(lake: Lake) -> None:
    for key in ("c", "a", "b"):
        lake.land(key, key)
    report = lake.take(max_files=1)
    records = list(DatasetLog(lake.store, UUID).history())
    assert [record.version for record in records] == [3, 2, 1]
    assert report.page.last_file == "landing/b"


def test_ingestion_round_without_files_writes_nothing(lake: Lake) -> None:
    report = lake.take()
    assert (report.commits, report.page, report.current_until) == (0, Page(), lake.now)
    assert list(lake.store.list("")) == []


def test_sources_of_one_dataset_keep_separate_ledgers(lake: Lake) -> None:
    lake.land("a", "1")
    lake.take()
    assert lake.take(source="other").files == 1
    assert lake.take(source="other").files == lake.take().files == 0
    assert lake.lines() == {"1": 2}


# --- bad files -------------------------------------------------------------------------------------------------------


def test_bad_file_stalls_source_after_older_files(lake: Lake) -> None:
    lake.land("a", "1")
    lake.land("b", "fine", "bad one")
    lake.land("c", "3")
    report = lake.take()
    stalled = refusal(report)
    assert (stalled.key, stalled.reason) == ("landing/b", "DataTypeMismatch")
    assert stalled.message == "'landing/b', row 2: 'bad one' is no line"
    assert lake.lines() == {"1": 1}
    assert report.waiting.files == 2


def test_stalled_source_resumes_after_file_is_replaced(lake: Lake) -> None:
    lake.land("a", "bad")
    lake.land("b", "2")
    stalled = refusal(lake.take())
    assert refusal(lake.take(stalled=stalled)) == stalled
    lake.land("a", "1")
    report = lake.take(stalled=stalled)
    assert report.stalled is None
    assert lake.lines() == {"1": 1, "2": 1}


def test_known_bad_file_is_not_read_again(lake: Lake) -> None:
    lake.land("a", "bad")
    stalled = refusal(lake.take())
    loader = lake.loader()
    assert refusal(lake.round(loader=loader, stalled=stalled).run()) == stalled
    assert loader.loads == 0


def test_known_bad_file_is_read_again_after_table_change(lake: Lake) -> None:
    """It may not have gone with the columns of that version."""
    lake.land("a", "1")
    lake.land("b", "bad")
    before_the_first_commit = refusal(lake.take())
    loader = lake.loader()
    now = refusal(lake.round(loader=loader, stalled=before_the_first_commit).run())
    assert (before_the_first_commit.version, now.version, loader.loads) == (0, 1, 1)


def test_source_with_quarantine_skips_bad_files(lake: Lake) -> None:
    for i in range(40):
        lake.land(f"{i:02}", "bad" if i in (3, 17, 39) else str(i))
    report = lake.take(quarantine=True)
    assert (report.commits, report.files, report.quarantined, report.stalled) == (1, 37, 3, None)
    assert [each.key for each in report.refused] == ["landing/03", "landing/17", "landing/39"]
    again = lake.take(quarantine=True)
    assert (again.commits, again.files, again.quarantined, again.waiting.files) == (0, 0, 3, 0)
    assert sum(lake.lines().values()) == 37


def test_replaced_quarantined_file_is_ingested_and_leaves_quarantine(lake: Lake) -> None:
    lake.land("a", "1")
    lake.land("b", "bad")
    lake.take(quarantine=True)
    lake.land("b", "2")
    report = lake.take(quarantine=True)
    assert (report.files, report.quarantined) == (1, 0)
    assert lake.lines() == {"1": 1, "2": 1}


def test_changed_read_options_retry_quarantined_files(lake: Lake) -> None:
    lake.land("a", "1")
    lake.land("b", "bad")
    assert lake.take(quarantine=True).quarantined == 1
    again = lake.take(quarantine=True, reading="r2")
    assert [each.key for each in again.refused] == ["landing/b"]
    assert again.quarantined == 1
    assert lake.take(quarantine=True, reading="r2").refused == ()
    assert lake.lines() == {"1": 1}


def test_quarantine_without_good_files_commits_without_rows(lake: Lake) -> None:
    lake.land("a", "1")
    lake.take()
    lake.land("b", "bad")
    report = lake.take(quarantine=True)
    assert (report.commits, report.rows, report.files) == (1, 0, 0)
    assert report.page.last_file == "landing/a"
    assert lake.versions() == 2


def test_bad_files_before_first_table_wait_for_good_file(lake: Lake) -> None:
    lake.land("a", "bad")
    report = lake.take(quarantine=True)
    assert (refusal(report).key, report.commits, report.waiting.files) == ("landing/a", 0, 1)
    lake.land("b", "2")
    report = lake.take(quarantine=True, max_files=1)
    assert (report.stalled, report.files, report.waiting.files) == (None, 1, 1)
    assert lake.take(quarantine=True).quarantined == 1


@pytest.mark.parametrize(("line", "quarantine"), [("bad", True), ("# no row", False)])
def test_good_file_behind_many_unusable_ones_creates_table(lake: Lake, line: str, quarantine: bool) -> None:
    for i in range(useless := BATCHES + 1):
        lake.land(f"{i:02}", line)
    report = lake.take(max_files=1, quarantine=quarantine)
    assert (report.commits, report.waiting.files) == (0, useless)
    lake.land("good", "1")
    report = lake.take(max_files=1, quarantine=quarantine)
    assert (report.commits, report.files, report.stalled) == (1, 1, None)
    assert (report.waiting.files, report.waiting.bytes) == (useless, useless * len(f"{line}\n"))
    while report.waiting.files:
        report = lake.take(max_files=1, quarantine=quarantine)
        assert report.commits
    assert report.quarantined == (useless if quarantine else 0)
    assert lake.lines() == {"1": 1}


def test_file_without_rows_is_ingested_and_adds_no_rows(lake: Lake) -> None:
    lake.land("a", "1")
    lake.take()
    lake.store.put("landing/b", b"# only a header\n")
    report = lake.take()
    assert (report.files, report.rows, report.commits) == (1, 0, 1)
    assert lake.take().files == 0


def test_error_unrelated_to_files_ingests_nothing_and_blames_no_file(lake: Lake) -> None:
    class Unfit(LineLoader):
        def check(self, snapshot: object) -> None:
            raise InputError("the table is partitioned on something else")

    lake.land("a", "1")
    with pytest.raises(InputError, match="partitioned"):
        lake.round(loader=Unfit(lake.store, lake.store), quarantine=True).run()
    assert not [info for info in lake.store.list(".kubothek/") if "/intake/" in info.key]


def test_store_failure_during_read_blames_no_file(lake: Lake) -> None:
    class Away(LineLoader):
        def load(self, *_: object) -> object:  # type: ignore[override]
            raise StoreUnavailable("away")

    lake.land("a", "1")
    with pytest.raises(StoreUnavailable):
        lake.round(loader=Away(lake.store, lake.store), quarantine=True).run()


# --- files that change while they are read ---------------------------------------------------------------------------


@pytest.mark.parametrize("others", [0, 1, 5])
def test_file_overwritten_during_read_is_left_for_next_round(lake: Lake, others: int) -> None:
    lake.land("a", "old")
    for i in range(others):
        lake.land(f"b{i}", f"b{i}")
    loader = lake.loader()
    loader.before_end = lambda: loader.loads > 1 or lake.land("a", "new")
    report = lake.round(loader=loader).run()
    assert report.files == others
    assert lake.take().files == 1
    assert lake.lines() == {"new": 1} | {f"b{i}": 1 for i in range(others)}


def test_file_overwritten_between_listing_and_read_is_left_for_next_round(lake: Lake) -> None:
    lake.land("a", "old")
    lake.land("b", "2")
    through = FaultStore(lake.store)
    overwritten: list[str] = []

    def overwrite(name: str, key: str) -> None:
        if name == "get_with_info" and key == "landing/a" and not overwritten:
            overwritten.append(lake.land("a", "new"))

    through.before_call = overwrite
    assert lake.round(through).run().files == 1
    assert lake.take().files == 1
    assert lake.lines() == {"new": 1, "2": 1}


def test_file_deleted_during_read_is_skipped(lake: Lake) -> None:
    lake.land("a", "gone")
    lake.land("b", "2")
    loader = lake.loader()
    loader.before_end = lambda: lake.store.delete(["landing/a"])
    report = lake.round(loader=loader).run()
    assert (report.files, report.rows) == (1, 1)
    assert lake.lines() == {"2": 1}


# --- crashes, and two at once ----------------------------------------------------------------------------------------


def _prepared() -> Lake:
    lake = Lake()
    for i in range(6):
        lake.land(f"{i}", "bad" if i == 4 else str(i))
    lake.terms |= {"max_files": 2, "quarantine": True}
    return lake


def _crash_points() -> list[Fault]:
    lake = _prepared()
    counting = FaultStore(lake.store)
    lake.round(counting).run()
    return list(every_crash(counting.calls))


@pytest.mark.parametrize("fault", _crash_points(), ids=lambda f: f"{f.nth}{'-after' if f.after else ''}")
def test_round_killed_around_any_write_repeats_and_misses_no_file(fault: Fault) -> None:
    lake = _prepared()
    with pytest.raises(Crash):
        lake.round(FaultStore(lake.store, fault)).run()
    lake.take()
    assert lake.lines() == {str(i): 1 for i in (0, 1, 2, 3, 5)}
    assert lake.take().commits == 0


@pytest.mark.parametrize("fault", _crash_points(), ids=lambda f: f"{f.nth}{'-after' if f.after else ''}")
def test_round_with_lost_write_response_repeats_no_file(fault: Fault) -> None:
    lake = _prepared()
    lost = Fault(fault.calls, fault.nth, after=fault.after, error=StoreUnavailable("no answer"))
    with suppress(StoreUnavailable, Conflict, Contended):
        lake.round(FaultStore(lake.store, lost)).run()
    lake.take()
    assert lake.lines() == {str(i): 1 for i in (0, 1, 2, 3, 5)}


def _two_at_once_points() -> range:
    lake = _prepared()
    counting = FaultStore(lake.store)
    lake.round(counting).run()
    return range(len(counting.calls))


@pytest.mark.parametrize("at", _two_at_once_points())
def test_concurrent_round_at_any_call_repeats_no_file(at: int) -> None:
    """A pod that only looked lost: a whole round of another job, before any single call of this one."""
    lake = _prepared()
    through = FaultStore(lake.store)
    calls = 0

    def let_in(_name: str, _key: str) -> None:
        nonlocal calls
        calls += 1
        if calls == at + 1:
            through.before_call = None
            lake.land("new", "new")
            lake.take()

    through.before_call = let_in
    with suppress(Conflict, Contended):
        lake.round(through).run()
    lake.take()
    assert lake.lines() == {str(i): 1 for i in (0, 1, 2, 3, 5)} | {"new": 1}


def test_round_that_always_loses_race_raises_contended_without_ingesting(lake: Lake) -> None:
    through = FaultStore(lake.store)
    landed = 0
    listed = False

    def be_first(name: str, key: str) -> None:
        nonlocal landed, listed
        if (name, key) == ("list", "landing/"):
            landed += 1
            lake.land(f"{landed}", f"{landed}")
            listed = True
        elif listed and key == keys.head(UUID):
            listed = False
            lake.take()

    through.before_call = be_first
    loader = lake.loader()
    with pytest.raises(Contended):
        lake.round(through, loader).run()
    assert loader.loads == 0
    assert lake.lines() == {str(i): 1 for i in range(1, landed + 1)}


def test_round_with_concurrent_commit_is_rebased_without_second_read(lake: Lake) -> None:
    lake.land("a", "1")
    lake.take()
    lake.land("b", "2")
    through = FaultStore(lake.store)

    def commit_first(name: str, _key: str) -> None:
        if name == "put_if_match":
            through.before_call = None
            _commit_by_hand(lake)

    through.before_call = commit_first
    loader = lake.loader()
    assert lake.round(through, loader).run().files == 1
    assert loader.loads == 1
    assert lake.take().files == 0
    assert lake.lines() == {"1": 1, "2": 1, "by hand": 1}


def _commit_by_hand(lake: Lake) -> None:
    lake.store.put("elsewhere/x", b"by hand\n")
    info = lake.store.stat("elsewhere/x")
    began = DatasetLog(lake.store, UUID).begin("by hand", "digest")
    assert isinstance(began, Transaction)
    loader = lake.loader()
    written = loader.load(began.snapshot, [Landed(info.key, info.etag, info.size, info.modified)], None, {})
    began.commit(loader.change(began.snapshot, [written]))


# --- foreign writers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("erases", [False, True])
def test_ingestion_commit_overwritten_by_foreign_writer_is_merged_again(lake: Lake, erases: bool) -> None:
    """It read the head, then the source committed, then it put its own head over that (plateau, kartothek)."""
    lake.land("a", "1")
    lake.take()
    document = json.loads(lake.store.get(keys.head(UUID)))
    lake.land("b", "2")
    lake.take()
    lake.land("c", "3")
    if erases:  # kartothek's index build
        del document["metadata"]
    lake.store.put(keys.head(UUID), json.dumps(document).encode())
    lake.take()
    assert lake.lines() == {"1": 1, "2": 1, "3": 1}
    assert lake.take().commits == 0


def test_files_of_unmergeable_overwritten_commit_are_ingested_again(lake: Lake) -> None:
    """The later commit could be merged, but counts the files of the earlier one as taken."""
    lake.land("a", "1")
    lake.take()
    document = lake.store.get(keys.head(UUID))
    for name, line in (("b", "2"), ("c", "3")):
        lake.land(name, line)
        lake.take()
    _, lost, _ = DatasetLog(lake.store, UUID).snapshot().head.files().values()
    lake.store.put(keys.head(UUID), json.dumps({**json.loads(document), "theirs": True}).encode())
    lake.store.delete([lost])  # plateau's garbage collection
    lake.take()
    assert lake.lines() == {"1": 1, "2": 1, "3": 1}
    assert len(DatasetLog(lake.store, UUID).snapshot().head.overwritten) == 2
    assert lake.take().commits == 0


def test_source_with_deleted_ledger_stops_without_ingesting(lake: Lake) -> None:
    lake.land("a", "1")
    page = lake.take().page
    lake.store.delete([page.key])
    with pytest.raises(VersionIncomplete, match=page.key):
        lake.take()
    assert lake.lines() == {"1": 1}
