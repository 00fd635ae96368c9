"""A lake that keeps itself (:mod:`tests.e2e.soaking`), judged when the others are through."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from tests.e2e.soaking import LIMIT

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(LIMIT)]


def test_every_row_is_there_for_every_reader_and_no_garbage_stays(soaked: Future[None]) -> None:
    soaked.result()
