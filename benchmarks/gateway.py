"""A gateway beside a plain web server: one pull beside a plain download of the same objects, and many pulls at once.

The bars of issue 10: a pull has at least 80 % of the throughput of a plain download; 500 pulls at once in bounded
memory, with the 99th percentile of a request and the throughput reported beside nginx, which serves the same files.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha3_256
from itertools import count
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from shutil import which
from typing import Any, Final

import aiohttp
import numpy as np
import psutil
import pyarrow as pa
import urllib3

from benchmarks.harness import Case, Table, compare
from benchmarks.link import linked
from benchmarks.places import Place
from kubothek.odf.dataset import again, create
from kubothek.odf.spec.events import AddPushSource, DatasetKind, DatasetSnapshot
from kubothek.odf.spec.identity import OwnerKey
from kubothek.odf.spec.sources import MergeStrategyAppend, ReadStepParquet
from kubothek.odf.sync import Reach, pull_remote
from kubothek.sandbox import limited
from kubothek.sandboxed_sql import LimitedQuery, OneStore
from kubothek.sql import Limits
from kubothek.storage import Store
from kubothek.storage.sha3_multibuffer import WIDTH
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys
from tests.s3server import _free_port

NAME: Final = "pulled"
_THREADS: Final = 8
_PIECE: Final = 1 << 18
_REFILLED: Final = 0.3
"""Seconds in which a worker is ready again."""
LINKS: Final[dict[str, float | None]] = {
    "loopback": None,
    "5 Gbit/s": 5e9 / 8,
    "2.5 Gbit/s": 2.5e9 / 8,
    "1 Gbit/s": 1e9 / 8,
}
_numbers = count()


@dataclass(frozen=True)
class Load:
    """What many clients at once met: milliseconds of a request, bytes a second, and the server's memory at most."""

    title: str
    rows: Sequence[tuple[str, int, float, float, float, float]]

    def render(self) -> str:
        """As Markdown."""
        lines = [
            f"### {self.title}",
            "",
            "| server | requests | p50 ms | p99 ms | MB/s | MB of memory |",
            "|---|---|---|---|---|---|",
        ]
        lines += [f"| {n} | {r:,} | {a:,.0f} | {b:,.0f} | {c:,.0f} | {d:,.0f} |" for n, r, a, b, c, d in self.rows]
        return "\n".join(lines) + "\n"


def run(
    place: Place,
    megabytes: Sequence[int],
    *,
    rounds: int = 5,
    seconds: float = 60,
    clients: int = 500,
    nginx: str | None = None,
) -> Iterator[Table | Load]:
    """Both: datasets of these sizes on loopback, the first also over links; ``nginx`` is its program."""
    for number, each in enumerate(megabytes):
        root = place.root(f"served-{each}")
        store = root.lake().store
        make(store, each, 8 << 20)
        links = LINKS if number == 0 else {"loopback": None}
        for link, rate in links.items():
            with served(root.url, root.endpoint) as (server, _), linked(server, rate) as url:
                yield one(place, store, url, link, by_smart_too=rate is None, rounds=rounds, seconds=seconds)
    yield at_once(place, clients, nginx)
    yield queries(place, rounds=10 * rounds, seconds=seconds)


def queries(place: Place, *, rounds: int, seconds: float) -> Table:
    """A small query in this process and in a worker (docs/decisions/0030): one that waits, and one after the other,
    where each waits until there is one. CPU is that of this process alone.
    """
    root = place.root("queried")
    lake = root.lake()
    lake.create_dataset("flights", ["month"]).append(pa.table({"month": [1, 2], "carrier": ["AA", "UA"]}))
    sql = "SELECT carrier, count(*) FROM flights WHERE month = 1 GROUP BY ALL"
    limits = Limits("256MB", 60)
    limited.start(2)

    def in_worker() -> None:
        assert LimitedQuery(OneStore(lake.store), sql, limits).rows().read_all().num_rows == 1

    cases = [
        Case("in this process", lambda: lake.sql(sql).read_all()),
        Case("in a worker that waits", in_worker, lambda: time.sleep(_REFILLED)),
        Case("in a worker, at once again", in_worker),
    ]
    return compare(f"a small query, {place.name}", cases, rounds=rounds, seconds=seconds)


def one(place: Place, store: Store, url: str, link: str, *, by_smart_too: bool, rounds: int, seconds: float) -> Table:
    """One pull beside a plain download. Each begins with the bytes of the one before gone, and what the kernel had
    still to write of them.

    ``by_smart_too``  over a link that is not: objects come from where the server says, which is past the link

    Curl joins in where there is one: what most people call a plain download.
    """
    paths = objects(store)
    size = sum(store.stat(keys.chain(NAME) + path).size for path in paths)
    clear = partial(empty_copies, place)
    downloaded = partial(download, place, f"{url}/{NAME}", paths)
    cases = [
        Case("download, synced", partial(downloaded, synced=True), clear),
        Case("download, not synced", downloaded, clear),
        Case("download, synced, sha3_256 of hashlib", partial(downloaded, synced=True, hashed=True), clear),
        Case("pull", partial(pull, place, f"{url}/{NAME}"), clear),
    ]
    if (program := which("curl")) is not None:
        fetched = partial(curl, place, program, f"{url}/{NAME}", paths)
        cases += [
            Case("curl, one by one, not synced", fetched, clear),
            Case(f"curl, {_THREADS} at once, not synced", partial(fetched, at_once=_THREADS), clear),
            Case(f"curl, {_THREADS} at once, then sync", partial(fetched, at_once=_THREADS, synced=True), clear),
        ]
    if by_smart_too:
        cases.append(Case("smart pull", partial(pull, place, f"odf+{url}/{NAME}"), clear))
    lanes = f"{WIDTH} hashed at once" if WIDTH else "hashed one by one: libsha3_multibuffer.so was not built"
    title = f"{link}: pull of {len(paths):,} objects, {size / 1e6:,.0f} MB, {place.name}, {lanes}"
    return compare(title, cases, rounds=rounds, seconds=seconds, cpu=_cpu)


def at_once(place: Place, clients: int, nginx: str | None) -> Load:
    """Many clients that each pull the whole dataset, from our gateway and from nginx."""
    root = place.root("busy")
    store = root.lake().store
    make(store, 8, 1 << 20)
    paths = objects(store)
    rows = []
    with served(root.url, root.endpoint) as (gateway, process):
        rows.append(("gateway", *pulls(f"{gateway}/{NAME}", paths, clients, [process])))
    if nginx is not None and root.endpoint is None:
        with nginx_over(Path(root.url.removeprefix("file://")) / keys.chain(NAME), nginx, place.scratch) as (url, them):
            rows.append(("nginx", *pulls(url, paths, clients, them)))
    return Load(f"{clients} pulls at once of {len(paths)} objects each, {place.name}", rows)


def make(store: Store, megabytes: int, slice_bytes: int) -> None:
    """A ledger without a table, of bytes that do not compress."""
    source = AddPushSource(source_name="default", read=ReadStepParquet(), merge=MergeStrategyAppend())
    snapshot = DatasetSnapshot(name=NAME, kind=DatasetKind.ROOT, metadata=(source,))
    random = np.random.default_rng(1)
    rows = pa.table({"x": pa.array(random.integers(0, 2**63, megabytes << 17, dtype=np.int64))})
    create(store, DatasetLog(store, NAME), snapshot, OwnerKey.new(), table=None, slice_bytes=slice_bytes).push(
        again(rows)
    )


def objects(store: Store) -> list[str]:
    """The paths of all that a pull asks for but the head."""
    root = keys.chain(NAME)
    found = (info.key.removeprefix(root) for info in store.list(root))
    return [path for path in found if not path.startswith("refs")]


def empty_copies(place: Place) -> None:
    """Free the disk of what was pulled or downloaded. Files stay, without a byte: for minutes, ext4 looks at each one
    that is gone before it makes another, which would be most of what a small object costs.
    """
    for pattern in ("copy-*", "plain-*"):
        for copy in place.scratch.glob(pattern):
            for path in (path for path in copy.rglob("*") if path.is_file()):
                os.truncate(path, 0)
            copy.rename(copy.with_name(f"empty-{copy.name}"))


def pull(place: Place, url: str) -> None:
    """The whole chain into a new store."""
    store = place.root(f"copy-{next(_numbers)}").lake().store
    pull_remote(store, DatasetLog(store, NAME), url, reach=Reach(objects_at_once=_THREADS))


def download(place: Place, url: str, paths: Sequence[str], *, synced: bool = False, hashed: bool = False) -> None:
    """The same bytes by the same number of threads into files.

    ``synced``  to the disk, as a store does it
    ``hashed``  as they come, so this is what verification costs whoever does nothing else, and has no lanes
    """
    target = Path(place.root(f"plain-{next(_numbers)}").scratch)
    target.mkdir(parents=True, exist_ok=True)
    pool = urllib3.PoolManager(maxsize=_THREADS)

    def get(path: str) -> None:
        hasher = sha3_256()
        with (target / path.rpartition("/")[2]).open("wb") as file:
            answer = pool.request("GET", f"{url}/{path}", preload_content=False)
            while piece := answer.read1(_PIECE):  # which copies less than stream()
                file.write(piece)
                if hashed:
                    hasher.update(piece)
            if synced:
                file.flush()
                os.fsync(file.fileno())
            answer.release_conn()
        assert not hashed or hasher.hexdigest() == path[-64:], "a path ends with the hash"

    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(get, paths))


def curl(place: Place, program: str, url: str, paths: Sequence[str], *, at_once: int = 1, synced: bool = False) -> None:
    """The same bytes by one process of curl, at most so many objects at once, and all of them synced at the end."""
    target = Path(place.root(f"plain-{next(_numbers)}").scratch)
    target.mkdir(parents=True, exist_ok=True)
    wanted = "".join(f'url = "{url}/{path}"\noutput = "{target / path.rpartition("/")[2]}"\n' for path in paths)
    command = [program, "--fail", "--silent", "--show-error", "--no-progress-meter", "--config", "-"]
    if at_once > 1:
        command += ["--parallel", "--parallel-max", str(at_once)]
    subprocess.run(command, input=wanted.encode(), check=True)  # noqa: S603 - the machine's own
    if synced:
        os.sync()


def _cpu() -> float:
    """CPU seconds of this process and of those it has seen end, as curl's, but not the server's."""
    used = [getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


@contextmanager
def served(url: str, endpoint: str | None, name: str = NAME) -> Iterator[tuple[str, psutil.Process]]:
    """A gateway in a process of its own, whose dataset ``name`` is public; it takes any number of requests."""
    port = _free_port()
    code = (
        "import asyncio, sys; from kubothek.gateway.access import Nobody; from kubothek.gateway.app import make_app;"
        "from kubothek.gateway.limits import Limits; from kubothek.gateway.server import serve;"
        "from kubothek.storage import StoreConfig, open_store;"
        "url, endpoint, port, name = sys.argv[1:]; limits = Limits(per_second=1e9, burst=10**9);"
        "from kubothek.gateway.catalogue import OneStore; store = open_store(StoreConfig(url, endpoint or None));"
        "app = make_app(OneStore(store, frozenset([name])), Nobody(), limits=limits);"
        "asyncio.run(serve(app, limits, '127.0.0.1', int(port), None, lambda port: print(port, flush=True)))"
    )
    command = [sys.executable, "-c", code, url, endpoint or "", str(port), name]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: S603 - our own
        assert process.stdout is not None, "it is a pipe"
        process.stdout.readline()
        try:
            yield f"http://127.0.0.1:{port}", psutil.Process(process.pid)
        finally:
            process.terminate()


@contextmanager
def nginx_over(directory: Path, program: str, scratch: Path) -> Iterator[tuple[str, list[psutil.Process]]]:
    """Nginx with a process for each core, which sends files by the kernel."""
    port, home = _free_port(), scratch / "nginx"
    home.mkdir(parents=True, exist_ok=True)
    (home / "conf").write_text(
        f"daemon off; pid {home}/pid; error_log {home}/error; worker_processes auto; user root;\n"
        "events { worker_connections 4096; }\n"
        f"http {{ access_log {home}/access; sendfile on; tcp_nopush on; default_type application/octet-stream;\n"
        f" client_body_temp_path {home}; proxy_temp_path {home}; fastcgi_temp_path {home}; uwsgi_temp_path {home};"
        f" scgi_temp_path {home}; server {{ listen 127.0.0.1:{port} backlog=1024; root {directory}; }} }}\n"
    )
    with subprocess.Popen([program, "-c", str(home / "conf"), "-p", str(home)]) as process:  # noqa: S603 - our own
        time.sleep(0.5)
        parent = psutil.Process(process.pid)
        try:
            yield f"http://127.0.0.1:{port}", [parent, *parent.children()]
        finally:
            process.terminate()


def pulls(
    url: str, paths: Sequence[str], clients: int, servers: Sequence[psutil.Process]
) -> tuple[int, float, float, float, float]:
    """Requests, p50 and p99 in milliseconds, MB a second, and MB of the servers at most."""
    latencies: list[float] = []
    received = 0
    peak = 0.0

    async def one(session: aiohttp.ClientSession) -> None:
        nonlocal received
        for path in ("refs/head", *paths):
            started = time.perf_counter()
            async with session.get(f"{url}/{path}") as answer:
                answer.raise_for_status()
                data = await answer.read()
            received += len(data)  # not in one line with the await: others add meanwhile
            latencies.append(time.perf_counter() - started)

    async def watch() -> None:
        nonlocal peak
        while True:
            peak = max(peak, sum(each.memory_info().rss for each in servers))
            await asyncio.sleep(0.1)

    async def everything() -> None:
        connector = aiohttp.TCPConnector(limit=clients)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=600)) as session:
            watching = asyncio.create_task(watch())
            await asyncio.gather(*(one(session) for _ in range(clients)))
            watching.cancel()

    started = time.perf_counter()
    asyncio.run(everything())
    elapsed = time.perf_counter() - started
    found: Any = np.percentile(np.array(latencies) * 1000, [50, 99])
    return len(latencies), float(found[0]), float(found[1]), received / 1e6 / elapsed, peak / 1e6
