"""What reaches a collector, and what becomes of a process whose collector is not well."""

from __future__ import annotations

import logging
import socket
import threading

import pytest

from kubothek import tracing
from kubothek.tracing import Ended, Place, RunTrace, Stages, span
from kubothek.tracing.sending import RATIO, ratio_of
from tests.tracing.collector import collector, tree

pytestmark = pytest.mark.slow

RUN = RunTrace("5a0c1b52")


def in_a_thread() -> None:
    with span("in a thread"):
        pass


def some_work() -> None:
    """A process with two stages, of which the second fails in a thread."""
    stages = Stages()
    with tracing.process("job", RUN.attempt(1), verb="commit"):
        stages.enter("Reading")
        with span("plan", files=2):
            stages.enter("Reading")
        stages.enter("Writing")
        thread = threading.Thread(target=in_a_thread)
        thread.start()
        thread.join()
        with pytest.raises(ZeroDivisionError), span("fails"):
            raise ZeroDivisionError("by zero")
        stages.leave()


def test_spans_are_children_of_active_span(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    with collector() as found, tracing.sending(found.url, "test"):
        some_work()
        assert tracing.current() is None
    assert tree(found.spans) == {
        ("?", "job"),
        ("job", "Reading"),
        ("Reading", "plan"),
        ("job", "Writing"),
        ("Writing", "in a thread"),
        ("Writing", "fails"),
    }
    (job,), (fails,) = found.named("job"), found.named("fails")
    assert job.parent == f"{RUN.attempt(1).span:016x}"
    assert {span.trace for span in found.spans} == {f"{RUN.id:032x}"}
    assert fails.error == "ZeroDivisionError: by zero"


@pytest.mark.parametrize("how", ["refuses", "hangs", "is away", "is no url"])
def test_trace_collector_failure_is_logged_only(how: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kubothek.tracing")
    with collector(status=None if how == "hangs" else 500) as found, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        urls = {"is away": f"http://127.0.0.1:{closed.getsockname()[1]}", "is no url": "collector:4317"}
        with tracing.sending(urls.get(how, found.url), "test"):
            some_work()
        assert found.asked.is_set() == (how in ("refuses", "hangs")), "it was tried, where there was one"
        assert not found.spans
    (ended,) = [each.getMessage() for each in caplog.records if each.name.startswith("kubothek")]
    assert ("no URL" if how == "is no url" else "6 of 6 spans were not taken") in ended


def test_spans_above_buffer_limit_are_dropped_without_blocking() -> None:
    with collector(status=None) as found, tracing.sending(found.url, "test"):
        for number in range(20_000):
            tracing.emit(Ended(name="many", place=Place(RUN.id, number + 1), parent=None, begin=1, end=2))
    assert not found.spans


def test_trace_sampling_decision_is_consistent_for_each_run() -> None:
    runs = [RunTrace(str(number)) for number in range(4000)]
    for ratio in (0.0, 0.1, 1.0):
        assert abs(sum(run.sampled(ratio) for run in runs) / len(runs) - ratio) < 0.03
    assert all(run.sampled(0.5) for run in runs if run.sampled(0.1))
    assert RunTrace("a").attempt(1) == RunTrace("a").attempt(1) != RunTrace("a").attempt(2)
    assert ratio_of({}) == 1
    assert ratio_of({RATIO: "0.25"}) == 0.25
    for wrong in ("2", "-1", "nan", "some"):
        with pytest.raises(ValueError, match=RATIO):
            ratio_of({RATIO: wrong})


@pytest.mark.parametrize(
    "text",
    ["", "00", f"00-{'0' * 32}-{'1' * 16}-01", f"00-{'1' * 32}-{'0' * 16}-01", f"00-{'1' * 32}-{'1' * 16}-00"],
)
def test_traceparent_header_that_is_invalid_is_ignored(text: str) -> None:
    assert Place.of_header(text) is None


def test_traceparent_header_survives_roundtrip() -> None:
    assert Place.of_header(RUN.attempt(3).header) == RUN.attempt(3)
