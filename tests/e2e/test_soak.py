"""A lake that keeps itself (:mod:`tests.e2e.soaking`)."""

from __future__ import annotations

import pytest

from tests.e2e.soaking import LIMIT, keep_house
from tests.e2e.workspace import Workspace

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(LIMIT)]


def test_soak_keeps_every_row_readable_and_leaves_no_garbage(soak: Workspace) -> None:
    keep_house(soak)
