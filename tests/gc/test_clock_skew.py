"""A machine with a wrong clock collects exactly what one with the right clock would: ages are by the store's clock."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kubothek.gc import Mode, Retention, collect
from kubothek.table.log import DatasetLog
from tests.gc.aging import GRACE, AgingStore, contents, dangling
from tests.gc.test_collect import four_versions
from tests.table.log.table import CLAIM, UUID

pytestmark = pytest.mark.slow

SKEWS = [timedelta(0), timedelta(hours=3), timedelta(days=400), -timedelta(hours=3), -timedelta(days=400)]


def collected(
    skew: timedelta, policy: Retention, *, later: timedelta
) -> tuple[AgingStore, set[str], dict[int, list[int]]]:
    """The store after a collection by a machine whose clock differs by ``skew``: its old objects, and its versions."""
    store = four_versions()
    before = set(store.objects)
    store.pass_by(later)
    log = DatasetLog(store, UUID, claim=CLAIM, clock=lambda: store.now + skew)
    collect(store, log, [policy], mode=Mode.ENFORCE)
    return store, before & set(store.objects), contents(store)


@pytest.mark.parametrize("later", [timedelta(0), GRACE / 2, 3 * GRACE], ids=["at once", "within the grace", "after it"])
@pytest.mark.parametrize("policy", [Retention(versions=2), Retention(time=1.5 * GRACE)], ids=["number", "age"])
def test_collected_objects_do_not_depend_on_local_clock(policy: Retention, later: timedelta) -> None:
    right, kept, versions = collected(SKEWS[0], policy, later=later)
    assert dangling(right) == []
    for skew in SKEWS[1:]:
        store, others, readable = collected(skew, policy, later=later)
        assert {key for key in others if "/commits/" not in key} == {key for key in kept if "/commits/" not in key}
        assert len(others) == len(kept)
        assert readable == versions
        assert dangling(store) == []
