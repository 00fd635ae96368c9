"""Long chains: what the first pull of one takes, by each way there is, and what it costs to learn that nothing is new.

The bar of issue 10: a sync of a dataset with 100,000 blocks that did not change costs O(1) requests.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from benchmarks.gateway import NAME, served
from benchmarks.places import Place
from kubothek.lake.commits import DatasetLog
from kubothek.lake.exchange import Reach, Web, pull_remote
from kubothek.lake.ledger import Block, Layout
from kubothek.lake.ledger.formats.events import DatasetKind, MetadataBlock, Seed, SetInfo
from kubothek.lake.ledger.formats.identity import OwnerKey
from kubothek.lake.ledger.formats.timestamps import Timestamp
from kubothek.lake.store import Store

_LAYOUT: Final = Layout()
_START: Final = Timestamp.parse("2026-11-22T00:00:00Z")


@dataclass(frozen=True)
class Pulls:
    """Each way: seconds of the first pull and its requests, those of one when nothing is new, and MB of memory."""

    title: str
    rows: list[tuple[str, float, int, float, int, float]]

    def render(self) -> str:
        """As Markdown."""
        lines = [
            f"### {self.title}",
            "",
            "| from | first pull | requests | nothing new | requests | MB of memory at most |",
            "|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {n} | {s:,.1f} s | {r:,} | {m * 1000:,.1f} ms | {q:,} | {p:,.0f} |" for n, s, r, m, q, p in self.rows
        ]
        return "\n".join(lines) + "\n"


def run(place: Place, blocks: int) -> Iterator[Pulls]:
    """Pull the chain from a directory; then from a gateway over what was pulled."""
    theirs = place.root("theirs").scratch
    build(theirs, blocks)
    first = place.root("first")
    rows = [measured("a directory", first.lake().store, theirs.as_uri())]
    with served(first.url, first.endpoint) as (gateway, _):
        for name, url in (("a gateway, https", f"{gateway}/{NAME}"), ("a gateway, odf+https", f"odf+{gateway}/{NAME}")):
            rows.append(measured(name, place.root(f"into-{len(rows)}").lake().store, url))
    yield Pulls(f"a chain of {blocks:,} blocks, {place.name}", rows)


def build(root: Path, blocks: int) -> None:
    """A sound chain of cheap events below a directory, in the layout of the simple transfer protocol."""
    for name in (_LAYOUT.blocks, _LAYOUT.head.rpartition("/")[0]):
        (root / name).mkdir(parents=True, exist_ok=True)
    key, before = OwnerKey.new(), None
    for number in range(blocks):
        event = (
            Seed(dataset_id=key.dataset_id, dataset_kind=DatasetKind.ROOT)
            if not number
            else SetInfo(description=f"{number}")
        )
        content = MetadataBlock(system_time=_START, prev_block_hash=before, sequence_number=number, event=event)
        block = Block.encode(content)
        (root / _LAYOUT.block(block.hash)).write_bytes(block.data)
        before = block.hash
    (root / _LAYOUT.head).write_text(str(before))


def measured(name: str, store: Store, url: str) -> tuple[str, float, int, float, int, float]:
    """The first pull and one more."""

    def pull() -> Any:
        return pull_remote(store, DatasetLog(store, NAME), url, reach=Reach())

    with counted() as asked:
        first = _seconds(pull)
        requests = asked()
        again = min(_seconds(pull) for _ in range(5))
        return (
            name,
            first,
            requests,
            again,
            (asked() - requests) // 5,
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        )


@contextmanager
def counted() -> Iterator[Callable[[], int]]:
    """Requests to web servers."""
    count, ask = 0, Web.ask

    def asked(self: Web, *args: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        return ask(self, *args, **options)

    with patch.object(Web, "ask", asked):
        yield lambda: count


def _seconds(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started
