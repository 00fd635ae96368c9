"""Hashes, identities and names as text and bytes: HS-04 … HS-07, ID-01 … ID-05, GR-01 … GR-08, GR-10."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from kubothek.errors import FormatInvalid
from kubothek.odf.spec import multibase, names
from kubothek.odf.spec.identity import DatasetId, OwnerKey
from kubothek.odf.spec.layout import Layout, head_bytes, parse_head
from kubothek.odf.spec.multihash import Codec, Multihash, split_varint, varint
from kubothek.odf.spec.timestamps import Timestamp
from tests.odf.vectors import VECTORS

DATA = b"\x00\x00multi\xffbase"


def test_codec_varints_match_published_vectors() -> None:
    for name, vector in VECTORS["codecs"].items():
        assert varint(int(vector["code"], 16)).hex() == vector["varint"], name
        assert split_varint(bytes.fromhex(vector["varint"]) + b"rest") == (int(vector["code"], 16), b"rest")


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x80\x00", b"\xff" * 10])
def test_invalid_varint_is_refused(data: bytes) -> None:
    with pytest.raises(FormatInvalid):
        split_varint(data)


@pytest.mark.requirement("HS-04")
@pytest.mark.parametrize("vector", VECTORS["multihash"], ids=lambda vector: vector["source"][:20])
def test_multihash_vectors_are_read_and_written(vector: dict[str, str]) -> None:
    text = vector.get("sha3_256_multihash_base16") or vector["base16"]
    found = Multihash.parse(text)
    assert str(found) == text
    assert Multihash.parse(vector["base58btc"]) == found == Multihash.from_bytes(bytes(found))
    if "data_utf8" in vector:
        assert Multihash.sha3(vector["data_utf8"].encode()) == found
        assert found.short == vector["short8"]  # HS-07


@pytest.mark.requirement("HS-05")
@pytest.mark.parametrize(
    "text",
    [
        "f" + DATA.hex(),
        "F" + DATA.hex().upper(),
        "b" + base64.b32encode(DATA).decode().lower().rstrip("="),
        "B" + base64.b32encode(DATA).decode().rstrip("="),
        "m" + base64.b64encode(DATA).decode().rstrip("="),
        "u" + base64.urlsafe_b64encode(DATA).decode().rstrip("="),
        "U" + base64.urlsafe_b64encode(DATA).decode(),
        multibase.encode_base58(DATA),
    ],
)
def test_multibase_vector_of_every_final_base_is_decoded(text: str) -> None:
    assert multibase.decode(text) == DATA


@pytest.mark.requirement("HS-05")
def test_base58_keeps_leading_zeros() -> None:
    assert multibase.encode_base58(b"\0\0a") == "z112g"
    assert multibase.decode("z112g") == b"\0\0a"


@pytest.mark.requirement("HS-05")
@pytest.mark.parametrize(
    "text", ["", "f0", "f0g", "z0", "b1", "b=", "m=", "u+", "U_", "xff", "fé", "é", "z" + "1" * 5000]
)
def test_invalid_multibase_is_refused(text: str) -> None:
    with pytest.raises(FormatInvalid):
        multibase.decode(text)


@pytest.mark.requirement("HS-04")
@pytest.mark.parametrize(
    "data",
    [b"", b"\x16", b"\x16\x20" + b"a" * 31, b"\x16\x21" + b"a" * 33, b"\x16\x20" + b"a" * 33, b"\x11\x14" + b"a" * 20],
)
def test_hash_of_unknown_form_is_refused(data: bytes) -> None:
    with pytest.raises(FormatInvalid):
        Multihash.from_bytes(data)


@pytest.mark.requirement("ID-02")
@pytest.mark.parametrize("vector", VECTORS["did"], ids=lambda vector: vector["seeded_with"])
def test_did_vectors_are_read_and_written(vector: dict[str, str]) -> None:
    found = DatasetId.parse(vector["did"])
    assert str(found) == vector["did"]
    assert bytes(found).hex() == vector["bytes"]
    assert DatasetId.from_bytes(bytes(found)) == found
    if "did_key_base58" in vector:  # ID-05
        assert found.did_key == "did:key:" + vector["did_key_base58"]
        assert DatasetId.parse("did:odf:" + vector["did_key_base58"]) == found


@pytest.mark.requirement("ID-01", "ID-04")
def test_owner_key_pair_proves_dataset_identity() -> None:
    # RFC 8032, 7.1, test 2
    key = OwnerKey(bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"))
    public = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    assert str(key.dataset_id) == f"did:odf:fed01{public}"
    signature = key.sign(b"\x72")
    assert signature.hex().startswith("92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da")
    assert key.dataset_id.signed(b"\x72", signature)
    assert not key.dataset_id.signed(b"\x73", signature)
    assert not key.dataset_id.signed(b"\x72", signature[:-1])
    assert not OwnerKey.new().dataset_id.signed(b"\x72", signature)
    assert key.seed.hex() not in repr(key)
    with pytest.raises(FormatInvalid, match="32 bytes, not 3"):
        _ = OwnerKey(b"abc").dataset_id


PARSERS: dict[str, Any] = {
    "DatasetName": names.Name,
    "AccountName": names.Name,
    "RepoName": names.Name,
    "DatasetAlias": names.parse_alias,
    "DatasetAliasRemote": names.parse_remote_alias,
    "DatasetID": DatasetId.parse,
    "DatasetRef": names.parse_reference,
    "DatasetRefRemote": names.parse_remote,
    "DatasetRefAny": names.parse_any,
    "Multihash": Multihash.parse,
}


@pytest.mark.requirement("GR-01", "GR-02", "GR-03", "GR-04", "GR-05", "GR-06", "GR-07", "GR-08", "GR-10")
@pytest.mark.parametrize("vector", VECTORS["grammar"], ids=lambda vector: f"{vector['kind']}-{vector['text'][:40]}")
def test_name_vectors_are_parsed_as_published(vector: dict[str, Any]) -> None:
    parse, result = PARSERS[vector["kind"]], vector["result"]
    if not result["ok"]:  # where the reference panics, too
        with pytest.raises(FormatInvalid):
            parse(vector["text"])
        return
    assert str(parse(vector["text"])) == result["value"]
    if "short" in result:
        assert parse(vector["text"]).short == result["short"]


@pytest.mark.requirement("AL-02")
def test_names_compare_case_insensitively() -> None:
    assert names.Name("Net.Example") == names.Name("net.example")
    assert names.parse_alias("Kamu/Data") == names.parse_alias("kamu/data")
    assert len({names.Name("A"), names.Name("a"), names.Name("b")}) == 2
    assert names.Name("a") != names.Name("b")


@pytest.mark.requirement("MF-06")
@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("2024-02-29T23:59:59.123456789Z", "2024-02-29T23:59:59.123456789Z"),
        ("2024-01-01T12:00:00.500+02:00", "2024-01-01T10:00:00.500Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59.000001Z", "9999-12-31T23:59:59.000001Z"),
        ("1969-12-31t23:59:59z", "1969-12-31T23:59:59Z"),
    ],
)
def test_timestamp_is_read_and_written_as_rfc_3339_utc(text: str, written: str) -> None:
    moment = Timestamp.parse(text)
    assert str(moment) == written
    assert Timestamp.unpack(moment.pack(), 0) == moment


@pytest.mark.requirement("MF-06")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "2024-01-01",
        "2024-01-01T00:00:00",
        "2024-02-30T00:00:00Z",
        "2024-01-01T24:00:00Z",
        "0001-01-01T00:00:00+01:00",
    ],
)
def test_invalid_timestamp_is_refused(text: str) -> None:
    with pytest.raises(FormatInvalid):
        Timestamp.parse(text)


@pytest.mark.requirement("MF-06")
def test_python_datetime_without_zone_is_refused() -> None:
    moment = datetime(2024, 12, 31, 1, 2, 3, 4, tzinfo=timezone(timedelta(hours=1)))
    assert str(Timestamp.of(moment)) == "2024-12-31T00:02:03.000004Z"
    assert Timestamp.of(moment).pack()[4:6] == (366).to_bytes(2, "little")
    with pytest.raises(FormatInvalid, match="no time zone"):
        Timestamp.of(datetime(2024, 1, 1, tzinfo=UTC).replace(tzinfo=None))


@pytest.mark.requirement("LY-02", "CH-03")
def test_head_file_contains_exactly_block_hash() -> None:
    block = Multihash.sha3(b"block")
    assert len(head_bytes(block)) == 69
    assert parse_head(head_bytes(block)) == block
    assert parse_head(str(block).upper().encode()) == block
    assert parse_head(multibase.encode_base58(bytes(block)).encode()) == block
    mixed = str(block).replace("f", "F").replace("F", "f", 1).encode()
    logical = Multihash(Codec.ARROW0_SHA3_256, block.digest)
    for data in (head_bytes(block) + b"\n", b"", b"\xff", mixed, head_bytes(logical), b"f" * 1000):
        with pytest.raises(FormatInvalid):
            parse_head(data)
    assert Layout("a/").block(block) == f"a/blocks/{block}"
