"""Errors on their way from a task to the driver, and what Spark does when a task or an executor fails."""

from __future__ import annotations

import pytest

from kubothek import errors
from kubothek.errors import LakeError
from kubothek.spark.tasks import Failure, Joined

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, LakeError)]


@pytest.mark.parametrize("kind", KINDS)
def test_task_error_of_each_kind_arrives_unchanged(kind: type[LakeError]) -> None:
    arrived = Failure(3, kind.__name__, "what, where, what to do").error()
    assert type(arrived) is kind
    assert str(arrived) == "what, where, what to do"


def test_task_failures_are_all_collected() -> None:
    joined = Joined()
    first, second = Failure(1, "SourceEmpty", "a"), Failure(0, "SourceCorrupt", "b")
    assert joined.addInPlace(joined.addInPlace(joined.zero([]), [first]), [second]) == [first, second]
