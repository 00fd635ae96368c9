"""Chains and manifests of newer versions of Open Data Fabric: read, continued, and kept as they are."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kubothek.errors import FormatInvalid, SchemaMismatch, UnsupportedVersion
from kubothek.odf import Layout, Multihash, verify
from kubothek.odf.dataset import Root, Table, import_chain
from kubothek.odf.ingest.pushing import push_files
from kubothek.odf.sources.readers import FileContent
from kubothek.odf.sources.readers.declared import declared_schema
from kubothek.odf.spec.blocks import Block, Dialect
from kubothek.odf.spec.manifests import read_snapshot, write_snapshot
from kubothek.odf.spec.sources import ReadStepNdJson
from kubothek.odf.spec.versions import SpecVersion
from kubothek.odf.sync import StoreRepository, pull
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys
from tests.odf.vectors import GOLDEN

pytestmark = pytest.mark.slow

NEWEST = GOLDEN / "newest"


def golden(name: str) -> Store:
    return open_store(StoreConfig((NEWEST / name).as_uri()))


@pytest.mark.parametrize("name", sorted(path.name for path in NEWEST.iterdir()))
def test_chain_of_the_newest_reference_is_sound_and_kept(name: str, store: Store) -> None:
    source = golden(name)
    for uuid, copy in (("imported", import_chain), ("pulled", _pulled)):
        copy(store, DatasetLog(store, uuid), source, table=Table())
        report = verify(store, Layout(keys.chain(uuid)))
        assert (report.sound, report.problems) == (True, ())
        for path in (NEWEST / name / "blocks").iterdir():
            assert store.get(f"{keys.chain(uuid)}blocks/{path.name}") == path.read_bytes()
        root = Root(store, DatasetLog(store, uuid))
        assert root.state.version is not None
        assert root.state.version >= SpecVersion.V0_37
        assert all(block.canonical for block in root.blocks())


def _pulled(store: Store, log: DatasetLog, source: Store, table: Table) -> None:
    pull(store, log, StoreRepository(source), table=table)


def test_chain_with_an_odf_schema_is_continued_in_its_form(store: Store) -> None:
    log = DatasetLog(store, "cities")
    import_chain(store, log, golden("snapshot-merge-odf-schema"), table=Table())
    root = Root(store, log)
    before = root.state.length
    rows = b"city,population,event_time\nOslo,1,2026-01-01T00:00:00Z\n"
    assert push_files(root, [FileContent.of_bytes(rows, "cities.csv")], "default").records > 0
    first = next(iter(Root(store, log).blocks()))
    assert (first.dialect, first.content.sequence_number) == (Dialect.ALIGNED, before), "the schema is the same"
    assert verify(store, Layout(keys.chain("cities"))).sound


def test_damage_before_newer_block_is_reported(store: Store) -> None:
    source = golden("in1-odf-schema")
    for info in source.list(""):
        store.put(info.key, source.get(info.key))
    store.put("blocks/f1620730c8c4f0262610e0fd0e3cce4f8361e3fdf8f70b8ef2f6ef8a8aa6b664d93d6", b"damaged")
    (problem,) = verify(store, Layout()).problems
    assert problem.code == "BlockHash"


def test_source_with_an_odf_schema_reads_its_columns(store: Store) -> None:
    log = DatasetLog(store, "kept")
    import_chain(store, log, golden("odfschema"), table=Table())
    root = Root(store, log)
    event = root.state.push_sources["typed"]
    assert isinstance(event.read, ReadStepNdJson)
    assert event.read.schema is not None
    fields: list[Any] = [pa.field("city", pa.string(), False), pa.field("n", pa.int64())]
    assert declared_schema(event.read) == pa.schema(fields)
    content = FileContent.of_bytes(b'{"city": "Oslo", "n": 1}\n', "cities.ndjson")
    with pytest.raises(SchemaMismatch, match="'population' is missing"):
        push_files(root, [content], "typed")
    rows = b"Oslo,1,2026-01-01T00:00:00Z\n"
    assert push_files(root, [FileContent.of_bytes(rows, "cities.csv")], "default").records == 1
    names = {block.hash for block in root.blocks()}
    assert {Multihash.parse(path.name) for path in (NEWEST / "odfschema/blocks").iterdir()} <= names, "bytes are kept"


def test_block_with_newer_manifest_version_raises_unsupported_version() -> None:
    path = next((NEWEST / "in1-odf-schema/blocks").iterdir())
    data = path.read_bytes()
    for version, error in ((4, UnsupportedVersion), (1, FormatInvalid)):
        other = data.replace((3).to_bytes(4, "little"), version.to_bytes(4, "little"), 1)
        with pytest.raises(error, match=rf"version {version}"):
            Block.decode(other)


SNAPSHOT = """
kind: DatasetSnapshot
version: 1
content:
  name: cities
  kind: Root
  metadata:
    - kind: AddPushSource
      sourceName: default
      read: {read}
      merge: {merge}
    {more}
"""
READ = "{kind: Csv, schema: [city STRING]}"
MERGE = "{kind: Append}"
MQTT = "{kind: Mqtt, host: x, port: 1883, topics: [{path: a/#}]}"
TYPED = "schema: {fields: [{name: city, type: String}]}"


@pytest.mark.parametrize(
    ("read", "merge", "more"),
    [
        ("{kind: Csv, ddlSchema: [city STRING]}", MERGE, ""),
        (f"{{kind: Csv, {TYPED}}}", MERGE, ""),
        (READ, "{kind: UpsertStream, primaryKey: [city]}", ""),
        (READ, "{kind: changelogStream, primaryKey: [city]}", ""),
        (READ, MERGE, f"- {{kind: SetDataSchema, {TYPED}}}"),
        (READ, MERGE, f"- {{kind: SetDataSchema, rawArrowSchema: AA==, {TYPED}}}"),
        (READ, MERGE, f"- {{kind: SetPollingSource, fetch: {MQTT}, read: {READ}, merge: {MERGE}}}"),
    ],
)
def test_snapshot_of_the_newest_form_comes_back(read: str, merge: str, more: str) -> None:
    text = SNAPSHOT.replace("{read}", read).replace("{merge}", merge).replace("{more}", more)
    snapshot = read_snapshot(text)
    for version in SpecVersion:
        assert read_snapshot(write_snapshot(snapshot, version)) == snapshot


@pytest.mark.parametrize(
    ("version", "name"), [("0.34", "schema"), ("0.37", "schema"), ("0.38", "ddlSchema"), ("0.39", "ddlSchema")]
)
def test_ddl_columns_have_the_name_of_the_version(version: str, name: str) -> None:
    text = SNAPSHOT.replace("{read}", READ).replace("{merge}", MERGE).replace("{more}", "")
    assert f"{name}:\n      - city STRING" in write_snapshot(read_snapshot(text), SpecVersion(version))


def test_resource_manifest_of_newer_form_raises_unsupported_version() -> None:
    text = (
        "$schema: https://opendatafabric.org/schemas/dataset/v1alpha1/Dataset\nheaders: {name: x}\nspec: {kind: Root}\n"
    )
    with pytest.raises(UnsupportedVersion, match="headers and spec"):
        read_snapshot(text)


def test_invalid_snapshot_is_not_reported_as_newer() -> None:
    for read, merge in (("{kind: Cvs}", MERGE), ("{kind: Csv, schemas: []}", MERGE), (READ, "Apend"), (READ, "[]")):
        with pytest.raises(FormatInvalid):
            read_snapshot(SNAPSHOT.replace("{read}", read).replace("{merge}", merge).replace("{more}", ""))
