"""Finding and deleting garbage among many live files, beside deltalake's vacuum and the least that has to be done.

All tables have the same live files, of one byte, in a hundred directories. Before each round new garbage is put among
them, a month old: straight to the server's disk, as asking for it would take longer than what is measured.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final

import boto3
import pyarrow as pa
from botocore.config import Config
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import SparkSession

from benchmarks.cpu import cpu_of_all
from benchmarks.harness import Case, Table, compare
from benchmarks.memory import apart, peak
from benchmarks.places import Place, Root
from benchmarks.sparks import started
from kubothek.gc import Mode, Retention, collect
from kubothek.spark.sweep import spread_with_spark
from kubothek.table.log import Change, DatasetLog, Operation, PartitionFile, Transaction

NAME: Final = "bench"
_DIRECTORIES: Final = 100
_MONTH: Final = timedelta(days=30)
_THREADS: Final = 4
_SCHEMA: Final = pa.schema({"part": pa.int64(), "value": pa.int64()})
_numbers = count()


def run(place: Place, live: int, garbage: int, *, rounds: int = 3, seconds: float = 300) -> Iterator[Table]:
    """One table: so many objects that are to go among so many that are not."""
    ours, delta, floor = (place.root(name) for name in ("ours", "delta", "floor"))
    build_ours(ours, live)
    build_delta(delta, live)
    kept = set(put(floor, f"{NAME}/", live, "live"))
    cases = [
        _case("kubothek", ours, garbage, lambda: collect_ours(ours)),
        _case("deltalake-rs vacuum", delta, garbage, lambda: vacuum(delta)),
        _case("floor: list and delete in threads, our client", floor, garbage, lambda: by_hand(floor, kept)),
    ]
    if place.endpoint is not None:
        cases.append(_case("floor: the same with boto3", floor, garbage, lambda: with_boto3(floor, kept)))
    with started() as (session, start):
        cases.insert(1, _case("kubothek, with Spark", ours, garbage, lambda: collect_ours(ours, session)))
        title = f"collect {garbage:,} objects among {live:,}, {place.name}"
        table = compare(title, cases, rounds=rounds, seconds=seconds, cpu=cpu_of_all)
        yield Table(table.title, [*table.series, start], table.load)


def _case(name: str, root: Root, garbage: int, run: Any) -> Case:
    """What it deletes is counted, so that no system does less than another."""

    def checked() -> None:
        deleted = run()
        if deleted < garbage:
            raise AssertionError(f"{name} deleted {deleted} of {garbage}")

    return Case(name, checked, lambda: put(root, _data(name), garbage, f"garbage-{next(_numbers)}"))


def _data(name: str) -> str:
    return f"{NAME}/table/" if name.startswith("kubothek") else f"{NAME}/"


def collect_ours(root: Root, session: SparkSession | None = None) -> int:
    """Mark, list, plan, expire, delete; the number of data files that went."""
    store = root.lake().store
    done = collect(
        store,
        DatasetLog(store, NAME),
        [Retention(versions=1)],
        mode=Mode.ENFORCE,
        spread=None if session is None else spread_with_spark(session, store.config),
    )
    return sum(count.objects for count in done.deleted.values())


def vacuum(root: Root) -> int:
    """All that the log does not name, not only what it says was removed."""
    table = DeltaTable(f"{root.url}/{NAME}")
    return len(table.vacuum(retention_hours=24, dry_run=False, enforce_retention_duration=False, full=True))


def by_hand(root: Root, kept: set[str]) -> int:
    """List each directory and delete what is not among the names; no metadata is read, nothing is written."""
    store = root.lake().store
    now = datetime.now(UTC)

    def old(part: int) -> list[str]:
        listing = store.list(f"{NAME}/part={part:02d}/")
        return [info.key for info in listing if info.key not in kept and now - info.modified > timedelta(days=1)]

    with ThreadPoolExecutor(_THREADS) as pool:
        return store.delete(key for keys in pool.map(old, range(_DIRECTORIES)) for key in keys)


def with_boto3(root: Root, kept: set[str]) -> int:
    """The same with boto3 as it is."""
    client = boto3.client("s3", config=Config(max_pool_connections=2 * _THREADS))
    bucket, prefix = root.url.removeprefix("s3://").split("/")

    def old(part: int) -> list[str]:
        pages = client.get_paginator("list_objects_v2").paginate(
            Bucket=bucket, Prefix=f"{prefix}/{NAME}/part={part:02d}/"
        )
        names = (entry["Key"] for page in pages for entry in page.get("Contents", ()))
        return [name for name in names if name.removeprefix(f"{prefix}/") not in kept]

    def delete(names: list[str]) -> int:
        client.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": name} for name in names], "Quiet": True})
        return len(names)

    with ThreadPoolExecutor(_THREADS) as pool:
        names = [name for found in pool.map(old, range(_DIRECTORIES)) for name in found]
        return sum(pool.map(delete, (names[start : start + 1000] for start in range(0, len(names), 1000))))


@dataclass(frozen=True)
class Peaks:
    """Peak resident memory in MiB of a fresh process: at the start with everything imported, and after a collection."""

    title: str
    peaks: dict[str, tuple[float, float]]

    def render(self) -> str:
        """As Markdown."""
        lines = [f"### {self.title}", "", "| live files, garbage | start | + collection |", "|---|---|---|"]
        lines += [
            f"| {name} | {start:.0f} MiB | {after - start:.0f} MiB |" for name, (start, after) in self.peaks.items()
        ]
        return "\n".join(lines) + "\n"


def memory(place: Place, sizes: Iterable[tuple[int, int]]) -> Peaks:
    """By the numbers of live files, which the head names, and of objects that are garbage."""
    peaks = {}
    for live, garbage in sizes:
        root = place.root(f"memory-{live}-{garbage}")
        build_ours(root, live)
        put(root, f"{NAME}/table/", garbage, "garbage")
        peaks[f"{live:,}, {garbage:,}"] = apart(_peaks, root, garbage)
    return Peaks(f"peak memory of a collection, {place.name}", peaks)


def _peaks(root: Root, garbage: int) -> tuple[float, float]:
    root.lake().dataset(NAME).version  # noqa: B018 - what is imported late is imported now
    start = peak()
    if collect_ours(root) < garbage:
        raise AssertionError("not all of it was deleted")
    return start, peak()


def build_ours(root: Root, live: int) -> None:
    """A table of these files, as old as its garbage: two commits, of which the second one alone is recent history."""
    files = [
        PartitionFile(key.removeprefix(f"{NAME}/table/").removesuffix(".parquet"), key, 1, 1)
        for key in put(root, f"{NAME}/table/", live, "live")
    ]
    log = DatasetLog(root.lake().store, NAME)
    for number, (operation, added) in enumerate([(Operation.CREATE, files[1:]), (Operation.APPEND, files[:1])]):
        started = log.begin(f"build-{number}", "build")
        assert isinstance(started, Transaction), "the store is empty"
        started.commit(Change(operation=operation, added=tuple(added), schema=_SCHEMA, partition_keys=("part",)))
    written = time.time() - _MONTH.total_seconds()
    for path in (root.disk / f".kubothek/{NAME}").rglob("*.json*"):
        os.utime(path, (written, written))


def build_delta(root: Root, live: int) -> None:
    """The same for deltalake, with a checkpoint of its log."""
    table = DeltaTable.create(f"{root.url}/{NAME}", _SCHEMA, partition_by=["part"])
    actions: list[AddAction | RemoveAction] = [
        AddAction(path, 1, {"part": path[len("part=") :][:2]}, 0, True, '{"numRecords":1}')
        for path in (key.removeprefix(f"{NAME}/") for key in put(root, f"{NAME}/", live, "live"))
    ]
    table.create_write_transaction(actions, "append", _SCHEMA, ["part"])
    DeltaTable(f"{root.url}/{NAME}").create_checkpoint()


def put(root: Root, prefix: str, number: int, name: str) -> list[str]:
    """So many files of one byte below the prefix, a month old; their keys."""
    written = time.time() - _MONTH.total_seconds()
    keys = []
    for part in range(_DIRECTORIES):
        directory = root.disk / prefix / f"part={part:02d}"
        directory.mkdir(parents=True, exist_ok=True)
        for n in range(part, number, _DIRECTORIES):
            # Names in no order, as a random id is part of what writers call their files.
            file = f"{n * 0x9E3779B97F4A7C15 % (1 << 64):016x}-{name}.parquet"
            descriptor = os.open(directory / file, os.O_CREAT | os.O_WRONLY)
            os.write(descriptor, b"x")
            if root.endpoint is not None:
                os.setxattr(descriptor, "user.etag", b'"9dd4e461268c8034f5c8564e155c67a6"')
            os.utime(descriptor, (written, written))
            os.close(descriptor)
            keys.append(f"{prefix}part={part:02d}/{file}")
    return keys
