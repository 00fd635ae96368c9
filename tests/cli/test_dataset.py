"""``kubothek append`` … ``restore``: each verb of one dataset, from files, a URL and standard input."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path
from shlex import split
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from plateau.io.eager import read_table

import kubothek as door
from kubothek.catalog import Dataset
from kubothek.table.log import Change, Claim, DatasetLog, Operation
from kubothek.table.log.model.writers import Grant
from tests.cli.conftest import Kubothek
from tests.webserver import Web, web

__all__ = ["web"]

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def flights(kubothek: Kubothek, project: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """A dataset by month, made on the command line, of a CSV file."""
    monkeypatch.setenv("KUBOTHEK_STORE", "file:store")
    (project / "a.csv").write_text("month,carrier,delay\n1,AA,5\n1,UA,\n2,AA,7\n")
    (project / "b.jsonl").write_text('{"month": 3, "carrier": "DL", "delay": 1}\n')
    created = kubothek("create", "flights", "--partition-on", "month")
    assert created.out == "flights: created, partitioned on month\n", created.err
    added = kubothek("append", "flights", "a.csv", "--id", "first")
    assert added.out == "flights: version 2: 3 rows added, 3 rows in all\n", added.err
    return door.open("store").dataset("flights")


def type_in(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))


def carriers(dataset: Dataset) -> list[tuple[int, str]]:
    return sorted((row["month"], row["carrier"]) for row in dataset.to_arrow(["month", "carrier"]).to_pylist())


def test_history_shows_the_writer_of_each_verb(
    kubothek: Kubothek, flights: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of --writer, else of KUBOTHEK_WRITER; without both, the command line is the author."""
    monkeypatch.setenv("KUBOTHEK_WRITER", "night")
    assert kubothek("append", "flights", "b.jsonl").code == 0
    lines = (
        'update flights "month = 1" --set delay=1',
        'delete flights "month = 3" --yes',
        "columns add flights gate=string",
        "index flights --add carrier",
        "skipping build flights --index MinMax:delay",
        "append flights a.csv --evolve",
        "compact flights --min-files 2",
        "copy flights other",
    )
    for line in lines:
        done = kubothek(*split(line), "--writer", "ada")
        assert done.code == 0, done.err
    commits = [(record.by, str(record.operation)) for record in flights.history()][::-1]
    assert commits[:3] == [("cli", "Create"), ("cli", "Append"), ("night", "Append")]
    assert {by for by, _ in commits[3:]} == {"ada"}
    assert [each for _, each in commits[3:]] == ["Update", "Delete", "Layout", "Index", "Index", "Append", "Compact"]
    assert [record.by for record in door.open("store").dataset("other").history()] == ["ada"]
    refused = kubothek("append", "flights", "b.jsonl", "--writer", " ")
    assert (refused.code, "writer is empty" in refused.err) == (1, True)


def test_verbs_write_to_a_dataset_of_a_manifest_as_an_admitted_writer(kubothek: Kubothek, flights: Dataset) -> None:
    store = door.open("store").store
    claim = Claim("cluster/ns/flights", "1", adopts=True)
    log = DatasetLog(store, "flights", claim=claim)
    log.settle()
    grant = Grant.of(claim.owner, claim.incarnation, {"ada": ["Append", "Index"]}.items())
    log.begin_new("writers").commit(Change(operation=Operation.LAYOUT, grant=grant, by=claim.owner))
    for line in ("append flights b.jsonl", "index flights --add carrier"):
        refused = kubothek(*split(line), "--writer", "eve")
        assert (refused.code, "does not permit 'eve'" in refused.err) == (1, True), refused.err
        done = kubothek(*split(line), "--writer", "ada")
        assert done.code == 0, done.err
        assert next(iter(flights.history())).by == "ada"
    refused = kubothek("overwrite", "flights", "b.jsonl", "--writer", "ada")
    assert (refused.code, "and not Overwrite" in refused.err) == (1, True), refused.err


def test_append_reads_each_format_and_source(
    kubothek: Kubothek, flights: Dataset, project: Path, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet = pa.table({"month": [4, 4], "carrier": ["B6", "WN"], "delay": [1, None]})
    pq.write_table(parquet, project / "c.parquet")
    (project / "d.csv.gz").write_bytes(gzip.compress(b"month,carrier,delay\n5,AS,1\n"))
    (project / "e.csv").write_text("month,carrier,delay\n6,AS,1\n")
    assert kubothek("append", "flights", "c.parquet").out.endswith(": 2 rows added, 5 rows in all\n")
    assert kubothek("append", "flights", "d.csv.gz", "e.csv").out.endswith(": 2 rows added, 7 rows in all\n")
    for form, data in (("csv", b"month,carrier,delay\n7,F9,1\n"), ("jsonl", (project / "b.jsonl").read_bytes())):
        type_in(monkeypatch, data)
        assert kubothek("append", "flights", "-", "--format", form).code == 0
    url = web.put("/f.jsonl?token=1", b'{"month": 8, "carrier": "HA", "delay": 3}\n')
    done = kubothek("append", "flights", url)
    assert done.code == 0, done.err
    assert [month for month, _ in carriers(flights)] == [1, 1, 2, 3, 4, 4, 5, 6, 7, 8]
    assert sorted(read_table("flights", store=f"hfs://{project}/store")["month"]) == [1, 1, 2, 3, 4, 4, 5, 6, 7, 8]


def test_merge_updates_inserts_and_deletes_by_key(kubothek: Kubothek, flights: Dataset, project: Path) -> None:
    (project / "new.csv").write_text("month,carrier,delay\n1,UA,9\n3,DL,1\n")
    merged = kubothek("merge", "flights", "new.csv", "--key", "month", "--key", "carrier", "--id", "merge")
    assert merged.code == 0, merged.err
    assert carriers(flights) == [(1, "AA"), (1, "UA"), (2, "AA"), (3, "DL")]
    assert flights.to_pandas(["delay"])["delay"].sum() == 22
    again = kubothek("merge", "flights", "new.csv", "--key", "month", "--key", "carrier", "--id", "merge")
    assert again.out == "flights: version 3 made this change before\n"
    only = ("--matched", "Delete", "--not-matched", "Nothing")
    assert kubothek("merge", "flights", "new.csv", "-k", "month", "-k", "carrier", *only).code == 0
    assert carriers(flights) == [(1, "AA"), (2, "AA")]
    (project / "twice.csv").write_text("month,carrier,delay\n1,UA,9\n1,UA,8\n")
    refused = kubothek("merge", "flights", "twice.csv", "-k", "month", "-k", "carrier")
    assert (refused.code, flights.rows) == (1, 2)
    assert "DuplicateKeys" in refused.err


def test_append_with_id_is_done_once(kubothek: Kubothek, flights: Dataset) -> None:
    again = kubothek("append", "flights", "a.csv", "--id", "first")
    assert again.out == "flights: version 2 made this change before\n"
    assert flights.rows == 3


def test_append_of_new_columns_needs_evolve(kubothek: Kubothek, flights: Dataset, project: Path) -> None:
    (project / "n.csv").write_text("month,carrier,gate\n9,AA,B7\n")
    refused = kubothek("append", "flights", "n.csv")
    assert refused.code == 1
    assert "not in the table: 'gate'" in refused.err
    assert "on the command line: --evolve allows new and missing columns" in refused.err
    assert flights.rows == 3
    assert kubothek("append", "flights", "n.csv", "--evolve").code == 0
    assert flights.to_arrow(["gate", "delay"], where="month = 9").to_pylist() == [{"gate": "B7", "delay": None}]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("append", "flights", "nope.csv"), 2, "there is no file nope.csv"),
        (("append", "flights", "-"), 2, "standard input has no name that says its format: give --format"),
        (("append", "flights", "-", "a.csv"), 2, "- (standard input) goes alone"),
        (("append", "flights", "a.csv", "b.jsonl"), 2, "the files have several formats (csv, jsonl)"),
        (("append", "flights", "notes.txt"), 2, "'notes.txt' does not say its format"),
        (("append", "nope", "a.csv"), 1, "there is no dataset 'nope'"),
        (("append", "flights", "bad.csv"), 1, "bad.csv"),
        (("append", "flights", "a.csv", "--format", "parquet"), 1, "a.csv"),
        (("replace", "flights", "a.csv", "--where", "month = 1"), 1, "FilterNotMet"),
        (("overwrite", "flights", "n.csv"), 1, "--allow-schema-change allows other columns"),
        (("update", "flights", "month = 1", "--set", "carrier=BB"), 1, "unknown column BB"),
        (("update", "flights", "month = 1", "--set", "carrier"), 2, "'carrier' is not NAME=VALUE"),
        (("update", "flights", "month = 1", "--set", "a=1", "--set", "a=2"), 2, "--set names 'a' twice"),
        (("delete", "flights", "carrier = 'AA'", "--yes"), 1, "kubothek delete --row-level"),
        (("delete", "flights", "gone = 1", "--yes"), 1, "gone"),
        (("columns", "add", "flights", "gate"), 2, "'gate' is not NAME=VALUE"),
        (("columns", "add", "flights", "gate=text"), 1, "unknown type 'text'"),
        (("columns", "drop", "flights", "month", "--yes"), 1, "it partitions the table"),
        (("columns", "rename", "flights", "delay=carrier"), 1, "two columns 'carrier'"),
        (("index", "flights", "--drop", "delay"), 2, "flights has no index on 'delay'; it has none"),
        (("index", "flights", "--add", "delay=Foo"), 1, "'Foo' is none of Kartothek, Native"),
        (("create", "flights"), 1, "DatasetExists"),
        (("copy", "flights", "flights"), 1, "DatasetExists"),
        (("rename", "flights", "flights", "--yes"), 1, "has this name already"),
        (("drop", "nope", "--yes"), 1, "there is no dataset 'nope'"),
        (("restore", "nope"), 1, "there is no dataset 'nope'"),
    ],
)
def test_verb_with_invalid_arguments_says_why_and_changes_nothing(
    kubothek: Kubothek, flights: Dataset, project: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    (project / "notes.txt").write_text("")
    (project / "bad.csv").write_text("month,carrier,delay\n1,AA,late\n")
    (project / "n.csv").write_text("month,carrier,gate\n9,AA,B7\n")
    answer = kubothek(*arguments)
    assert (answer.code, message in answer.err) == (code, True), answer.err
    assert (flights.version, carriers(flights)) == (2, [(1, "AA"), (1, "UA"), (2, "AA")])


def test_replace_and_overwrite(kubothek: Kubothek, flights: Dataset, project: Path) -> None:
    (project / "r.csv").write_text("month,carrier,delay\n1,B6,5\n")
    assert kubothek("replace", "flights", "r.csv").out == "flights: version 3: 2 rows in all\n"
    assert carriers(flights) == [(1, "B6"), (2, "AA")]
    assert kubothek("replace", "flights", "b.jsonl", "--where", "TRUE", "--retry").code == 0
    assert carriers(flights) == [(3, "DL")]
    assert kubothek("overwrite", "flights", "a.csv", "--id", "o").out == "flights: version 5: 3 rows in all\n"
    assert kubothek("overwrite", "flights", "a.csv", "--id", "o").out == "flights: version 5 made this change before\n"
    (project / "n.csv").write_text("month,carrier,gate\n9,AA,B7\n")
    assert kubothek("overwrite", "flights", "n.csv", "--allow-schema-change").code == 0
    assert flights.schema.names == ["month", "carrier", "gate"]
    assert read_table("flights", store=f"hfs://{project}/store")["gate"].tolist() == ["B7"]


def test_update_sets_literals(kubothek: Kubothek, flights: Dataset) -> None:
    line = ("update", "flights", "carrier = 'UA'", "--set", "carrier='UB'", "--set", "delay=NULL", "--set", "month=9")
    assert kubothek(*line, "--dry-run").out == "flights: 1 file of 2 may match, 0 of them with all rows\n"
    assert flights.version == 2
    assert kubothek(*line).out == "flights: version 3: 3 rows in all\n"
    assert carriers(flights) == [(1, "AA"), (2, "AA"), (9, "UB")]


def test_delete_asks_and_purges(kubothek: Kubothek, flights: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = "flights: 1 file of 2 may match, 1 of them with all rows\n"
    assert kubothek("delete", "flights", "month = 2", "--dry-run").out == planned
    assert kubothek("delete", "flights", "month = 2").code != 0, "nobody is there to say yes"
    assert flights.rows == 3
    assert kubothek("delete", "flights", "month = 2", "-y").out == planned + "flights: version 3: 2 rows in all\n"
    done = kubothek("delete", "flights", "carrier = 'AA'", "--row-level", "--purge", "--yes")
    assert done.code == 0, done.err
    assert carriers(flights) == [(1, "UA")]
    assert "expires what is older than version 4" in kubothek("log", "flights", "-n", "1").out


def test_columns_are_added_renamed_and_dropped(kubothek: Kubothek, flights: Dataset, project: Path) -> None:
    done = kubothek("columns", "add", "flights", "gate=string", "seen=timestamp[us, tz=UTC]", "--id", "c")
    assert done.out == "flights: version 3: gate, seen added; columns: month, carrier, delay, gate, seen\n"
    assert kubothek("columns", "add", "flights", "gate=string", "--id", "c").code == 1, "another change of this id"
    renamed = kubothek("columns", "rename", "flights", "delay=late")
    assert renamed.out == "flights: version 4: delay is late now; columns: month, carrier, gate, late, seen\n"
    assert kubothek("columns", "drop", "flights", "seen", "gate").code != 0, "nobody is there to say yes"
    dropped = kubothek("columns", "drop", "flights", "seen", "gate", "--yes")
    assert dropped.out == "flights: version 5: seen, gate dropped; columns: month, carrier, late\n"
    assert read_table("flights", store=f"hfs://{project}/store")["late"].dropna().tolist() == [5, 7]
    assert "delay" in kubothek("query", "SELECT * FROM flights AS OF VERSION 2").out


def test_index_is_added_and_dropped(kubothek: Kubothek, flights: Dataset) -> None:
    added = kubothek("index", "flights", "--add", "delay", "--add", "carrier=Kartothek", "-o", "json")
    assert {each["column"]: each["kind"] for each in json.loads(added.out)} == {
        "delay": "Native",
        "carrier": "Kartothek",
    }
    assert kubothek("index", "flights", "--drop", "delay").out.splitlines()[0] == "flights: version 4: dropped delay"
    assert list(flights.indices) == ["carrier"]


def test_copy_rename_drop_and_restore(kubothek: Kubothek, flights: Dataset, project: Path) -> None:
    copy = ("copy", "flights", "backup", "--as-of", "2", "--id", "b")
    assert "version 2 (2 files) would be copied to backup in file:///" in kubothek(*copy, "--dry-run").out
    assert kubothek(*copy).out == "backup: version 1: 3 rows in all\n"
    assert kubothek(*copy).out == "backup: version 1 made this change before\n"
    elsewhere = kubothek("copy", "flights", "backup", "--tgt-store", "file:other")
    assert elsewhere.code == 0, elsewhere.err
    assert len(read_table("backup", store=f"hfs://{project}/other")) == 3
    assert kubothek("rename", "backup", "kept").code != 0, "nobody is there to say yes"
    assert kubothek("rename", "backup", "kept", "-y").out == "kept: version 1: 3 rows in all; backup is dropped\n"
    assert kubothek("drop", "kept", "--dry-run").out == "kept: version 1 (3 rows) would be dropped\n"
    assert kubothek("drop", "kept").code != 0, "nobody is there to say yes"
    dropped = kubothek("drop", "kept", "--yes")
    assert dropped.out == "kept: dropped at version 2; `kubothek restore kept` undoes it for 24h\n"
    assert "was deleted at" in kubothek("append", "kept", "a.csv").err
    assert kubothek("restore", "kept").out == "kept: version 3: 3 rows\n"
    assert len(read_table("kept", store=f"hfs://{project}/store")) == 3


def test_verbs_refuse_dataset_of_manifest_before_any_write(kubothek: Kubothek, flights: Dataset, project: Path) -> None:
    owner = project / "store" / ".kubothek" / "flights" / "owner.json"
    owner.write_text('{"owner": "cluster/ns/flights"}')
    before = [info.key for info in door.open("store").store.list("")]
    for line in (
        ("append", "flights", "a.csv"),
        ("replace", "flights", "a.csv"),
        ("overwrite", "flights", "a.csv"),
        ("update", "flights", "month = 1", "--set", "delay=0"),
        ("delete", "flights", "month = 1", "--yes"),
        ("columns", "add", "flights", "gate=string"),
        ("columns", "rename", "flights", "delay=late"),
        ("columns", "drop", "flights", "delay", "--yes"),
        ("index", "flights", "--add", "delay"),
        ("rename", "flights", "other", "--yes"),
        ("drop", "flights", "--yes"),
        ("restore", "flights"),
    ):
        refused = kubothek(*line)
        assert (refused.code, "cluster/ns/flights" in refused.err) == (1, True), (line, refused)
    assert [info.key for info in door.open("store").store.list("")] == before
