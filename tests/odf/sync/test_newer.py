"""Chains and manifests of newer versions of Open Data Fabric: refused by name, or kept as they are."""

from __future__ import annotations

import pytest

from kubothek.errors import DatasetNotFound, FormatInvalid, UnsupportedVersion
from kubothek.odf import Layout, Multihash, verify
from kubothek.odf.dataset import Root, Table, import_chain
from kubothek.odf.ingest.pushing import InputFormat, push_files
from kubothek.odf.sources.readers import FileContent
from kubothek.odf.spec.blocks import Block
from kubothek.odf.spec.manifests import read_snapshot
from kubothek.odf.spec.unknown import Unknown
from kubothek.odf.sync import StoreRepository, pull
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys
from tests.odf.vectors import GOLDEN

pytestmark = pytest.mark.slow

NEWEST = GOLDEN / "newest"


def golden(name: str) -> Store:
    return open_store(StoreConfig((NEWEST / name).as_uri()))


def test_a_chain_without_an_arrow_schema_is_of_a_newer_version(store: Store) -> None:
    source = golden("in1-odf-schema")
    log = DatasetLog(store, "newest")
    for attempt in (
        lambda: import_chain(store, log, source, table=Table()),
        lambda: pull(store, log, StoreRepository(source), table=Table()),
        lambda: verify(source, Layout()),
    ):
        with pytest.raises(UnsupportedVersion, match="written by a newer version of Open Data Fabric") as caught:
            attempt()
        text = str(caught.value)
        assert "SetDataSchema without an Arrow schema" in text
        assert "f1620f4f0b7140146fc60e85a6d25664de6903179afca32759da3cb7b7c450cf5251f" in text, "it names the block"
        assert "orrupt" not in text
    with pytest.raises(DatasetNotFound):
        log.snapshot()


def test_damage_before_a_newer_block_is_still_named(store: Store) -> None:
    source = golden("in1-odf-schema")
    for info in source.list(""):
        store.put(info.key, source.get(info.key))
    store.put("blocks/f1620730c8c4f0262610e0fd0e3cce4f8361e3fdf8f70b8ef2f6ef8a8aa6b664d93d6", b"damaged")
    (problem,) = verify(store, Layout()).problems
    assert problem.code == "BlockHash"


def test_a_source_with_an_odf_schema_is_kept_and_not_read(store: Store) -> None:
    source = golden("odfschema")
    import_chain(store, DatasetLog(store, "kept"), source, table=Table())
    root = Root(store, DatasetLog(store, "kept"))
    assert verify(store, Layout(keys.chain("kept"))).sound
    event = root.state.push_sources["typed"]
    assert isinstance(event.read, Unknown)
    for wanted in (None, InputFormat.ND_JSON, InputFormat.CSV):
        content = FileContent.of_bytes(b'{"city": "Oslo", "population": 1}\n', "cities.ndjson")
        with pytest.raises(UnsupportedVersion, match=r"read\.schema"):
            push_files(root, [content], "typed", wanted=wanted)
    rows = b"Oslo,1,2026-01-01T00:00:00Z\n"
    assert push_files(root, [FileContent.of_bytes(rows, "cities.csv")], "default").records == 1
    names = {block.hash for block in root.blocks()}
    assert {Multihash.parse(path.name) for path in (NEWEST / "odfschema/blocks").iterdir()} <= names, "bytes are kept"


def test_a_block_of_a_later_manifest_version_is_named() -> None:
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
TYPED = "schema: {fields: [{name: city, type: String}]}"


@pytest.mark.parametrize(
    ("read", "merge", "more", "place"),
    [
        ("{kind: Csv, ddlSchema: [city STRING]}", MERGE, "", "read.ddlSchema"),
        (f"{{kind: Csv, {TYPED}}}", MERGE, "", "read.schema"),
        (READ, "Append", "", "metadata[0].merge"),
        (READ, "{kind: UpsertStream, primaryKey: [city]}", "", "merge.kind"),
        (READ, "changelogStream", "", "merge"),
        (READ, MERGE, f"- {{kind: SetDataSchema, {TYPED}}}", "metadata[1].schema"),
        (READ, MERGE, f"- {{kind: SetDataSchema, rawArrowSchema: AA==, {TYPED}}}", "metadata[1].rawArrowSchema"),
        (
            READ,
            MERGE,
            f"- {{kind: SetPollingSource, fetch: {{kind: Mqtt, host: x}}, read: {READ}, merge: {MERGE}}}",
            "metadata[1].fetch.kind",
        ),
    ],
)
def test_a_snapshot_of_the_newest_form_is_named(read: str, merge: str, more: str, place: str) -> None:
    text = SNAPSHOT.replace("{read}", read).replace("{merge}", merge).replace("{more}", more)
    with pytest.raises(UnsupportedVersion, match="written by a newer version of Open Data Fabric") as caught:
        read_snapshot(text)
    assert place in str(caught.value)


def test_a_resource_manifest_of_the_newest_form_is_named() -> None:
    text = (
        "$schema: https://opendatafabric.org/schemas/dataset/v1alpha1/Dataset\nheaders: {name: x}\nspec: {kind: Root}\n"
    )
    with pytest.raises(UnsupportedVersion, match="headers and spec"):
        read_snapshot(text)


def test_what_is_merely_wrong_is_not_called_newer() -> None:
    for read, merge in (("{kind: Cvs}", MERGE), ("{kind: Csv, schemas: []}", MERGE), (READ, "Apend"), (READ, "[]")):
        with pytest.raises(FormatInvalid):
            read_snapshot(SNAPSHOT.replace("{read}", read).replace("{merge}", merge).replace("{more}", ""))
