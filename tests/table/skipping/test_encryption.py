"""Encrypted metadata: by index and footer, with keys in files or elsewhere; without them a clear refusal."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from kubothek.errors import SkippingUnreadable
from kubothek.table.skipping.entries import Describer, fields
from kubothek.table.skipping.files.encryption import MasterKeys
from kubothek.table.skipping.files.metadata_file import encryption_metadata, xskipper_fields
from kubothek.table.skipping.files.reading import load, load_location
from kubothek.table.skipping.files.writing import write
from kubothek.table.skipping.model import Encryption, IndexDefinition
from kubothek.table.skipping.names import location
from kubothek.table.skipping.refresh import merged
from tests.table.log.memory import MemoryStore

COLUMNS: dict[str, pa.DataType] = {"id": pa.int64(), "city": pa.string(), "vid": pa.string(), "t": pa.timestamp("us")}
TABLE = pa.schema(COLUMNS)
DEFINITIONS = (
    IndexDefinition("MinMax", ("id",), key="k1"),
    IndexDefinition("ValueList", ("city",), key="k2"),
    IndexDefinition("BloomFilter", ("vid",), key="k1"),
    IndexDefinition("ValueList", ("t",), key="k2"),
    IndexDefinition("MinMax", ("city",)),
)
SCHEMA = fields(DEFINITIONS, TABLE)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    (tmp_path / "k0").write_bytes(b"0" * 16)
    (tmp_path / "k1").write_text(base64.b64encode(b"1" * 32).decode() + "\n")
    (tmp_path / "k2").write_bytes(b"2" * 24)
    return tmp_path


def store_with(keys: Path | None) -> MemoryStore:
    store = MemoryStore()
    store.config = replace(store.config, keys_dir=None if keys is None else str(keys))
    return store


def entries() -> pa.Table:
    describer = Describer(SCHEMA)
    columns = [pa.array([n], kind) for n, kind in ((7, pa.int64()), ("Oslo", pa.string()), ("v", pa.string()))]
    describer.update(pa.record_batch([*columns, pa.array([0], pa.timestamp("us"))], schema=TABLE))
    entry = describer.finish()
    assert entry is not None
    return SCHEMA.row("u/t/x.parquet", 5, {}, entry)


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_encrypted_skipping_metadata_survives_roundtrip(keys: Path, plaintext_footer: bool) -> None:
    store, encryption = store_with(keys), Encryption("k0", plaintext_footer)
    part = write(store, "u", "t", SCHEMA, entries(), encryption=encryption)
    assert len(part.keys) == 2
    for key in part.keys:
        assert store.get(key)[:4] == (b"PAR1" if plaintext_footer else b"PARE")
    assert load(store, part).drop_columns(["vid_bloomfilter_3"]).to_pylist() == [
        {
            "key": "u/t/x.parquet",
            "modified": 5,
            "id_minmax_2": {"min": 7, "max": 7},
            "city_valuelist_4": ["Oslo"],
            "t_valuelist_1": [datetime(1970, 1, 1)],
            "city_minmax_4": {"min": "Oslo", "max": "Oslo"},
        }
    ]
    found = load_location(store, location("u"))
    assert [each.key for each in found.definitions] == ["k1", "k2", "k1", None]
    (again,) = merged(store, "u", "t", SCHEMA, [part], encryption=encryption)
    assert store.get(again.key)[:4] == (b"PAR1" if plaintext_footer else b"PARE")
    assert load(store, again).column("id_minmax_2").to_pylist() == [{"min": 7, "max": 7}]


def test_encryption_settings_match_xskipper() -> None:
    """The text that real Xskipper 1.7 wrote for such an index list, but for the order of its parts (facts 1.5)."""
    found = encryption_metadata(xskipper_fields(SCHEMA, "/d"), Encryption("k1"))
    assert dict(part.split(":") for part in found["encryption.column.keys"].split(";")) == {
        "k1": "obj_name,id_minmax_2.min,id_minmax_2.max,vid_bloomfilter_3",
        "k2": "city_valuelist_4.list.element",
    }
    assert found["encryption.footer.key"] == "k1"
    assert "encryption.plaintext.footer" not in found
    sealed = xskipper_fields(SCHEMA, "/d", Encryption("k1", plaintext_footer=True))
    assert sealed[0].metadata["encryption"]["encryption.plaintext.footer"] == "true"
    assert [field.metadata["index"].get("key_metadata") for field in sealed[1:]] == ["k1", "k2", "k1", None]


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_encrypted_skipping_metadata_without_keys_is_refused(keys: Path, plaintext_footer: bool) -> None:
    store = store_with(keys)
    part = write(store, "u", "t", SCHEMA, entries(), encryption=Encryption("k0", plaintext_footer))
    without = store_with(None)
    without.objects = store.objects
    with pytest.raises(SkippingUnreadable, match=r"skipping-own/part-.* is encrypted: .*keysSecretRef"):
        load(without, part)
    with pytest.raises(SkippingUnreadable, match=r"is encrypted: .*keysSecretRef"):
        load_location(without, location("u"))
    with pytest.raises(SkippingUnreadable, match="keysSecretRef"):
        write(without, "u", "t", SCHEMA, entries(), encryption=Encryption("k0"))
    # A reader that has never heard of encryption gets nothing either.
    with pytest.raises((OSError, pa.ArrowException)):
        pq.read_table(pa.BufferReader(store.get(part.key)))


def test_encrypted_skipping_metadata_with_some_keys_opens_some_columns(keys: Path) -> None:
    store = store_with(keys)
    part = write(store, "u", "t", SCHEMA, entries(), encryption=Encryption("k0"))
    (keys / "k2").unlink()
    assert load(store, part, columns=[DEFINITIONS[0]]).column("id_minmax_2").to_pylist() == [{"min": 7, "max": 7}]
    with pytest.raises(SkippingUnreadable, match="no master key 'k2'"):
        load(store, part, columns=[DEFINITIONS[1]])


def test_encrypted_skipping_metadata_with_wrong_key_is_refused(keys: Path) -> None:
    store = store_with(keys)
    part = write(store, "u", "t", SCHEMA, entries(), encryption=Encryption("k0"))
    (keys / "k0").write_bytes(b"x" * 16)
    with pytest.raises(SkippingUnreadable, match=r"is encrypted: master key 'k0' is not the one"):
        load(store, part)


@pytest.mark.parametrize(
    ("label", "content", "message"),
    [
        ("k9", None, "no master key 'k9' in "),
        ("../k0", None, "cannot be the label"),
        ("short", b"abc", "16, 24 or 32 bytes"),
        ("text", b"not base64!", "16, 24 or 32 bytes"),
    ],
)
def test_invalid_master_key_is_refused(keys: Path, label: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (keys / label).write_bytes(content)
    with pytest.raises(SkippingUnreadable, match=message):
        MasterKeys(keys).key(label)


class Elsewhere(pe.KmsClient):
    """Another key management service."""

    def __init__(self, _config: Any) -> None:
        pe.KmsClient.__init__(self)

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        return f"{master_key_identifier}/{base64.b64encode(key_bytes).decode()}"

    def unwrap_key(self, wrapped_key: str | bytes, master_key_identifier: str) -> bytes:  # type: ignore[override]
        text = wrapped_key if isinstance(wrapped_key, str) else wrapped_key.decode()
        label, _, key = text.partition("/")
        assert label == master_key_identifier
        return base64.b64decode(key)


@pytest.fixture
def plugged() -> Iterator[None]:
    MasterKeys.plugged = Elsewhere
    yield
    MasterKeys.plugged = None


@pytest.mark.usefixtures("plugged")
def test_encrypted_skipping_metadata_uses_custom_key_service() -> None:
    store = store_with(None)
    part = write(store, "u", "t", SCHEMA, entries(), encryption=Encryption("any"))
    assert load(store, part).column("city_valuelist_4").to_pylist() == [["Oslo"]]
