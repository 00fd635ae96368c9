"""Errors on their way from a task to the driver, and what Spark does when a task or an executor fails."""

from __future__ import annotations

import pytest

from kubothek import errors
from kubothek.errors import LakeError
from kubothek.spark.tasks import Failure, Joined

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, LakeError)]


@pytest.mark.parametrize("kind", KINDS)
def test_errors_of_every_kind_arrive_as_they_left(kind: type[LakeError]) -> None:
    arrived = Failure(3, kind.__name__, "what, where, what to do").error()
    assert type(arrived) is kind
    assert str(arrived) == "what, where, what to do"


def test_failures_of_all_tasks_are_kept() -> None:
    joined = Joined()
    first, second = Failure(1, "SourceEmpty", "a"), Failure(0, "SourceCorrupt", "b")
    assert joined.addInPlace(joined.addInPlace(joined.zero([]), [first]), [second]) == [first, second]
