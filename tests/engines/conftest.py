"""Tables that all engines read, and the engines, each of them once a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import kubothek
from tests.engines.engine import PACKAGES, Engine
from tests.engines.histories import HISTORIES, Sample, adopted_history, random_history


@pytest.fixture(scope="session", params=PACKAGES)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with Engine(request.param) as found:
        yield found


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> list[Sample]:
    """Tables of random histories, and one that plateau wrote."""
    lake = kubothek.open(tmp_path_factory.mktemp("lake of 100 % ü"))
    return [
        *(random_history(lake, number) for number in range(HISTORIES)),
        adopted_history(tmp_path_factory.mktemp("a")),
    ]
