"""put, get, describe, log, adopt, query: on a store that the Python door filled, without any manifest of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import kubothek as door
from tests.cli.conftest import Kubothek
from tests.local.manifests import STORE, commit, dataset, write

pytestmark = pytest.mark.slow  # each test starts processes


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a dataset of two commits, and an empty one."""
    root = tmp_path_factory.mktemp("filled")
    lake = door.open(root.as_uri())
    letters = lake.create_dataset("letters", partition_on=["b"], schema={"a": "int64", "b": "string"})
    letters.append(pa.table({"a": [1, 2, None], "b": ["x", "y", "x"]}), id="first")
    letters.append(pa.table({"a": [4], "b": ["z"]}), id="second")
    lake.create_dataset("empty", schema={"n": "float64"})
    return root


@pytest.fixture
def store(filled: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The filled store as the one of the environment."""
    monkeypatch.setenv("KUBOTHEK_STORE", filled.as_uri())
    return filled


def table(text: str) -> list[list[str]]:
    """Columns apart, times left out."""
    return [[cell.strip() for cell in line.split("   ") if cell.strip()] for line in text.splitlines()]


# --- get, describe, log ---


def test_get_lists_datasets_with_sizes(kubothek: Kubothek, store: Path) -> None:
    header, empty, letters = table(kubothek("get", "-o", "wide").out)
    assert header == ["NAME", "VERSION", "ROWS", "FILES", "SIZE", "AGE", "LAST COMMIT", "OWNER"]
    assert empty[:5] == ["empty", "1", "0", "0", "0 B"]
    assert letters[:4] == ["letters", "3", "4", "3"]
    assert letters[-1] == "-"


def test_get_of_one_dataset_lists_only_this_and_missing_one_fails(kubothek: Kubothek, store: Path) -> None:
    assert len(kubothek("get", "letters").out.splitlines()) == 2
    assert kubothek("get", "datasets", "letters").out == kubothek("get", "letters").out
    answer = kubothek("get", "nope")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.splitlines() == [
        f"error: DatasetNotFound: there is no dataset 'nope' in {store.as_uri()}",
        "hint: `kubothek get` lists the datasets of the store",
    ]


def test_get_on_empty_store_reports_no_datasets(kubothek: Kubothek, project: Path) -> None:
    (project / "new").mkdir()
    assert kubothek("get", "--store", "file:new").out == f"no datasets in {(project / 'new').as_uri()}\n"


def test_get_commits_shows_results_of_local_runs(kubothek: Kubothek, project: Path) -> None:
    write(project, STORE, dataset("letters"), commit("first", "letters"))
    assert kubothek("get", "-f", "manifests", "commits").out == (
        f"no Commit of `kubothek run` on this machine for {(project / 'store').as_uri()}\n"
    )
    kubothek("run", "-f", "manifests")
    _, line = table(kubothek("get", "-f", "manifests", "kcm").out)
    assert line[:3] == ["first", "Failed", "SourceNotFound"]


def test_describe_shows_schema_layout_and_size(kubothek: Kubothek, store: Path) -> None:
    lines = kubothek("describe", "letters").out.splitlines()
    assert lines[0] == "Dataset:      letters"
    assert lines[1].startswith("Version:      3, committed ")
    assert lines[2].startswith("Size:         4 rows, 3 files, ")
    assert lines[3:] == [
        "Partitions:   3, by b",
        "Layout:       the default",
        "Indices:      none",
        "Owner:        none",
        "Columns:",
        "  b                       string              partition key",
        "  a                       int64",
    ]


def test_log_shows_every_commit_newest_first(kubothek: Kubothek, store: Path) -> None:
    header, *commits = table(kubothek("log", "letters").out)
    assert header == ["VERSION", "TIME", "OPERATION", "ID", "ROWS", "FILES", "TOTAL ROWS", "BY"]
    assert [[*line[:1], *line[2:]] for line in commits] == [
        ["3", "Append", "second", "+1", "+1", "4", "python"],
        ["2", "Append", "first", "+3", "+2", "3", "python"],
        ["1", "Create", "python:create", "+0", "+0", "0", "python"],
    ]


def test_log_with_limit_reports_omitted_commits(kubothek: Kubothek, store: Path) -> None:
    assert kubothek("log", "letters", "-n", "1").out.splitlines()[2] == (
        "… and older commits, from version 2 down: --limit shows more"
    )
    assert len(kubothek("log", "letters", "-n", "0").out.splitlines()) == 4


@pytest.mark.parametrize("command", ["describe", "log"])
def test_command_on_missing_dataset_fails(kubothek: Kubothek, store: Path, command: str) -> None:
    answer = kubothek(command, "nope")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("error: DatasetNotFound: there is no dataset 'nope'")


# --- which store ---


def test_store_defaults_to_manifests_in_current_directory(kubothek: Kubothek, filled: Path, project: Path) -> None:
    (project / "store.yaml").write_text(STORE.replace("file:store", filled.as_uri()))
    (project / "other.yaml").write_text("services: {web: {image: nginx}}\n")
    assert "letters" in kubothek("get").out


def test_several_stores_need_explicit_name(kubothek: Kubothek, filled: Path, project: Path) -> None:
    store = STORE.partition("---")[0].replace("file:store", filled.as_uri())
    (project / "a.yaml").write_text(store)
    (project / "b.yaml").write_text(store.replace("{name: lake}", "{name: pond}"))
    answer = kubothek("get")
    assert (answer.code, "choose one with --store-name (lake, pond)" in answer.err) == (2, True)
    assert "letters" in kubothek("get", "--store-name", "pond").out
    assert (
        "no ObjectStore 'sea' in the current directory; there is: lake, pond"
        in kubothek("get", "--store-name", "sea").err
    )


def test_command_without_store_is_wrong_usage(kubothek: Kubothek, project: Path) -> None:
    answer = kubothek("get")
    assert answer.code == 2
    assert "name the store with --store URL, -f PATH or KUBOTHEK_STORE" in answer.err


def test_missing_store_is_reported_with_hint(kubothek: Kubothek, project: Path) -> None:
    answer = kubothek("get", "--store", "file:absent")
    assert answer.code == 1
    assert answer.err.startswith("error: BucketNotFound: ")


# --- put ---


def test_put_uploads_files_and_skips_existing(kubothek: Kubothek, project: Path) -> None:
    write(project, STORE)
    (project / "a.csv").write_text("a\n1\n")
    (project / "b.csv").write_text("b\n2\n")
    put = ("put", "-f", "manifests", "a.csv", "b.csv", "--to", "sources/")
    assert kubothek(*put).out == "uploaded   sources/a.csv  (4 B)\nuploaded   sources/b.csv  (4 B)\n"
    (project / "b.csv").write_text("b\n3\n")
    assert kubothek(*put).out == "unchanged  sources/a.csv\nuploaded   sources/b.csv  (4 B)\n"
    assert (project / "store" / "sources" / "b.csv").read_text() == "b\n3\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("a.csv", "--to", "sources"), "'sources' is not a directory of the store: end it with '/'"),
        (("a.csv", "--to", "/"), "'/' is not a directory of the store"),
        (("a.csv", "--to", ".kubothek/x/"), "is a key that Kubothek manages"),
        (("a.csv", "deep/a.csv", "--to", "s/"), "a.csv and deep/a.csv would both become 's/a.csv'"),
        (("absent.csv", "--to", "s/"), "File 'absent.csv' does not exist"),
        (("a.csv",), "Missing option '--to'"),
    ],
)
def test_put_refuses_invalid_arguments(
    kubothek: Kubothek, project: Path, arguments: tuple[str, ...], told: str
) -> None:
    write(project, STORE)
    (project / "deep").mkdir()
    for file in ("a.csv", "deep/a.csv"):
        (project / file).write_text("a\n")
    answer = kubothek("put", "-f", "manifests", *arguments)
    assert (answer.code, told in answer.err) == (2, True)
    assert not (project / "store").exists()


# --- adopt ---


def test_adopt_shows_owner_and_takes_over_with_take_flag_only(kubothek: Kubothek, project: Path) -> None:
    write(project, STORE)
    (project / "store").mkdir()
    adopt = ("adopt", "-f", "manifests", "letters")
    assert "DatasetNotFound: there is no dataset 'letters'" in kubothek(*adopt).err
    assert kubothek(*adopt, "--take", "--owner", "prod/analytics/letters").code == 0
    assert kubothek(*adopt).out == "letters: owner prod/analytics/letters\n"
    assert kubothek(*adopt, "--take").out == ("letters: owner local/default/letters; before: prod/analytics/letters\n")
    assert kubothek(*adopt, "--take", "--owner", "me").code == 2


# --- query ---


def test_query_prints_table_with_right_aligned_numbers(kubothek: Kubothek, store: Path) -> None:
    lines = kubothek("query", "SELECT b, count(*) AS n, sum(a) AS total FROM letters GROUP BY b ORDER BY b").out
    *rows, told = lines.splitlines()
    assert rows == ["b   n   total", "x   2       1", "y   1       2", "z   1       4"]
    assert told.startswith("3 rows in ")
    assert told.endswith(", from letters version 3 (3 files)")


def test_query_as_csv_and_json_is_complete_and_typed(kubothek: Kubothek, store: Path) -> None:
    statement = "SELECT a, b FROM letters ORDER BY a NULLS LAST"
    csv, as_json = (_output(store, statement, form) for form in ("csv", "json"))
    assert csv == b'"a","b"\n1,"x"\n2,"y"\n4,"z"\n,"x"\n'
    assert json.loads(as_json) == [
        {"a": 1, "b": "x"},
        {"a": 2, "b": "y"},
        {"a": 4, "b": "z"},
        {"a": None, "b": "x"},
    ]


def _output(store: Path, statement: str, form: str) -> bytes:
    """Bytes go past Python's text streams, so this needs a process of its own."""
    program = "import sys; from kubothek.cli.main import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", program, "query", "--store", store.as_uri(), statement, "-o", form]
    return subprocess.run(command, check=True, capture_output=True).stdout


def test_query_as_json_encodes_every_type(store: Path) -> None:
    statement = (
        "SELECT 'NaN'::DOUBLE AS nan, 1.50::DECIMAL(5,2) AS amount, '\\x00ff'::BLOB AS raw, "
        "DATE '2013-01-01' AS day, [1, 2] AS list"
    )
    assert json.loads(_output(store, statement, "json")) == [
        {"nan": None, "amount": "1.50", "raw": "006666", "day": "2013-01-01", "list": [1, 2]}
    ]


def test_query_without_rows_prints_empty_list_or_table(kubothek: Kubothek, store: Path) -> None:
    assert json.loads(_output(store, "SELECT n FROM empty", "json")) == []
    assert kubothek("query", "SELECT n FROM empty").out.splitlines()[0] == "n"


def test_query_with_long_result_is_truncated_with_note(kubothek: Kubothek, store: Path) -> None:
    *rows, told = kubothek("query", "SELECT * FROM range(2000)").out.splitlines()
    assert len(rows) == 1001
    assert told.startswith("the first 1,000 rows (all of them: -o csv, json or yaml) in ")


@pytest.mark.parametrize(("as_of", "expected"), [("2", 3), ("3", 4), ("2999-01-01", 4), ("2999-01-01T00:00+02:00", 4)])
def test_query_as_of_reads_old_version(kubothek: Kubothek, store: Path, as_of: str, expected: int) -> None:
    answer = kubothek("query", "SELECT count(*) AS n FROM letters", "--as-of", as_of)
    assert answer.out.splitlines()[:2] == ["n", str(expected)]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("SELECT * FROM leters",), 1, "error: QueryInvalid: no dataset 'leters'; there is 'letters'"),
        (("DROP TABLE letters",), 1, "error: QueryInvalid: expected exactly one SELECT, found DROP"),
        (("SELECT * FROM read_csv('/etc/passwd')",), 1, "error: QueryInvalid: "),
        (("SELECT n FROM empty", "--as-of", "9"), 1, "error: VersionNotFound: "),
        (("SELECT 1", "--as-of", "-1"), 2, "'-1' is neither a version number nor a time"),
        (("SELECT [1] AS list", "-o", "csv"), 1, "error: QueryInvalid: column 'list' holds lists or structs"),
    ],
)
def test_query_that_fails_names_reason(
    kubothek: Kubothek, store: Path, arguments: tuple[str, ...], code: int, told: str
) -> None:
    answer = kubothek("query", *arguments)
    assert (answer.code, answer.out) == (code, "")
    assert told in answer.err
