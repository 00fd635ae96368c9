"""Fuzzing of what a store holds of a dataset: heads, records, markers, cubes, indices, skipping metadata, pages.

CI fuzzes all in one run, a soak each in its own. Each target reads the bytes, and then all that callers ask of them.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import msgpack  # type: ignore[import-untyped]
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

import kubothek
from kubothek.ingest.watch.ledger import Page
from kubothek.ingest.watch.runs import ENTRIES, Run, RunReader, write_run
from kubothek.storage.decompressing import decompress
from kubothek.table.indexes import kartothek
from kubothek.table.indexes.compact import stream
from kubothek.table.indexes.lookup import lookup
from kubothek.table.indexes.model import IndexFile, IndexKind, IndexState
from kubothek.table.indexes.native import read_manifest
from kubothek.table.log import Change, DatasetLog, Operation
from kubothek.table.log.model import keys
from kubothek.table.log.model.head import LARGEST, Head
from kubothek.table.log.model.markers import Marker
from kubothek.table.log.model.record import Record
from kubothek.table.log.model.writers import Grant
from kubothek.table.log.multi.head import CubeHead, CubeRecord, own
from kubothek.table.log.ownership import owner_of
from kubothek.table.log.settings import read_settings
from kubothek.table.maintenance import inventory
from kubothek.table.schema import parse_common_metadata
from kubothek.table.skipping.files.reading import load
from kubothek.table.skipping.model import IndexDefinition, Part
from kubothek.table.untrusted_parquet import DAMAGED
from tests.fuzz.harness import fuzz
from tests.fuzz.structures import mutated
from tests.sampling import SOAK

pytestmark = pytest.mark.slow

UUID = "flights"
RECORD = keys.record(UUID, 1, "x", "0" * 12)
MANIFEST = f"{keys.native_indices(UUID)}delay/x.json"


_FILES = pa.table(dict(zip(inventory.FILES.names, (["flights/table/x.parquet"], [1], [2], [3], [4]), strict=True)))


class _Memory:
    """A store of one object."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.url = "memory:"
        self.config = SimpleNamespace(url="file:///memory", keys_dir=None)

    def get(self, _: str) -> bytes:
        return self._data

    def open(self, _: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def _store(data: bytes) -> Any:
    return _Memory(data)


def _use(head: Head) -> None:
    for name in ("version", "commit", "schema_hash", "horizon", "since", "fenced", "lost", "overwritten", "tags"):
        getattr(head, name)
    for name in ("index_state", "skipping", "tombstone", "table", "tables", "intakes", "chain", "drift", "epoch"):
        getattr(head, name)
    if head.grant is not None:
        head.grant.to_json()
    head.files()
    head.render()


def _head(data: bytes) -> None:
    _use(Head.parse(UUID, data).check_format())


def _packed(data: bytes) -> None:
    _use(Head.parse_packed(UUID, data).check_format())


def _record(data: bytes) -> None:
    record = Record.parse(RECORD, data)
    record.render()
    _ = record.added, record.delta.files, record.content_parent


def _marker(data: bytes) -> None:
    if (marker := Marker.parse(keys.marker(UUID, "x"), data)) is not None:
        marker.render()


def _cube_head(data: bytes) -> None:
    CubeHead.parse("geo", data).render()


def _cube_record(data: bytes) -> None:
    CubeRecord.parse(keys.record(own("geo"), 1, "x", "0" * 12), data).render()


def _manifest(data: bytes) -> None:
    read_manifest(_store(data), MANIFEST).render()


def _native(data: bytes) -> None:
    try:
        rows = pq.read_metadata(io.BytesIO(data)).num_rows
    except DAMAGED:
        rows = 1
    # As the manifest has it, so that what is damaged is read.
    for table in stream(_store(data), [IndexFile("k", rows, len(data), None, None)], pa.int64())():
        table.validate(full=True)


def _kartothek(data: bytes) -> None:
    store = _store(data)
    kartothek.read(store, "carrier", "k", pa.string())
    head: Any = SimpleNamespace(index_state=IndexState(UUID, kartothek={"carrier": "k"}), partitions={})
    for op in ("==", "<", "in"):
        lookup(store, head, pa.schema([("carrier", pa.string())]), "carrier", op, ["AA", "UA"][: 1 + (op == "in")])


def _skipping(data: bytes) -> None:
    load(_store(data), Part("k", 1, len(data))).validate(full=True)


def _page(data: bytes) -> None:
    Page.parse(f"{keys.intake(UUID, 's')}x.json", data).render()


def _run(data: bytes) -> None:
    with RunReader(_store(data), Run("k", 1, "", "")) as reader:
        for piece in (*reader.pieces(), *reader.between("", "z"), *reader.with_errors()):
            piece.validate(full=True)


def _schema(data: bytes) -> None:
    parse_common_metadata(data)


def _notes(data: bytes) -> None:
    inventory.kept(_store(data), UUID)


def _settings(data: bytes) -> None:
    read_settings(_store(data))


def _owner(data: bytes) -> None:
    owner_of(_store(data), UUID)


def _checkpoint(data: bytes) -> None:
    try:
        plain = decompress(data, LARGEST)
    except zstandard.ZstdError:  # which `rebuild` names
        return
    _use(Head.parse(UUID, plain))


TARGETS: dict[str, Callable[[bytes], None]] = {
    "head": _head,
    "packed": _packed,
    "record": _record,
    "marker": _marker,
    "cube head": _cube_head,
    "cube record": _cube_record,
    "manifest": _manifest,
    "native": _native,
    "kartothek": _kartothek,
    "skipping": _skipping,
    "page": _page,
    "run": _run,
    "schema": _schema,
    "notes": _notes,
    "settings": _settings,
    "owner": _owner,
    "checkpoint": _checkpoint,
}
NAMES = [*TARGETS]


def _any(data: bytes) -> None:
    """The target that the first byte names."""
    if data:
        TARGETS[NAMES[data[0] % len(NAMES)]](data[1:])


def _mutated(random: Random, data: bytes) -> bytes:
    """By its structure what is JSON; of the rest, one byte."""
    tag, content = data[:1], data[1:]
    if NAMES[tag[0]] == "packed":
        document = msgpack.unpackb(zstandard.decompress(content))
        changed = orjson.loads(mutated(random, orjson.dumps(document)).replace(b"\\ud800", b""))
        return tag + zstandard.compress(msgpack.packb(changed))
    try:
        return tag + mutated(random, content)
    except ValueError:
        at = random.randrange(len(content))
        return tag + content[:at] + random.randbytes(1) + content[at + 1 :]


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """One object of each family, as Kubothek writes it."""
    root = tmp_path_factory.mktemp("store")
    lake = kubothek.open(root.as_uri())
    rows = pa.table({"month": [1, 1, 2], "carrier": ["UA", "AA", "UA"], "delay": [1, 2, 3]})
    dataset = lake.create_dataset(
        UUID,
        partition_on=["month"],
        indices={"carrier": IndexKind.KARTOTHEK, "delay": IndexKind.NATIVE},
        skipping=[IndexDefinition("MinMax", ("delay",))],
    )
    dataset.append(rows)
    dataset.tag("first")
    grant = Grant.of("c/ns/flights", "uid", [("etl", ["Append", "Tag"]), ("notebook", ["Merge"])])
    DatasetLog(lake.store, UUID).begin_new("writers").commit(Change(operation=Operation.LAYOUT, grant=grant))
    cube = lake.create_cube("geo", dimension_columns=["delay"], partition_columns=["month"])
    cube.build({"seed": rows})
    run = write_run(
        lake.store, f"{keys.intake(UUID, 's')}x.parquet", iter([pa.table({name: ["k"] for name in ENTRIES.names})])
    )
    page = Page(batch=1, files=1, last_file="k", runs=(run,) if run else ())
    one = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    def first(start: str, end: str) -> bytes:
        return next(data for key, data in sorted(one.items()) if key.startswith(start) and key.endswith(end))

    head = first(keys.head(UUID), "")
    return {
        "head": head,
        "packed": zstandard.compress(msgpack.packb(orjson.loads(head))),
        "record": first(f"{keys.records(UUID)}{2:020d}", ".json"),
        "marker": first(keys.markers(UUID), ".json"),
        "cube head": first(".kubothek/++cubes/geo/head", ".json"),
        "cube record": first(".kubothek/++cubes/geo/commits", ".json"),
        "manifest": first(f"{keys.native_indices(UUID)}delay/", ".json"),
        "native": first(f"{keys.native_indices(UUID)}delay/", ".parquet"),
        "kartothek": first(keys.indices(UUID), ".parquet"),
        "skipping": first(f"{keys.side(UUID)}skipping/", ".parquet"),
        "page": page.render(),
        "run": first(keys.intake(UUID, "s"), ".parquet"),
        "schema": first(keys.common_metadata(UUID, "table"), ""),
        "notes": bytes(inventory._render(inventory.Inventory(RECORD, _FILES, (1, 2, 4)))),
        "settings": b'{"grace_seconds": 86400.0, "by": "x"}',
        "owner": b'{"owner": "a/b/c", "incarnation": "d"}',
        "checkpoint": zstandard.compress(head),
    }


@pytest.mark.parametrize("family", NAMES if SOAK else ["all"])
def test_damaged_store_object_gives_result_or_named_error(seeds: dict[str, bytes], family: str) -> None:
    assert seeds.keys() == TARGETS.keys()
    for name, seed in seeds.items():
        TARGETS[name](seed)
    chosen = NAMES if family == "all" else [family]
    tagged = [bytes([NAMES.index(name)]) + seeds[name] for name in chosen]
    report = fuzz(_any, tagged, variants=340, mutate=_mutated, memory=1 << 30)
    print(report)
    report.check()
