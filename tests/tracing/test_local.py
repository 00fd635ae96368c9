"""One commit by the local runtime is one trace, and a collector can do no harm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kubothek.local.manifests import load
from kubothek.local.session import Report, session
from tests.local.manifests import STORE, commit, dataset, write
from tests.tracing.collector import collector, tree

pytestmark = pytest.mark.slow  # each test starts processes


def run(directory: Path, content: str = "a,b\n1,x\n2,y\n") -> Report:
    source = directory / "store" / "sources" / "ok.csv"
    source.parent.mkdir(parents=True)
    source.write_text(content)
    with session(load([write(directory, STORE, dataset("flights"), commit("first", "flights"))]), directory) as running:
        return running.run(lambda _: None)


def test_local_commit_is_one_connected_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
    with collector() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
        assert run(tmp_path).fine
    (whole,) = found.named("Commit")
    spans = [span for span in found.spans if span.trace == whole.trace]
    assert tree(spans) == {
        ("", "Commit"),
        ("Commit", "queue wait"),
        ("Commit", "attempt"),
        ("attempt", "launch"),
        ("attempt", "pending"),
        ("attempt", "job"),
        ("job", "Starting"),
        ("job", "Reading"),
        ("Reading", "plan"),
        ("job", "Writing"),
        ("job", "Committing"),
        ("Committing", "swap"),
    }
    assert len({span.id for span in spans}) == len(spans)
    assert {span.service for span in spans} == {"kubothek-run", "kubothek-job"}
    assert (whole.attributes["kubothek.name"], whole.attributes["kubothek.rows"]) == ("first", 2)
    by_name = {span.name: span for span in spans}
    assert by_name["job"].attributes["kubothek.verb"] == "commit"
    assert by_name["swap"].attributes == {"attempt": 1, "conflicts": 0, "outcome": "won"}
    assert all(span.begin <= span.end and not span.error for span in spans)
    others = {span.trace for span in found.named("attempt")} - {whole.trace}
    assert len(others) == 1, "the inspection of the store is a trace of its own"


def test_local_commit_failure_is_recorded_in_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
        assert not run(tmp_path, 'a,b\n1,"x\n').fine
    (whole,) = found.named("Commit")
    errors = {span.name: span.error for span in found.spans if span.trace == whole.trace and span.error}
    assert {"Commit", "attempt", "job"} <= errors.keys()
    assert "ok.csv" in errors["job"]


def test_unresponsive_trace_collector_does_not_affect_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with collector(status=None) as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        assert run(tmp_path).fine
        assert found.asked.is_set(), "it was tried"
        assert not found.spans


def test_tracing_libraries_are_not_imported_without_endpoint() -> None:
    program = (
        "import sys, kubothek.jobs.main, kubothek.cli.main, kubothek.local.session\n"
        "from kubothek.jobs.main import traced\n"
        "with traced({'TRACEPARENT': '', 'OTEL_EXPORTER_OTLP_ENDPOINT': 'http://collector:4318'}): pass\n"
        "with traced({'TRACEPARENT': '00-' + 'a' * 32 + '-' + 'b' * 16 + '-01'}): pass\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
