"""A store that has one of everything that a verb works on, and what must not be lost of it."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

import kubothek
from kubothek.catalog import Lake
from kubothek.errors import DatasetNotFound
from kubothek.gc import Retention, collect
from kubothek.gc.areas import OWN_TRACES, areas
from kubothek.table.log import DatasetLog
from kubothek.table.log.model.keys import DEFAULT_TABLE
from tests.failures.server import Request, Server
from tests.recovery import resource

FILES = {
    "letters.csv": "kind,n\na,7\nb,8\n",
    "planes-1.csv": "id,name\n1,one\n2,two\n",
    "planes-2.csv": "id,name\n3,three\n",
    "polled-1.csv": "id,name\n1,one\n",
    "seed.csv": "p,x,v\n1,1,1\n2,2,2\n",
    "seed-2.csv": "p,x,v\n1,3,3\n",
    "more.csv": "x,m\n1,1\n",
}
LEDGER = """
kind: DatasetSnapshot
version: 1
content:
  name: {name}
  kind: Root
  metadata:
    - {source}
      read: {{kind: Csv, header: true, schema: ["id BIGINT", "name STRING"]}}
      merge: {{kind: {merge}, primaryKey: [id]}}
"""
PUSHED = ("kind: AddPushSource\n      sourceName: default", "Ledger")
POLLED = ("kind: SetPollingSource\n      fetch: {{kind: Url, url: 'file://{root}/polled-1.csv'}}", "Snapshot")
UUID = re.compile(r"(?!\+\+)[a-zA-Z0-9+_-]+")
NAMES = ("letters", "planes", "polled")


def manifests() -> str:
    import yaml

    source = {"paths": ["in/letters.csv"], "format": "CSV"}
    return yaml.safe_dump_all(
        [
            resource("ObjectStore", "lake", url="file:store"),
            resource("Engine", "default", retry={"backoff": {"initial": "10ms", "max": "20ms"}}),
            resource("Dataset", "more", storeRef={"name": "lake"}),
            resource("Commit", "one", datasetRef={"name": "more"}, operation="Append", source=source),
        ]
    )


def build(server: Server, root: Path) -> dict[str, str]:
    """Make the project in a directory; what its rows name."""
    for name, text in FILES.items():
        (root / name).write_text(text)
    for name, (source, merge) in {"planes": PUSHED, "more": PUSHED, "polled": POLLED}.items():
        (root / f"{name}.yaml").write_text(LEDGER.format(name=name, source=source.format(root=root), merge=merge))
    (root / "project.yaml").write_text(manifests())
    (root / "store" / "in").mkdir(parents=True)
    (root / "store" / "in" / "letters.csv").write_text(FILES["letters.csv"])
    lake = kubothek.open((root / "store").as_uri())
    letters = lake.create_dataset(
        "letters", schema={"kind": "string", "n": "int64"}, partition_on=["kind"], indices=["n"]
    )
    for n in (1, 2):
        letters.append(pa.table({"kind": ["a", "b"], "n": [n, n + 10]}))
    for name in ("words", "gone"):
        lake.create_dataset(name).append(pa.table({"word": ["a", "b"], "n": [1, 2]}))
    lake.drop("gone")
    for line in (
        ["import", "planes.yaml"],
        ["ingest", "planes", "planes-1.csv"],
        ["import", "polled.yaml"],
        ["cube", "build", "geo", "--dimension-columns", "x", "--partition-columns", "p", "--data", "seed=seed.csv"],
    ):
        done = server.run(Request([*line, "--store", "file:store"], str(root), home(root)))
        assert done.code == 0, (line, done)
    blocks = server.run(Request(["log", "--odf", "planes", "--store", "file:store"], str(root), home(root))).out
    return {"block": re.findall(r"f1620[0-9a-f]{64}", blocks)[-1]}


def home(root: Path) -> dict[str, str]:
    """Where a user's own files are."""
    names = ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")
    return {name: str(root / "home") for name in names} | {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}


def rows(root: Path) -> dict[str, Any]:
    """All rows of all datasets and cubes that are there."""
    lake = kubothek.open((root / "store").as_uri())
    found: dict[str, Any] = {}
    for name in lake.datasets():
        with suppress(DatasetNotFound):  # it was deleted
            if "++" not in name and lake.dataset(name).snapshot().schema is not None:
                shown = lake.dataset(name).to_arrow().drop_columns(times(lake, name))
                found[name] = sorted(map(str, shown.to_pylist()))
    for prefix in lake.cubes():
        with suppress(DatasetNotFound):  # it was deleted
            found[f"{prefix}++"] = sorted(map(str, lake.cube(prefix).query().to_arrow().to_pylist()))
    return found


def times(lake: Lake, name: str) -> list[str]:
    """The columns that differ from run to run."""
    return [column for column in ("system_time", "event_time") if column in lake.dataset(name).schema.names]


def heads(root: Path) -> dict[str, bytes]:
    """What all datasets and cubes are at."""
    store = kubothek.open((root / "store").as_uri()).store
    keys = (info.key for info in store.list("") if info.key.endswith(("by-dataset-metadata.json", "/head.json")))
    return {key: store.get(key) for key in keys}


def objects(root: Path) -> set[str]:
    lake = kubothek.open((root / "store").as_uri())
    return {info.key for info in lake.store.list("")}


def uuids(root: Path) -> set[str]:
    """Of all datasets that are there, and of those whose first commit never happened."""
    lake = kubothek.open((root / "store").as_uri())
    begun = {key.split("/")[1 if key.startswith(".kubothek/") else 0] for key in objects(root) if "/" in key}
    return {*lake.datasets(), *filter(UUID.fullmatch, begun)}


def left_over(root: Path, before: set[str]) -> set[str]:
    """New objects of the kinds that a version would name."""
    found = objects(root) - before
    all_areas = [area for uuid in uuids(root) for area in areas(uuid, DEFAULT_TABLE) if area.kind not in OWN_TRACES]
    return {key for key in found for area in all_areas if key.startswith(area.prefix) and area.owns(key)}


def counted(root: Path) -> int:
    """How many unreferenced objects ``kubothek health`` counts, of all datasets."""
    lake = kubothek.open((root / "store").as_uri())
    total = 0
    for uuid in uuids(root):
        try:
            done = collect(lake.store, DatasetLog(lake.store, uuid), [Retention()])
        except DatasetNotFound:
            continue
        total += done.young.objects + sum(count.objects for count in done.found.values())
    return total


def temporary_files(root: Path) -> list[Path]:
    """What writers put beside their keys before it is whole."""
    return [*(root / "store" / ".kubothek" / ".file" / "tmp").glob("*")]
