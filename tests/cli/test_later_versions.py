"""What no version of Open Data Fabric has yet: every command that shows or copies a chain names it, or keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubothek.odf import Layout
from kubothek.storage import StoreConfig, open_store
from kubothek.table.log.model import keys
from tests.cli.conftest import Kubothek
from tests.odf.later import EVENTS, chain_of_later_version

pytestmark = pytest.mark.slow

EVENT = "MetadataBlock.event: member 14"
FIELDS = "MetadataBlock.event: field 3, MetadataBlock: field 6"
MERGE = "MetadataBlock.event.merge: member 9"


@pytest.mark.requirement("EV-03")
def test_parts_of_later_versions_are_named_by_every_command(kubothek: Kubothek, project: Path) -> None:
    (project / "there").mkdir()
    blocks = chain_of_later_version(open_store(StoreConfig((project / "there").as_uri())))

    def run(verb: str, *arguments: str) -> str:
        done = kubothek(verb, "--store", "file:store", *arguments)
        assert done.code == 0, done.err
        return done.out + done.err

    run("import", "there", "--name", "planes")
    (project / "a.ndjson").write_text('{"id": 1, "model": "A"}\n')
    for source in ("default", "later"):
        refused = kubothek("ingest", "--store", "file:store", "planes", "a.ndjson", "--source-name", source)
        assert "UnsupportedVersion: block 2 of the chain has an event written by a newer version" in refused.err

    for output in ("table", "json", "csv"):
        shown = run("log", "planes", "--odf", "-o", output)
        assert all(part in shown for part in (EVENT, FIELDS, MERGE, *EVENTS)), shown
    assert run("log", "planes", "--odf", "-o", "yaml").count("# of a later version") == 4

    for asked in (["verify", "planes"], ["verify", "planes", "-r"], ["verify", "planes", "-o", "json"]):
        assert "not verified: block 2" in (shown := run(*asked)), shown
        assert "[UnknownEvent, EV-01] (and 2 more)" in shown, shown
    notes = run("verify", "planes")
    assert FIELDS in notes
    assert "[UnknownParts, EV-01] (and 1 more)" in notes

    resources = kubothek("export", "--store", "file:store", "planes", "--resources")
    assert all(part in resources.err for part in (MERGE, "MetadataBlock.event: field 3")), resources.err

    run("export", "planes", "out")
    run("pull", (project / "out").as_uri(), "--as", "copy")
    store = open_store(StoreConfig((project / "store").as_uri()))
    (project / "back").mkdir()
    run("push", "copy", (project / "back").as_uri())
    for block in blocks:
        assert store.get(Layout(keys.chain("copy")).block(block.hash)) == block.data
        assert (project / "back" / "blocks" / str(block.hash)).read_bytes() == block.data
    assert "0 records" in run("lineage", "copy")
    assert EVENT in kubothek("chain", "compact", "--store", "file:store", "planes", "-y").err
