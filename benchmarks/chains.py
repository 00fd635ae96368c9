"""Long chains: what the first pull of one takes, by each way there is, and what it costs to learn that nothing is new.

The bar of issue 10: a sync of a dataset with 100,000 blocks that did not change costs O(1) requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from benchmarks.gateway import NAME, served
from benchmarks.memory import apart, peak
from benchmarks.places import Place, Root
from kubothek.odf import Block, Layout
from kubothek.odf.spec.events import DatasetKind, MetadataBlock, Seed, SetInfo
from kubothek.odf.spec.identity import OwnerKey
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.sync import Reach, Web, pull_remote
from kubothek.table.log import DatasetLog

_LAYOUT: Final = Layout()
_START: Final = Timestamp.parse("2026-11-22T00:00:00Z")
_AGAIN: Final = 5


@dataclass(frozen=True)
class Way:
    """Seconds and requests of the first pull, and of one when nothing is new; MiB that the first one took at most,
    beyond what it takes to start the client, and the gateway if there is one.
    """

    name: str
    seconds: float
    requests: int
    again_seconds: float
    again_requests: int
    client: float
    gateway: float | None = None


@dataclass(frozen=True)
class Pulls:
    """Each way there is."""

    title: str
    rows: list[Way]

    def render(self) -> str:
        """As Markdown."""
        lines = [
            f"### {self.title}",
            "",
            "| from | first pull | requests | nothing new | requests | client | gateway |",
            "|---|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {way.name} | {way.seconds:,.1f} s | {way.requests:,} | {way.again_seconds * 1000:,.1f} ms "
            f"| {way.again_requests:,} | {way.client:,.0f} MiB "
            f"| {'–' if way.gateway is None else f'{way.gateway:,.0f} MiB'} |"
            for way in self.rows
        ]
        return "\n".join(lines) + "\n"


def run(place: Place, blocks: int) -> Iterator[Pulls]:
    """Pull the chain from a directory; then from a gateway over what was pulled."""
    theirs = place.root("theirs").scratch
    build(theirs, blocks)
    first = place.root("first")
    rows = [apart(measured, "a directory", first, theirs.as_uri())]
    for name, scheme in (("a gateway, https", ""), ("a gateway, odf+https", "odf+")):
        with served(first.url, first.endpoint) as (gateway, process):
            start = peak(process.pid)
            way = apart(measured, name, place.root(f"into-{len(rows)}"), f"{scheme}{gateway}/{NAME}")
            rows.append(replace(way, gateway=peak(process.pid) - start))
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


def measured(name: str, root: Root, url: str) -> Way:
    """The first pull of this process, and more."""
    store = root.lake().store

    def pull() -> Any:
        return pull_remote(store, DatasetLog(store, NAME), url, reach=Reach())

    start = peak()
    with counted() as asked:
        seconds = _seconds(pull)
        requests, taken = asked(), peak() - start
        again = min(_seconds(pull) for _ in range(_AGAIN))
        return Way(name, seconds, requests, again, (asked() - requests) // _AGAIN, taken)


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
