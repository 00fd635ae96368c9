"""The event recorder: series instead of repetition, a token bucket, and never in the way. Time is simulated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from kubothek.cluster.api import Api, ApiUnavailable
from kubothek.cluster.telemetry.events import EventRecorder, TokenBucket
from kubothek.controller.context import Event

pytestmark = [pytest.mark.looptime, pytest.mark.asyncio]

FAILED = Event("Warning", "Failed", "no bucket")


class Recorded:
    """Takes what would be sent; ``fails`` makes the next call fail."""

    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []
        self.patched: list[tuple[str, int]] = []
        self.fails = False

    async def create(self, kind: str, namespace: str, obj: dict[str, Any]) -> dict[str, Any]:
        if self.fails:
            self.fails = False
            raise ApiUnavailable("down")
        self.created.append(obj)
        return obj

    async def merge_patch(self, kind: str, namespace: str, name: str, patch: dict[str, Any]) -> dict[str, Any]:
        self.patched.append((name, patch["series"]["count"]))
        return {}


def about(name: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "1"}
    return {"apiVersion": "kubothek.io/v1alpha1", "kind": "Dataset", "metadata": meta}


@pytest.fixture
async def sent() -> AsyncIterator[tuple[EventRecorder, Recorded]]:
    api = Recorded()
    recorder = EventRecorder(cast("Api", api), "here", bucket=TokenBucket(rate=1, burst=3))
    task = asyncio.create_task(recorder.run())
    yield recorder, api
    task.cancel()


async def test_repeated_event_becomes_series(sent: tuple[EventRecorder, Recorded]) -> None:
    recorder, api = sent
    for _ in range(3):
        recorder.emit(about("a"), FAILED)
    await recorder.drain()
    assert len(api.created) == 1
    assert api.patched == [(api.created[0]["metadata"]["name"], 2), (api.created[0]["metadata"]["name"], 3)]


async def test_event_with_other_object_reason_or_text_is_separate(sent: tuple[EventRecorder, Recorded]) -> None:
    recorder, api = sent
    recorder.emit(about("a"), FAILED)
    recorder.emit(about("b"), FAILED)
    recorder.emit(about("a"), Event("Normal", "Succeeded", "no bucket"))
    recorder.emit(about("a"), Event("Warning", "Failed", "no key"))
    await recorder.drain()
    assert len({obj["metadata"]["name"] for obj in api.created}) == 4


async def test_event_series_ends_after_its_window(sent: tuple[EventRecorder, Recorded]) -> None:
    recorder, api = sent
    recorder.emit(about("a"), FAILED)
    await recorder.drain()
    await asyncio.sleep(601)
    recorder.emit(about("a"), FAILED)
    await recorder.drain()
    assert (len(api.created), api.patched) == (2, [])


async def test_event_burst_is_sent_at_bucket_rate(sent: tuple[EventRecorder, Recorded]) -> None:
    recorder, api = sent
    started = asyncio.get_running_loop().time()
    for index in range(13):
        recorder.emit(about(str(index)), FAILED)
    await recorder.drain()
    assert len(api.created) == 13
    assert asyncio.get_running_loop().time() - started == pytest.approx(10, abs=0.1)


async def test_event_overflow_is_dropped_without_blocking(sent: tuple[EventRecorder, Recorded]) -> None:
    recorder, api = sent
    for index in range(5000):
        recorder.emit(about(str(index)), FAILED)
    await recorder.drain()
    assert 1000 <= len(api.created) < 1100


async def test_event_that_cannot_be_sent_is_dropped(sent: tuple[EventRecorder, Recorded]) -> None:
    recorder, api = sent
    api.fails = True
    recorder.emit(about("a"), FAILED)
    recorder.emit(about("b"), FAILED)
    await recorder.drain()
    assert [obj["regarding"]["name"] for obj in api.created] == ["b"]


async def test_event_with_long_name_and_note_is_truncated_to_api_limits(sent: tuple[EventRecorder, Recorded]) -> None:
    recorder, api = sent
    recorder.emit(about("n" * 253), Event("Normal", "Succeeded", "x" * 5000))
    await recorder.drain()
    assert len(api.created[0]["metadata"]["name"]) <= 253
    assert len(api.created[0]["note"]) == 1024
