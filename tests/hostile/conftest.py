"""The corpus, and a store to try it on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

import kubothek
from kubothek.api.jobs import JobResult
from kubothek.catalog import Lake
from kubothek.jobs.main import perform
from kubothek.jobs.progress import Reporter

CORPUS: Mapping[str, list[dict[str, Any]]] = yaml.safe_load(Path(__file__).with_name("corpus.yaml").read_text())
CLAIM = {"owner": "cluster/default/flights", "incarnation": "uid-1"}


def cases(kind: str, every: int = 1) -> pytest.MarkDecorator:
    """The entries of a kind, or a sample of them, by their names."""
    chosen = CORPUS[kind][::every]
    return pytest.mark.parametrize("case", chosen, ids=[case["name"] for case in chosen])


@dataclass(frozen=True)
class Site:
    """A store with a dataset ``flights``, and a secret beside it."""

    root: Path
    outside: Path
    lake: Lake

    @property
    def store(self) -> dict[str, str]:
        """The store as jobs name it."""
        return {"name": "lake", "url": self.root.as_uri()}

    def objects(self) -> dict[str, str]:
        """All that is in the store, and outside of it."""
        outside = {path.name: path.read_text() for path in self.outside.iterdir()}
        return {info.key: info.etag for info in self.lake.store.list("") if not _is_account(info.key)} | outside

    def run(self, job: Mapping[str, Any]) -> JobResult:
        """Do a job as its pod would; what stood in the store before must stand there after."""
        before = self.objects()
        path = self.outside.with_name("job.json")
        path.write_text(json.dumps({"job": "j-1", "uid": "uid-j", "store": self.store, **job}))
        result, _ = perform([str(path)], Reporter())
        assert self.objects() == before
        assert result.outcome == "Failed", result
        return result

    def query(self, sql: str, **changes: Any) -> JobResult:
        location = {"store": self.store, "path": "reports", "format": "CSV"}
        limits = {"memory_bytes": 100 << 20, "time_limit_seconds": 60}
        return self.run({"verb": "query", "sql": sql, "location": location} | limits | changes)

    def commit(self, **changes: Any) -> JobResult:
        dataset = {"uuid": "flights", "claim": CLAIM, "table": {"partition_on": ["month"]}}
        return self.run({"verb": "commit", "dataset": dataset, "commit_id": "c", "digest": "d"} | changes)


def _is_account(key: str) -> bool:
    """What a job leaves of itself, whatever it was asked for: its result, the claim of its Dataset."""
    return "/jobs/" in key or key.endswith("/owner.json")


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    root, outside = tmp_path_factory.mktemp("hostile"), tmp_path_factory.mktemp("outside")
    (outside / "secret.csv").write_text("secret\n1\n")
    lake = kubothek.open(root.as_uri())
    lake.create_dataset("flights", ["month"]).append(pa.table({"month": [1, 2], "carrier": ["AA", "UA"]}))
    return Site(root, outside, lake)
