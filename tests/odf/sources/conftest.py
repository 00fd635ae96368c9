from __future__ import annotations

import os
from typing import Any

import pyarrow as pa
import pytest

from kubothek.ingest import UrlPolicy
from kubothek.ingest.fetch import retries
from kubothek.odf.sources.fetch import FetchContext, Fetched, UpToDate, poll
from kubothek.odf.sources.readers import FileContent, read
from kubothek.odf.spec.events import SetPollingSource, SourceState
from kubothek.odf.spec.sources import FetchStep, MergeStrategyAppend, ReadStep, ReadStepCsv
from kubothek.odf.spec.timestamps import Timestamp
from tests.webserver import web

__all__ = ["web"]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not answer is asked again at once."""
    monkeypatch.setattr(retries, "PAUSES", (0.0, 0.0, 0.0))


SOAK = bool(os.environ.get("KUBOTHEK_SOAK"))
NOW = Timestamp.parse("2026-11-22T13:00:00.123456Z")
NOW_MS = Timestamp.parse("2026-11-22T13:00:00.123Z")
LOCAL = UrlPolicy(("localhost", "127.0.0.1"), allow_local=True)
CSV = ReadStepCsv(ddl_schema=("a BIGINT", "b STRING"))


def table(step: ReadStep, data: bytes | str, name: str = "in.txt") -> pa.Table:
    """All rows that a read step finds."""
    rows = read(step, FileContent.of_bytes(data.encode() if isinstance(data, str) else data, name))
    assert rows is not None
    return rows.read_all()


def rows_of(step: ReadStep, data: bytes | str, name: str = "in.txt") -> list[dict[str, Any]]:
    return table(step, data, name).to_pylist()


def context(**options: Any) -> FetchContext:
    return FetchContext(**{"policy": LOCAL, "now": NOW, **options})


def source(fetch: FetchStep, step: ReadStep = CSV, **options: Any) -> SetPollingSource:
    return SetPollingSource(fetch=fetch, read=step, merge=MergeStrategyAppend(), **options)


def polled(
    fetch: FetchStep,
    state: SourceState | None = None,
    step: ReadStep = CSV,
    ctx: FetchContext | None = None,
    **more: Any,
) -> Fetched:
    found = poll(source(fetch, step, **more), state, ctx or context())
    assert isinstance(found, Fetched), found
    return found


def is_up_to_date(fetch: FetchStep, state: SourceState | None, ctx: FetchContext | None = None) -> bool:
    return poll(source(fetch), state, ctx or context()) == UpToDate()


def all_rows(found: Fetched) -> list[dict[str, Any]]:
    assert found.rows is not None
    return found.rows.read_all().to_pylist()
