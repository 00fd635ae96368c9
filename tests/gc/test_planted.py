"""Each rule of the collector left out once: a test notices. A rule that nobody would miss is not tested."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kubothek.errors import LakeError
from kubothek.gc import collection, mark, plan
from kubothek.gc.areas import Area, Turn, turn
from kubothek.gc.mark import Moment, References
from kubothek.gc.plan import Sweep
from kubothek.gc.sorted_keys import unreferenced
from kubothek.storage import ObjectInfo
from tests.gc import test_collect, test_crash, test_races

pytestmark = pytest.mark.slow

Plant = Callable[[pytest.MonkeyPatch], None]


def setting(target: object, name: str, value: object) -> Plant:
    return lambda patch: patch.setattr(target, name, value)


def marks_no_young_records(
    journal: object, listing: Iterator[ObjectInfo], records: Area, moment: Moment, into: References, young: object
) -> Iterator[ObjectInfo]:
    return (i for i in unreferenced(listing, into.of(records)) if not moment.is_young(i.modified))


def young_record_naming_an_old_file() -> None:
    test_collect.test_uncommitted_record_expires_before_its_files(test_collect.four_versions())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "notices"),
    [
        pytest.param(
            setting(plan, "turn", lambda kind, key: Turn(2 - turn(kind, key))),
            lambda: test_crash.test_collection_crash_at_any_call_loses_no_data(after=True),
            id="files go before what names them",
        ),
        pytest.param(
            setting(plan, "turn", lambda kind, key: Turn.COMMITS),
            test_crash.test_deletion_interrupted_within_batch_loses_no_data,
            id="everything goes at once",
        ),
        pytest.param(
            setting(Moment, "is_young", lambda self, written: False),
            test_races.test_writer_with_uploaded_files_commits_during_collection,
            id="no grace period",
        ),
        pytest.param(
            setting(mark, "may_be_read", lambda **_: False),
            test_races.test_plateau_commit_on_expired_version_within_grace_loses_no_data,
            id="versions go as soon as they expire",
        ),
        pytest.param(
            setting(collection, "mark_young_records", marks_no_young_records),
            young_record_naming_an_old_file,
            id="commits on their way are not read",
        ),
        pytest.param(
            setting(References, "resolve", lambda self: None),
            lambda: test_crash.test_collection_crash_at_any_call_loses_no_data(after=False),
            id="manifests are not read",
        ),
        pytest.param(
            setting(collection._Run, "_anchor", lambda self: None),
            lambda: test_crash.test_collection_crash_at_any_call_loses_no_data(after=False),
            id="no checkpoint before records go",
        ),
        pytest.param(
            setting(collection._Run, "_expire", lambda self: (None, frozenset())),
            test_races.test_swap_delayed_beyond_grace_period_loses_no_data,
            id="no commit before the sweep",
        ),
        pytest.param(
            setting(collection._Run, "_needed_since", lambda self, key: frozenset()),
            test_races.test_swap_delayed_beyond_grace_period_loses_no_data,
            id="what came before the expiry is not looked at",
        ),
        pytest.param(
            setting(Sweep, "_current_etag", lambda self, store, etag: etag),
            test_races.test_grace_period_extended_during_collection_is_respected,
            id="nothing is looked at again",
        ),
    ],
)
def test_planted_gc_bug_is_detected_by_tests(
    plant: Plant, notices: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, LakeError)):
        notices()
