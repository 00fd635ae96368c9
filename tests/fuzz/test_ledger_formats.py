"""Bytes of blocks, chains, manifests, messages of engines and checkpoints end in a result or a named error."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest

from kubothek.errors import FormatInvalid
from kubothek.odf.chain import Stored
from kubothek.odf.engines.server.transforming import Marks, join, split
from kubothek.odf.spec import engine_messages as messages
from kubothek.odf.spec.arrow_schema import decode_schema, encode_schema
from kubothek.odf.spec.blocks import Block, Dialect, link_of
from kubothek.odf.spec.engine_wire import enveloped, unwrapped
from kubothek.odf.spec.events import MetadataBlock
from kubothek.odf.spec.manifests import read_manifest, read_snapshot, write_block, write_snapshot
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.resources import read_definition, write_resources
from kubothek.odf.spec.sources import SqlQueryStep, TransformSql
from kubothek.odf.transform import TransformInput, TransformRequest, execute
from kubothek.odf.transform.checkpoint import Reader
from kubothek.odf.transform.places import Mapped
from kubothek.odf.validation.snapshots import first_blocks
from kubothek.odf.validation.state import Vocabulary
from kubothek.odf.validation.verification import audit
from kubothek.storage import StoreConfig, open_store
from tests.fuzz.harness import Mutation, fuzz, variant
from tests.odf.making import KEY, NOON, SCHEMA, rows, small
from tests.odf.test_manifests import ROOT
from tests.odf.vectors import GOLDEN, VECTORS
from tests.sampling import SOAK

pytestmark = pytest.mark.slow

BLOCKS = [bytes.fromhex(each["hex"]) for each in VECTORS["blocks"]]
NEWEST = [path.read_bytes() for path in sorted((GOLDEN / "newest").glob("*/blocks/*"))]
TYPED = """
kind: DatasetSnapshot
version: 1
content:
  name: typed
  kind: Root
  metadata:
    - kind: SetDataSchema
      schema:
        extra: {kamu.dev/archetype: x}
        fields:
          - {name: offset, type: UInt64}
          - {name: op, type: UInt8}
          - {name: system_time, type: Timestamp}
          - {name: event_time, type: {kind: Timestamp, unit: Microsecond, timezone: UTC}}
          - {name: a, type: {kind: Option, inner: {kind: List, itemType: {kind: Decimal, precision: 9, scale: -2}}}}
          - {name: b, type: {kind: Map, keyType: String, valueType: {kind: Binary, fixedLength: 3}, keysSorted: true}}
          - name: c
            type: {kind: Struct, fields: [{name: d, type: Date, extra: {x.org/y: [1, {z: null}]}}]}
          - {name: e, type: String, extra: {arrow.apache.org/bufferEncoding: {kind: View, offsetBitWidth: 32}}}
          - name: f
            type: String
            extra: {opendatafabric.org/type: {kind: ObjectLink, linkType: {kind: Multihash}}}
    - kind: SetPollingSource
      fetch: {kind: Mqtt, host: h, port: 1883, username: u, password: p, topics: [{path: a/#, qos: ExactlyOnce}]}
      read: {kind: NdJson, schema: {fields: [{name: a, type: {kind: Time, unit: Nanosecond}}]}}
      merge: {kind: UpsertStream, primaryKey: [a]}
    - kind: SetPollingSource
      fetch: {kind: EthereumLogs, chainId: 1, nodeUrl: x, filter: y, signature: z}
      read: {kind: Csv, ddlSchema: [a INT]}
      merge: {kind: ChangelogStream, primaryKey: [a]}
"""
"""What specification 0.39 has and 0.34 has not."""
TYPED_BLOCKS = [
    Block.encode(MetadataBlock(system_time=NOON, sequence_number=number, event=event), dialect).data
    for number, event in enumerate(read_snapshot(TYPED).metadata)
    for dialect in Dialect
]
YAML = [ROOT.encode(), TYPED.encode(), *(each["yaml"].encode() for each in VECTORS["blocks"] if each["yaml"])]
MESSAGES = [bytes.fromhex(each["hex"]) for each in VECTORS["engine_messages"]]
NESTED = pa.schema(
    [("s", pa.struct([("a", pa.list_(pa.decimal128(9, 2))), ("b", pa.timestamp("us", "Europe/Berlin"))]))]
)


# --- blocks and chains -----------------------------------------------------------------------------------------------


def block(data: bytes) -> None:
    link_of(data)
    found = Block.decode(data)
    _ = found.canonical
    write_block(found.content, found.dialect)


@cache
def chain() -> list[Stored]:
    """A good chain, but for its data, which is not there."""
    with TemporaryDirectory(prefix="kubothek-fuzz-") as directory:
        maker = small(open_store(StoreConfig(Path(directory).as_uri())))
    return [Stored(each.hash, each.data) for each in maker.blocks]


def followed(data: bytes) -> None:
    """The block after a chain, whose hash is right as a hostile writer would see to."""
    for length in (0, len(chain())):
        audit([*chain()[:length], Stored(Multihash.sha3(data), data)])


def schema(data: bytes) -> None:
    found = decode_schema(data)
    encode_schema(found)
    str(found)


# --- manifests -------------------------------------------------------------------------------------------------------


def manifest(data: bytes) -> None:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise FormatInvalid("no UTF-8") from error
    found = read_manifest(text)
    if found.kind == "DatasetSnapshot":
        write_snapshot(found.content)
        first_blocks(found.content, KEY.dataset_id, NOON, lambda reference: None)


def resources(data: bytes) -> None:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise FormatInvalid("no UTF-8") from error
    found = read_definition(text)
    assert read_definition(write_resources(found)) == found


def change_text(random: Random, data: bytes) -> bytes:
    """Other values and keys in the lines of a YAML text."""
    lines = data.decode().splitlines()
    for _ in range(random.choice((1, 2, 5))):
        at = random.randrange(len(lines))
        indent = len(lines[at]) - len(lines[at].lstrip())
        key, colon, _ = lines[at].partition(":")
        match random.randrange(5):
            case 0:
                lines[at] = f"{key}: {random.choice(VALUES)}"
            case 1:
                lines.insert(at, " " * indent + random.choice(VALUES))
            case 2:
                lines[at] = " " * random.randrange(9) + lines[at].lstrip()
            case 3:
                lines[at] = f"{' ' * indent}{random.choice(VALUES)}{colon} {random.choice(VALUES)}"
            case _:
                del lines[at]
                lines = lines or [""]
    return "\n".join(lines).encode()


VALUES = (
    *("null", "~", "[]", "{}", "- - -", "? x", "*a", "&a b", "! x", "<<: {a: 1}", "!!binary AA==", "!!set {a}"),
    *("!!omap [a: 1]", "!!pairs [a]", "!!timestamp x", "!!float x", "!!int x", "!!bool x", "!!null x", "!<x> y"),
    *("!!python/name:os.system", "1e999", "-.inf", ".nan", "0x10", "1_000", "2026-01-01", "9" * 5000, "1:30"),
    *(
        '"\\ud800"',
        '"\\U00110000"',
        '"\\x00"',
        "{a: 1, a: 2}",
        "{[a]: 1}",
        "{1: 2}",
        "{null: 1}",
        "[" * 60,
        "{a: " * 60,
    ),
    *(
        "|",
        ">-",
        "%YAML 9.9",
        "---",
        "...",
        "\t",
        "kind: Root",
        "kind: [Root]",
        "true",
        "'",
        '"',
        "#",
        "@",
        "`",
        "x: y: z",
    ),
    *("=", "version: true", "\ufeff"),
)
_EXAMPLES = GOLDEN / "0.39" / "examples"
RESOURCES = [
    b"\n---\n".join((_EXAMPLES / name / file).read_bytes() for file in (dataset, "source.yaml"))
    for name, dataset in (("source-polling-url", "dataset.yaml"), ("source-push-http", "dataset-raw.yaml"))
]
JSON: tuple[Any, ...] = (None, -1, 0, 7, 1 << 70, 1e300, "x", "BIGINT", "VARCHAR", [], {}, [[]], True, "\ud800")
KINDS = (
    messages.TransformRequest,
    messages.RawQueryRequest,
    messages.TransformResponseRoot,
    messages.RawQueryResponseRoot,
)


# --- engines ---------------------------------------------------------------------------------------------------------


def message(data: bytes) -> None:
    """As a request of another coordinator, and as an answer of another engine."""
    inner, refused = unwrapped(data), list[FormatInvalid]()
    for kind in KINDS:
        try:
            messages.decode_message(kind, inner)
        except FormatInvalid as error:
            refused.append(error)
    if len(refused) == len(KINDS):
        raise refused[0]


GROUPED = "SELECT max(event_time) AS event_time, city, count(*) AS n, sum(population) AS s FROM cities GROUP BY city"


def transformed(room: Path, state: Path | None, first: int, rows_: int) -> Path | None:
    """One run of a query with a state; the checkpoint that it leaves."""
    given = TransformInput(
        id=KEY.dataset_id,
        alias="cities",
        query_alias="cities",
        vocabulary=Vocabulary(),
        schema=SCHEMA,
        rows=lambda: pa.RecordBatchReader.from_batches(SCHEMA, rows(first, rows_).to_batches()),
        watermarks=(),
        blocks=((NOON, first, first + rows_ - 1),),
        previous_watermark=None,
    )
    made = execute(
        TransformRequest(
            transform=TransformSql(engine="duckdb", queries=(SqlQueryStep(query=GROUPED),)),
            vocabulary=Vocabulary(),
            inputs=(given,),
            system_time=NOON,
            previous_watermark=None,
            checkpoint=state,
            new_checkpoint=room / "after",
            scratch=room,
        )
    )
    made.rows.read_all()
    return room / "after" if made.checkpoint else None


@cache
def checkpoint() -> bytes:
    """The checkpoint of an engine, which a coordinator hands back."""
    with TemporaryDirectory() as directory:
        state = transformed(Path(directory), None, 0, 40)
        whole = io.BytesIO()
        join(state, Marks({str(KEY.dataset_id): NOON}, NOON), whole)
        return whole.getvalue()


def state(data: bytes) -> None:
    """All that a checkpoint holds, without a run."""
    with TemporaryDirectory(prefix="kubothek-fuzz-") as directory:
        _, path = split(io.BytesIO(data), Path(directory) / "state")
        if path is not None:
            reader = Reader(Mapped(path))
            for name, stored in reader.tables.items():
                for _ in reader.segments(name, range(stored.index.num_rows)):
                    pass
                reader.raw(name, 0, stored.index.num_rows)


def resumed(data: bytes) -> None:
    """The run that goes on from a checkpoint."""
    with TemporaryDirectory(prefix="kubothek-fuzz-") as directory:
        room = Path(directory)
        _, state = split(io.BytesIO(data), room / "before")
        transformed(room, state, 40, 3)


def change_footer(random: Random, data: bytes) -> bytes:
    """Another JSON document as the footer of the state, or as the watermarks; lengths and magics are right."""
    marks_end, marks_size = len(data) - 24, int.from_bytes(data[-24:-16], "little")
    marks = json.loads(data[marks_end - marks_size : marks_end])
    end = marks_end - marks_size - 24
    size = int.from_bytes(data[end : end + 8], "little")
    footer = json.loads(data[end - size : end])
    _change(random, random.choice((footer, footer, marks)))
    text, told = json.dumps(footer).encode(), json.dumps(marks).encode()
    ends = ((text, data[end + 8 : end + 24]), (told, data[-16:]))
    return data[: end - size] + b"".join(each + len(each).to_bytes(8, "little") + magic for each, magic in ends)


def _change(random: Random, value: Any) -> None:
    """Another value somewhere in a JSON document."""
    while True:
        key = random.choice(list(value) if isinstance(value, dict) else range(len(value)))
        if isinstance(value[key], dict | list) and value[key] and random.random() < 0.8:
            value = value[key]
            continue
        if isinstance(value, dict) and random.random() < 0.2:
            value[random.choice(("x", "tables", "city"))] = value.pop(key)
        else:
            value[key] = random.choice(
                (None, -1, 0, 7, 1 << 70, 1e300, "x", "BIGINT", "VARCHAR", [], {}, [[]], True, "\ud800")
            )
        return


# --- tests -----------------------------------------------------------------------------------------------------------


FORMATS: dict[str, tuple[Callable[[bytes], None], Callable[[], list[bytes]], Mutation | None]] = {
    "block": (block, lambda: [*BLOCKS, *NEWEST, *TYPED_BLOCKS], None),
    "chain": (followed, lambda: [*BLOCKS, *NEWEST, *TYPED_BLOCKS, *(each.data for each in chain())], None),
    "schema": (schema, lambda: [encode_schema(SCHEMA), encode_schema(NESTED)], None),
    "manifest": (manifest, lambda: YAML, change_text),
    "resources": (resources, lambda: RESOURCES, change_text),
    "message": (message, lambda: [enveloped(each) for each in MESSAGES], None),
    "state": (state, lambda: [checkpoint()], change_footer),
    "checkpoint": (resumed, lambda: [checkpoint()], change_footer),
}


def any_format(data: bytes) -> None:
    """The first byte says which."""
    target, _, _ = [*FORMATS.values()][data[0] % len(FORMATS)] if data else FORMATS["block"]
    target(data[1:])


def change_any(random: Random, data: bytes) -> bytes:
    _, _, mutate = [*FORMATS.values()][data[0]]
    return data[:1] + (mutate(random, data[1:]) if mutate else variant([data[1:]], random.randrange(1 << 30), 0))


@pytest.mark.skipif(SOAK, reason="a soak tries each format alone")
def test_fuzzed_bytes_of_any_format_give_result_or_named_error() -> None:
    seeds = [bytes([number]) + each for number, (_, seeds, _) in enumerate(FORMATS.values()) for each in seeds()]
    report = fuzz(any_format, seeds, variants=2 * len(seeds), mutate=change_any).check()
    assert report.results > report.variants // 20, report


@pytest.mark.skipif(not SOAK, reason="a soak")
@pytest.mark.parametrize("name", FORMATS)
def test_fuzzed_bytes_of_one_format_give_result_or_named_error(name: str) -> None:
    target, seeds, mutate = FORMATS[name]
    print(fuzz(target, seeds(), mutate=mutate, soak=10_000 if name == "checkpoint" else 100_000).check())
