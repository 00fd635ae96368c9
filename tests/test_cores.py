"""Which cores a process may use."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from kubothek.cores import available_cores


@pytest.fixture(autouse=True)
def _many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    unlimited = resource.RLIM_INFINITY, resource.RLIM_INFINITY
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(resource, "getrlimit", lambda limit: unlimited)


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("max 100000", 8), ("400000 100000", 4), ("150000 100000", 1), ("50000 100000", 1), ("3200000 100000", 8)],
)
def test_available_cores_are_those_of_the_affinity_and_the_quota(tmp_path: Path, quota: str, cores: int) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(quota + "\n")
    assert available_cores(file) == cores


@pytest.mark.parametrize("text", [None, "", "what is this"])
def test_available_cores_without_a_readable_quota_are_those_of_the_affinity(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "cpu.max"
    if text is not None:
        file.write_text(text)
    assert available_cores(file) == 8


@pytest.mark.parametrize("limited", [resource.RLIMIT_AS, resource.RLIMIT_DATA])
def test_process_with_limited_address_space_has_one_core(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limited: int
) -> None:
    def getrlimit(limit: int) -> tuple[int, int]:
        return (1 << 32, 1 << 32) if limit == limited else (resource.RLIM_INFINITY, resource.RLIM_INFINITY)

    monkeypatch.setattr(resource, "getrlimit", getrlimit)
    assert available_cores(tmp_path / "none") == 1
