"""What Iceberg metadata costs, beside the commit that it follows; and what it gives readers, beside pyiceberg's own.

No export writes a version hint, as for readers of a catalogue.

In :func:`run` and :func:`run_growth`, the table has one file a partition. Only some of these files exist
(:data:`~benchmarks.systems.table.READABLE`), so an export of the whole table reads as many footers; one after a commit
knows the footer of the new file. In :func:`run_versions`, all files of a table of many versions exist.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import urllib3
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable

from benchmarks.gateway import served
from benchmarks.harness import Case, Table, compare
from benchmarks.places import Place, Root
from benchmarks.systems.iceberg import Iceberg
from benchmarks.systems.ours import commit_partitions
from benchmarks.systems.table import NAME, PART, READABLE, ROWS, rows
from kubothek import IcebergExport
from kubothek.dataset.handle import CommitResult
from kubothek.storage import Store
from kubothek.table.iceberg.export import export

_COMMITS = 20
"""On top of the first one, whose record names all files: history is read some commits ahead."""


@dataclass(frozen=True)
class Requests:
    """Requests that reached the S3 server."""

    title: str
    made: Sequence[tuple[str, list[str]]]

    def render(self) -> str:
        """As Markdown."""
        lines = [f"### {self.title}", "", "| work | requests | of these reads |", "|---|---|---|"]
        lines += [f"| {name} | {len(made)} | {sum(each != 'PUT' for each in made)} |" for name, made in self.made]
        return "\n".join(lines) + "\n"


class _Work:
    """The dataset, and the commit that is exported next."""

    def __init__(self, root: Root, partitions: int, commits: int) -> None:
        commit_partitions(root.lake().store, NAME, partitions)
        self.dataset = root.lake().dataset(NAME)
        self.store = root.lake().store
        self._committed: CommitResult | None = None
        self._removed = count(partitions - 1, -1)
        for _ in range(commits):
            self.append()

    def append(self) -> None:
        """Commit one file."""
        self._committed = self.dataset.append(rows(0))

    def append_one(self) -> None:
        """Commit one file when all before it is exported."""
        self.export_own()
        self.append()

    def remove_one(self) -> None:
        """Commit the removal of one file when all before it is exported."""
        self.export_own()
        self._committed = self.dataset.delete(f"{PART} = {next(self._removed)}")

    def export_own(self) -> None:
        """Export what this process has committed."""
        assert self._committed is not None, "prepared"
        self._export(committed=self._committed.record_key)

    def export_any(self, *, rebuild: bool = False) -> IcebergExport:
        """Export as a process that did not commit."""
        return self._export(rebuild=rebuild)

    def _export(self, *, committed: str | None = None, rebuild: bool = False) -> IcebergExport:
        log = self.dataset._log(writing=True)
        return export(self.store, log, committed=committed, rebuild=rebuild, version_hint=False)


def run(place: Place, partitions: int, *, rounds: int, seconds: float) -> Iterator[Table | Requests]:
    """The tables of one size; afterwards the export must be of the newest version."""
    work = _Work(place.root("exports"), partitions, _COMMITS)
    cases = [
        Case(f"commit of {ROWS:,} rows", work.append),
        Case("export after an own commit", work.export_own, prepare=work.append_one),
        Case("export after an own removal", work.export_own, prepare=work.remove_one),
        Case("export by another process", work.export_any, prepare=work.append_one),
    ]
    work.export_any()
    title = f"Iceberg metadata at {partitions:,} partitions, {place.name}"
    yield compare(title, cases, rounds=rounds, seconds=seconds)
    if place.log is not None:
        yield Requests(f"Requests of the same, {place.name}", [*_counted(place.log, work.store, cases)])
    everything = Case("export of everything", lambda: work.export_any(rebuild=True))
    yield compare(f"The whole of it, {place.name}", [everything], rounds=1, seconds=seconds)
    exported = work.export_any()
    if exported.version != work.dataset.version:
        raise RuntimeError(f"exported version {exported.version} instead of {work.dataset.version}")
    own = Iceberg(place.root("pyiceberg"))
    own.build(partitions)
    yield _readers(place, partitions, exported.metadata_location, own.metadata_location, rounds, seconds)


def run_growth(place: Place, sizes: Sequence[int], *, rounds: int, seconds: float) -> Iterator[Table]:
    """Exports after commits to tables of several sizes, in turn: what a commit leaves in the caches is then the same.

    Raises RuntimeError if an export is not of the newest version.
    """
    works = {size: _Work(place.root(f"exports-of-{size}"), size, _COMMITS) for size in sizes}
    for change, prepare in (("commit", _Work.append_one), ("removal", _Work.remove_one)):
        cases = [
            Case(f"{size:,} partitions", work.export_own, prepare=partial(prepare, work))
            for size, work in works.items()
        ]
        yield compare(f"Export after an own {change}, {place.name}", cases, rounds=rounds, seconds=seconds)
    for work in works.values():
        if (exported := work.export_any().version) != work.dataset.version:
            raise RuntimeError(f"exported version {exported} instead of {work.dataset.version}")


def run_versions(place: Place, versions: int, *, rounds: int, seconds: float) -> Iterator[Table]:
    """Loads of a table with this many versions through catalogues; then exports, each of which adds a version.

    The catalogues have the same table metadata. Raises RuntimeError if a load lacks snapshots.
    """
    root = place.root(f"versions-{versions}")
    work = _Work(root, 1, versions - 1)
    location = work.export_any().metadata_location
    size = work.store.stat(location.removeprefix(f"{work.store.url}/")).size
    about = f"{versions:,} versions, {size:,} bytes of metadata, {place.name}"
    with served(root.url, root.endpoint, NAME) as (url, _):
        yield compare(f"Loading at {about}", [*_loads(root, url, location, versions)], rounds=rounds, seconds=seconds)
    cases = [
        Case(f"commit of {ROWS:,} rows", work.append),
        Case("export after an own commit", work.export_own, prepare=work.append_one),
    ]
    yield compare(f"Iceberg metadata at {about}", cases, rounds=rounds, seconds=seconds)


def _loads(root: Root, url: str, location: str, versions: int) -> Iterator[Case]:
    s3 = {"s3.endpoint": root.endpoint} if root.endpoint else {}
    sql = SqlCatalog("bench", uri=f"sqlite:///{root.scratch}/iceberg.sqlite", warehouse=root.url, **s3)
    sql.create_namespace("default")
    table = f"default.{NAME}"
    sql.register_table(table, location)
    public: dict[str, Any] = {"uri": f"{url}/iceberg", "auth": {"type": "noop"}}
    rest = RestCatalog("bench", **public)
    refs = RestCatalog("bench", **public, **{"snapshot-loading-mode": "refs"})
    found = [len(each.load_table(table).metadata.snapshots) for each in (sql, rest, refs)]
    if found != [versions, versions, 1]:
        raise RuntimeError(f"loaded {found} snapshots of {versions}")
    names = {"pyiceberg's SQL catalogue": sql, "REST": rest, "REST, snapshots=refs": refs}
    for name, catalogue in names.items():
        yield Case(name, partial(catalogue.load_table, table))
    pool, path = urllib3.PoolManager(), f"{url}/iceberg/v1/namespaces/default/tables/{NAME}"
    for snapshots in ("all", "refs"):
        get = partial(pool.request, "GET", path, fields={"snapshots": snapshots})
        yield Case(f"REST, snapshots={snapshots}, not parsed", get)


def _readers(place: Place, partitions: int, ours: str, own: str, rounds: int, seconds: float) -> Table:
    """Load and plan with pyiceberg, from both metadata. Raises RuntimeError if a plan is wrong."""
    properties = {"s3.endpoint": place.endpoint} if place.endpoint else {}

    def load(location: str) -> StaticTable:
        return StaticTable.from_metadata(location, properties)

    def plan(location: str, row_filter: str) -> int:
        return len(list(load(location).scan(row_filter=row_filter).plan_files()))

    one = f"{PART} = {READABLE - 1}"
    if (found := (plan(ours, one), plan(own, one))) != (1, 1):
        raise RuntimeError(f"planned {found} files instead of one")
    names = {"its own": own, "ours": ours}
    works: dict[str, Callable[[str], object]] = {
        "load": load,
        "plan one partition": partial(plan, row_filter=one),
        "plan everything": partial(plan, row_filter="true"),
    }
    cases = [Case(f"{name}: {work}", partial(run, names[name])) for work, run in works.items() for name in names]
    title = f"pyiceberg at {partitions:,} partitions, {place.name}"
    return compare(title, cases, rounds=rounds, seconds=seconds)


def _counted(log: Path, store: Store, cases: Sequence[Case]) -> Iterator[tuple[str, list[str]]]:
    for case in cases:
        case.prepare()
        before = len(_requests(log, store))
        case.run()
        yield case.name, _requests(log, store)[before:-1]


def _requests(log: Path, store: Store) -> list[str]:
    """The methods of all requests, up to one that is made here."""
    mark = f"mark-{time.monotonic_ns()}"
    store.put(mark, b"")
    while mark not in (text := log.read_text()):
        time.sleep(0.01)
    return [line.split("|")[5].strip() for line in text.splitlines() if "| vgw |" in line]
