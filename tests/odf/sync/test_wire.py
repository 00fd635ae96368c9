"""TP-13, V:smart_protocol_wire: messages as the reference writes them, byte for byte; and as the AsyncAPI has them."""

from __future__ import annotations

import gzip
import io
import tarfile
from datetime import UTC, datetime

import orjson
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kubothek.errors import ChainCorrupt, FormatInvalid
from kubothek.odf import Multihash
from kubothek.odf.chain import Stored
from kubothek.odf.named import Kind, Named
from kubothek.odf.sync.smart import batch as archives
from kubothek.odf.sync.smart.batch import batch_of, blocks_of
from kubothek.odf.sync.smart.messages import (
    VERSION,
    VERSION_HEADER,
    Dialect,
    Plan,
    Refused,
    Transfer,
    accepted,
    internal,
    named_of,
    optional_hash,
    parse,
    reference,
    refused,
    render,
)
from kubothek.odf.sync.smart.pushing import targets_of
from tests.odf.vectors import GOLDEN

pytestmark = pytest.mark.slow

KAMU, VERSIONED, SPEC = Dialect.KAMU, Dialect.VERSIONED, Dialect.SPEC
A, B = Multihash.sha3(b"a"), Multihash.sha3(b"b")
SLICE = Named(Kind.DATA, A, 7)
PLAN = Plan(blocks=4, objects=1, records=3, block_bytes=100, object_bytes=7)
URL = Transfer("http://x/data/1", (("Authorization", "Bearer t"),), datetime(2026, 11, 22, 17, 0, tzinfo=UTC))
PLACE = (
    '{"url":"http://x/data/1","headers":[{"name":"Authorization","value":"Bearer t"}],'
    '"expires_at":"2026-11-22T17:00:00Z"}'
)
SKIPPED = {"object_file": reference(SLICE), "push_strategy": "SkipUpload"}
ERRORS = (
    '{"Err":{"Internal":{"error_message":"no"}}}',
    '{"errorDetails":{"errorCode":"Internal","description":"no"}}',
)
NAMES = ("Ok", "Err", "objectFiles", "object_files", "physical_hash", "url", "x")


@pytest.mark.requirement("TP-13")
@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (
            render({"begin_after": None, "stop_at": str(A), "force_update_if_diverged": False}, KAMU),
            f'{{"begin_after":null,"stop_at":"{A}","force_update_if_diverged":false}}',
        ),
        (
            accepted({"transfer_plan": PLAN.to_json()}, KAMU, first=True),
            '{"Ok":{"transfer_plan":{"num_blocks":4,"num_objects":1,"num_records":3,"bytes_in_raw_blocks":100,'
            '"bytes_in_raw_objects":7}}}',
        ),
        (
            refused("InvalidInterval", {"head": str(A), "tail": str(B)}, KAMU),
            f'{{"Err":{{"InvalidInterval":{{"head":"{A}","tail":"{B}"}}}}}}',
        ),
        (
            refused("InvalidHead", {"actual_head": str(A), "expected_head": None}, KAMU),
            f'{{"Err":{{"InvalidHead":{{"actual_head":"{A}","expected_head":null}}}}}}',
        ),
        (internal("no", KAMU, "Pull(InitialRequest)"), '{"Err":{"Internal":{"error_message":"no"}}}'),
        (
            internal("no", VERSIONED, "Pull(InitialRequest)"),
            '{"Err":{"Internal":{"phase":{"Pull":"InitialRequest"},"error_message":"no"}}}',
        ),
        (accepted({}, KAMU, first=True), '{"Ok":{}}'),
        (accepted({}, KAMU), "{}"),
        (accepted({}, VERSIONED), '{"Ok":{}}'),
        (
            render({"object_files": [reference(SLICE)], "is_truncated": False}, KAMU),
            f'{{"object_files":[{{"object_type":"DataSlice","physical_hash":"{A}","size":7}}],"is_truncated":false}}',
        ),
        (orjson.dumps(URL.to_json()), PLACE),
        (
            render({"details": {"Running": {"uploaded_objects_count": 3}}}, KAMU),
            '{"details":{"Running":{"uploaded_objects_count":3}}}',
        ),
        (render({"details": "Complete"}, KAMU), '{"details":"Complete"}'),
        # The AsyncAPI: other names, no envelopes, errors of its own.
        (
            accepted({"transfer_plan": PLAN.to_json()}, SPEC, first=True),
            '{"sizeEstimation":{"numBlocks":4,"numObjects":1,"bytesInRawBlocks":100,"bytesInRawObjects":7}}',
        ),
        (
            render(
                {"object_transfer_strategies": [{"object_file": reference(SLICE), "push_strategy": "SkipUpload"}]}, SPEC
            ),
            '{"objectTransferStrategies":[{"objectFile":{"objectType":"DataSlice","physicalHash":"'
            f'{A}","size":7}},"pushStrategy":"SkipUpload"}}]}}',
        ),
        (
            internal("no", SPEC, "Pull(InitialRequest)"),
            '{"errorDetails":{"errorCode":"Internal","description":"no","extras":{"error_message":"no"}}}',
        ),
    ],
)
def test_wire_messages_match_reference_byte_for_byte(sent: bytes, text: str) -> None:
    assert sent.decode() == text


def test_wire_messages_of_both_dialects_parse_alike() -> None:
    for text, dialect in (
        (f'{{"begin_after":"{A}","stop_at":null}}', KAMU),
        (f'{{"datasetId":"did:odf:x","beginAfter":"{A}"}}', SPEC),
    ):
        message, found = parse(text)
        assert (optional_hash(message, "begin_after"), optional_hash(message, "stop_at"), found) == (A, None, dialect)
    for text in (
        f'{{"object_files":[{{"object_type":"Checkpoint","physical_hash":"{A}","size":3}}]}}',
        f'{{"objectFiles":[{{"objectType":"Checkpoint","physicalHash":"{A}","size":3}}]}}',
    ):
        assert [named_of(each) for each in parse(text)[0]["object_files"]] == [Named(Kind.CHECKPOINT, A, 3)]
    assert parse('{"Ok":{"transfer_plan":{}}}')[0] == parse('{"sizeEstimation":{}}')[0] == {"transfer_plan": {}}
    assert Transfer.of_json(orjson.loads(PLACE)) == URL
    for error in (
        '{"Err":{"Internal":{"error_message":"no"}}}',
        '{"errorDetails":{"errorCode":"Internal","description":"no"}}',
    ):
        with pytest.raises(Refused, match="Internal: no"):
            parse(error)


@pytest.mark.parametrize("dialect", Dialect)
def test_block_archive_contains_blocks_oldest_first(dialect: Dialect) -> None:
    blocks = [Stored(Multihash.sha3(data), data) for data in (b"first", b"second" * 1000, b"")]
    batch = orjson.loads(orjson.dumps(batch_of(blocks, dialect)))
    assert blocks_of(batch) == blocks
    if dialect is not SPEC:
        assert [*batch] == ["num_blocks", "media_type", "encoding", "payload"]
        packed = gzip.decompress(bytes(batch["payload"]))
        assert packed[257:265] == b"ustar  \0"  # GNU
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            assert archive.getnames() == [str(block.hash) for block in blocks]


def archive(*entries: tuple[tarfile.TarInfo, bytes]) -> list[int]:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as made:
        for entry, data in entries:
            entry.size = len(data)
            made.addfile(entry, io.BytesIO(data))
    return [*packed.getvalue()]


@pytest.mark.parametrize("count", [1, 10**9])
def test_block_archive_with_repeated_block_is_refused_early(count: int) -> None:
    """A small archive had millions of them: minutes of work."""
    entry = tarfile.TarInfo(str(Multihash.sha3(b"")))
    packed = gzip.compress(entry.tobuf(tarfile.GNU_FORMAT) * 5000)
    with pytest.raises(FormatInvalid, match="comes twice in an archive"):
        blocks_of({"num_blocks": count, "payload": [*packed]})


def test_block_archive_beyond_compression_ratio_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_SMALL", 1 << 16)
    entries = []
    for number in range(4):
        data = bytes((1 << 18) + number)
        entries.append((tarfile.TarInfo(str(Multihash.sha3(data))), data))
    with pytest.raises(FormatInvalid, match="unpacks to too much"):
        blocks_of({"num_blocks": 4, "payload": archive(*entries)})


def test_block_archive_with_extension_header_is_refused() -> None:
    long = tarfile.TarInfo("x" * 200)
    extra = tarfile.TarInfo(str(A))
    extra.type = tarfile.XGLTYPE
    for packed in (archive((long, b"a")), [*gzip.compress(extra.tobuf(tarfile.USTAR_FORMAT) * 5000)]):
        with pytest.raises(FormatInvalid, match="is no file"):
            blocks_of({"num_blocks": 1, "payload": packed})


def test_block_archive_that_is_invalid_or_too_large_is_refused() -> None:
    good = tarfile.TarInfo(str(A))
    link = tarfile.TarInfo(str(A))
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    assert blocks_of({"num_blocks": 1, "payload": archive((good, b"a"))})[0].data == b"a"
    bomb = [*gzip.compress(bytes(64 << 20))]
    for payload, count in (
        (archive((link, b"")), 1),
        (archive((good, b"a")), 2),
        (archive((tarfile.TarInfo("../../etc/passwd"), b"a")), 1),
        (bomb, 1),
        (10**12, 1),
        ([300], 1),
        ("!!!", 1),
        ([], 1),
        (archive((good, b"a"))[:30], 1),
    ):
        with pytest.raises(FormatInvalid):
            blocks_of({"num_blocks": count, "payload": payload}, 1 << 20)
    with pytest.raises(ChainCorrupt):
        blocks_of({"num_blocks": 1, "payload": archive((good, b"b"))})
    block = good.tobuf(tarfile.GNU_FORMAT)
    for damaged in (b"\0" * 100 + block[100:], block[:124] + b"\x80" * 12 + block[136:], block[:148] + b"x" * 364):
        with pytest.raises(FormatInvalid):
            blocks_of({"num_blocks": 1, "payload": [*damaged]})
    nothing: list[object] = [None, 1, [], {}, {"payload": []}]
    for batch in nothing:
        with pytest.raises(FormatInvalid):
            blocks_of(batch)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=8) | st.just(str(A)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["Ok", "Err", "objectFiles", "object_files", "physical_hash", "url", "x"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=50, deadline=None)
@given(_JSON)
def test_random_wire_message_is_parsed_or_refused(value: object) -> None:
    try:
        message, _ = parse(orjson.dumps(value))
        optional_hash(message, "x")
        named_of(message)
        Transfer.of_json(message)
        blocks_of(message)
    except (FormatInvalid, ChainCorrupt, Refused):
        pass


def test_upload_target_for_object_not_offered_is_refused() -> None:
    target = {"object_file": reference(SLICE), "push_strategy": "HttpUpload", "upload_to": orjson.loads(PLACE)}
    assert targets_of([SLICE], [target]) == {SLICE: URL}
    assert targets_of([SLICE], [SKIPPED]) == {}
    with pytest.raises(FormatInvalid, match="not offered"):
        targets_of([Named(Kind.DATA, B, 7)], [target])


def test_version_header_is_that_of_specification_0_39() -> None:
    api = yaml.safe_load((GOLDEN / "0.39" / "protocols" / "smart-transfer-protocol.openapi.yaml").read_text())
    required = {
        path: [
            api["components"]["parameters"][each["$ref"].rpartition("/")[2]]["name"]
            for each in api["paths"][path]["get"]["parameters"]
            if "Version" in each["$ref"]
        ]
        for path in ("/pull", "/push")
    }
    assert required == {key: ["Sec-WebSocket-Version", VERSION_HEADER] for key in ("/pull", "/push")}
    assert str(api["components"]["parameters"]["odfSmartTransferProtocolVersion"]["example"]) == VERSION
