"""A source whose files are lines of text, over a store in memory: every line becomes a row of one data file."""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kubothek.errors import DataTypeMismatch, ObjectNotFound, SourceChanged, SourceEmpty, SourceNotFound
from kubothek.ingest.watch import Landed, Landing, Refusal, Report, Round, Terms
from kubothek.storage import Store
from kubothek.table.log import Change, Claim, DatasetLog, Operation, PartitionFile, Snapshot
from kubothek.table.operations import Written, append
from tests.table.log.memory import MemoryStore

UUID = "flights"
SCHEMA = pa.schema({"line": pa.string()})


@dataclass
class LineLoader:
    """Rows are lines; a line ``bad …`` makes its file unreadable, and one with ``#`` is none."""

    store: Store
    landed_in: Store
    loads: int = 0
    before_end: Callable[[], object] = lambda: None
    """Called when the files were read, and before anybody looks whether they are still the same."""
    written: list[str] = field(default_factory=list)

    def check(self, snapshot: Snapshot) -> None:
        pass

    def load(
        self, snapshot: Snapshot, files: Sequence[Landed], schema: pa.Schema | None, zones: Mapping[str, str]
    ) -> Written:
        self.loads += 1
        lines: list[str] = []
        for file in files:
            try:
                data, info = self.landed_in.get_with_info(file.key)
            except ObjectNotFound:
                raise SourceNotFound(file.key) from None
            if info.etag != file.etag:
                raise SourceChanged(file.key)
            for number, line in enumerate(data.decode().splitlines(), 1):
                if line.startswith("bad"):
                    raise DataTypeMismatch(f"{file.key!r}, row {number}: {line!r} is no line")
                lines += [line] if not line.startswith("#") else []
        self.before_end()
        if not lines:
            raise SourceEmpty("no rows")
        sink = io.BytesIO()
        pq.write_table(pa.table({"line": lines}, schema=SCHEMA), sink)
        label = f"{random.getrandbits(64):016x}"
        key = f"{UUID}/table/{label}.parquet"
        self.store.put(key, sink.getvalue())
        self.written.append(key)
        return Written((PartitionFile(label, key, len(lines), sink.tell()),), SCHEMA, ())

    def change(self, snapshot: Snapshot, written: Sequence[Written]) -> Change:
        return append(Written.joined(written)) if written else Change(operation=Operation.APPEND)


class Lake:
    """A dataset and the place where its files land, in one store."""

    def __init__(self, store: Store | None = None) -> None:
        self.store: Store = store or MemoryStore()
        self.now = datetime.now(UTC) + timedelta(days=1)
        self.terms: dict[str, Any] = {"max_files": 1000, "max_bytes": 1 << 30, "reading": "r1", "quarantine": False}

    def land(self, key: str, *lines: str) -> str:
        """Upload a file; its ETag."""
        return self.store.put(f"landing/{key}", "".join(f"{line}\n" for line in lines).encode())

    def loader(self, store: Store | None = None) -> LineLoader:
        return LineLoader(store or self.store, store or self.store)

    def round(self, store: Store | None = None, loader: LineLoader | None = None, **terms: Any) -> Round:
        """A round as a job runs it; through ``store``, if something is to go wrong there."""
        through = store or self.store
        log = DatasetLog(through, UUID, claim=Claim("cluster/ns/flights", "uid-1"), patience=timedelta(seconds=5))
        asked: dict[str, Any] = {"source": "lines", "landing": Landing.of("landing/")} | self.terms | terms
        return Round(log, through, through, Terms(**asked), loader or self.loader(through), clock=lambda: self.now)

    def take(self, **terms: Any) -> Report:
        return self.round(**terms).run()

    def lines(self) -> Counter[str]:
        """All rows of the table."""
        head = DatasetLog(self.store, UUID).snapshot().head
        found: Counter[str] = Counter()
        for key in head.files().values():
            rows = pq.read_table(io.BytesIO(self.store.get(key))).to_pylist()
            found.update(row["line"] for row in rows)
        return found

    def versions(self) -> int:
        return DatasetLog(self.store, UUID).snapshot().version


def refusal(report: Report) -> Refusal:
    """The file at which a round stalled."""
    assert report.stalled is not None
    return report.stalled


@pytest.fixture
def lake() -> Lake:
    return Lake()
