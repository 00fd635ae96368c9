"""Formats of output, tables in the width of a terminal, and completion."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.shell_completion import ShellComplete

import kubothek as door
from kubothek.cli import query
from kubothek.cli.columns import listed
from kubothek.cli.ledger.lineage_svg import _box
from kubothek.cli.main import COMMANDS, cli
from kubothek.cli.output import print_lines
from kubothek.odf.lineage.datasets import Node
from kubothek.odf.lineage.rendering import short
from kubothek.table.frames import text_of
from tests.cli.conftest import Kubothek

FORMATS = ("table", "wide", "json", "yaml", "csv")
WIDE = [f"column_{number}" for number in range(19)]


class Terminal(io.StringIO):
    """Text that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard output as a terminal of 80 by 24. No fixture, as pytest sets standard output before each test."""
    found = Terminal()
    monkeypatch.setattr("sys.stdout", found)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setenv("PAGER", "")
    return found


@pytest.fixture
def letters(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a dataset of three versions: empty, appended to, replaced."""
    url = (project / "store").as_uri()
    (project / "store").mkdir()
    monkeypatch.setenv("KUBOTHEK_STORE", url)
    table = door.open(url).create_dataset("letters", partition_on=["p"])
    table.append(pa.table({"p": [1, 1, 2], "x": [0.1, 14.960139999999999, 1e300]}))
    table.replace(pa.table({"p": [1], "x": [0.5]}))
    return project


# --- results of queries ----------------------------------------------------------------------------------------------


def test_wide_rows_on_terminal_are_shown_one_column_per_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    table = pa.table({name: ["some text"] * 2 for name in WIDE})
    assert query.print_table(table.to_reader()) == "2 rows"
    lines = terminal.getvalue().splitlines()
    assert len(lines) == 2 * (1 + len(WIDE))
    assert lines[1] == "column_0   some text"
    assert max(map(len, lines)) <= 80


def test_many_wide_rows_on_terminal_omit_middle_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    table = pa.table({name: ["some text"] * 12 for name in WIDE})
    query.print_table(table.to_reader())
    lines = terminal.getvalue().splitlines()
    assert lines[0].split() == [*WIDE[:4], "…", *WIDE[-3:]]
    assert lines[-1] == "… 12 more columns: -o wide shows all, as does SELECT with their names"
    assert max(map(len, lines)) <= 80


def test_narrow_rows_on_terminal_are_table_without_control_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    query.print_table(pa.table({"a": [1, 20], "b": ["x", "multi\nline\x1b[31m"]}).to_reader())
    assert terminal.getvalue() == " a  b\n 1  x\n20  multi\\nline\\x1b[31m\n"


def test_floats_are_rounded_in_tables_and_exact_in_csv(kubothek: Kubothek, letters: Path) -> None:
    sql = "SELECT x FROM letters AS OF VERSION 2 ORDER BY x"
    assert [line.strip() for line in kubothek("query", sql).out.splitlines()[:4]] == ["x", "0.1", "14.96014", "1e+300"]
    assert "14.960139999999999" in kubothek("query", sql, "-o", "csv").out
    assert json.loads(kubothek("query", sql, "-o", "json").out)[1] == {"x": 14.960139999999999}
    assert yaml.safe_load(kubothek("query", sql, "-o", "yaml").out)[1] == {"x": 14.960139999999999}
    single = pa.table({"x": pa.array([0.1, 16777216.0], pa.float32()), "y": [123456789012.25, 0.1 + 0.2]})
    assert [text_of(value, 7) for value in single["x"].to_pylist()] == ["0.1", "16777220.0"]
    assert [text_of(value, 10) for value in single["y"].to_pylist()] == ["123456789012.25", "0.3"]


# --- listings --------------------------------------------------------------------------------------------------------

LONG = "departures-of-all-european-carriers-by-the-scheduled-day-of-2019"


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with a dataset whose names are long: its own, of a column, a partition key and a tag."""
    url = tmp_path_factory.mktemp("crowded").as_uri()
    lake = door.open(url)
    table = lake.create_dataset(LONG, partition_on=["scheduled_departure_day"])
    for row in range(2):
        table.append(pa.table({"scheduled_departure_day": [LONG], "airline_reporting_identifier": [row]}))
    table.tag("audit-of-the-year-2019-by-the-external-auditor-of-the-company", 1)
    return url


@pytest.mark.parametrize(
    ("command", "contains"),
    [
        (["get"], "departures-of-all-"),
        (["log", LONG], "    tags: audit-of-the-year-2019"),
        (["tag", LONG], "audit-of-the-year"),
        (["compact", LONG, "--dry-run"], "scheduled_departure_day=depa…"),
        (["diff", LONG, "2"], "scheduled_departure_day=depa"),
    ],
)
def test_listing_of_long_names_fits_terminal(
    crowded: str, command: list[str], contains: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = a_terminal(monkeypatch)
    cli.main([*command, "--store", crowded], standalone_mode=False)
    lines = terminal.getvalue().splitlines()
    assert any(contains in line for line in lines), lines
    assert [line for line in lines if len(line) > 80 and not line.startswith(f"{LONG}: ")] == []  # sentences wrap


@pytest.mark.parametrize("width", [20, 40, 60])
def test_listing_omits_optional_columns_before_numbers(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", str(width))
    row = ("a" * 40, "1,000,000", "b" * 50, "a remark")
    print_lines(listed(("NAME", "ROWS", "ID", ""), [row], ("ROWS",), shorten=("NAME",), spare=("ID",)))
    _, first, remark, last = terminal.getvalue().splitlines()
    assert "1,000,000" in first
    assert max(len(first), len(remark)) <= max(width, 12 + 2 + 9)
    assert (remark, last) == ("    a remark", "… without ID: -o wide shows all")
    assert "b" * 50 in "".join(listed(("NAME", "ID"), [(row[0], row[2])], wide=True))


# --- the pager -------------------------------------------------------------------------------------------------------


def test_output_to_pipe_uses_no_pager(kubothek: Kubothek, letters: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", "false")
    monkeypatch.setenv("LINES", "1")
    assert len(kubothek("describe", "letters").out.splitlines()) > 5


# --- formats ---------------------------------------------------------------------------------------------------------

READING: dict[str, Sequence[str]] = {
    "get": [],
    "describe": ["letters"],
    "log": ["letters"],
    "diff": ["letters", "1"],
    "health": ["letters"],
    "gc": ["letters"],
    "tag": ["letters"],
    "compact": ["letters", "--dry-run"],
    "files": ["letters"],
    "index": ["letters"],
    "verify": ["letters"],
    "query": ["SELECT * FROM letters"],
    "search": [],
    "heal": ["letters"],
    "adopt": ["letters"],
}


@pytest.mark.parametrize("command", READING)
def test_reading_commands_support_every_format(kubothek: Kubothek, letters: Path, command: str) -> None:
    answers = {form: kubothek(command, *READING[command], "-o", form) for form in FORMATS}
    assert {form: answer.code for form, answer in answers.items()} == dict.fromkeys(FORMATS, 0), answers
    found = json.loads(answers["json"].out)
    again = yaml.safe_load(answers["yaml"].out)
    if command == "gc":  # each run has a plan of its own
        found["plan"] = again["plan"] = None
    assert again == found
    rows = list(csv.DictReader(io.StringIO(answers["csv"].out)))
    assert len(rows) == (1 if isinstance(found, dict) else len(found))


@pytest.mark.parametrize("command", ["log letters", "diff letters 1", "health letters"])
def test_json_flag_of_earlier_releases_is_accepted(kubothek: Kubothek, letters: Path, command: str) -> None:
    assert kubothek(*command.split(), "--json").out == kubothek(*command.split(), "-o", "json").out
    assert "--json" not in kubothek(command.split()[0], "--help").out


def test_get_fits_eighty_columns_and_wide_adds_owner_and_time(kubothek: Kubothek, letters: Path) -> None:
    table = door.open((letters / "store").as_uri()).create_dataset("a-dataset-with-some-32-characters")
    table.append(pa.table({"a": range(12_345)}))
    lines = kubothek("get").out.splitlines()
    assert lines[0].split() == ["NAME", "VERSION", "ROWS", "FILES", "SIZE", "AGE"]
    assert max(map(len, lines)) <= 80
    assert kubothek("get", "-o", "wide").out.splitlines()[0].split()[-3:] == ["LAST", "COMMIT", "OWNER"]


def test_help_lists_every_command_once_under_heading(kubothek: Kubothek) -> None:
    text = kubothek("--help").out
    assert {"Manifests:", "Datasets:", "Maintenance:", "Exchange:", "Shell:"} <= set(text.splitlines())
    listed = [line.split()[0] for line in text.partition("Manifests:")[2].splitlines() if line.startswith("  ")]
    assert sorted(listed) == sorted(COMMANDS)
    assert max(map(len, text.splitlines())) <= 80


# --- files -----------------------------------------------------------------------------------------------------------


def test_files_lists_files_of_requested_version(kubothek: Kubothek, letters: Path) -> None:
    def rows(files: list[Path]) -> int:
        return sum(pq.read_metadata(file).num_rows for file in files)

    present, first = (
        [Path(line) for line in kubothek("files", "letters", *options).out.splitlines()]
        for options in ((), ("--as-of", "2"))
    )
    assert (rows(present), rows(first)) == (2, 3)
    assert rows(list((letters / "store/letters/table").glob("*/*.parquet"))) == 4
    listed = json.loads(kubothek("files", "letters", "-o", "json").out)
    assert sorted(each["partition"] for each in listed) == ["p=1", "p=2"]


# --- completion ------------------------------------------------------------------------------------------------------


def completions(*words: str) -> list[str]:
    *given, incomplete = words
    return [item.value for item in ShellComplete(cli, {}, "kubothek", "_K").get_completions(given, incomplete)]


def test_completion_suggests_commands_options_and_datasets(letters: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert completions("de") == ["describe", "delete"]
    assert completions("describe", "l") == ["letters"]
    assert completions("get", "")[-1] == "letters"
    assert completions("get", "cu") == ["cubes"]
    assert "--as-of" in completions("query", "--a")
    monkeypatch.delenv("KUBOTHEK_STORE")
    assert completions("describe", "--store", (letters / "nowhere").as_uri(), "l") == []
    assert completions("describe", "--store", (letters / "store").as_uri(), "l") == ["letters"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_shell_script(kubothek: Kubothek, shell: str) -> None:
    answer = kubothek("completion", shell)
    assert (answer.code, "_KUBOTHEK_COMPLETE" in answer.out) == (0, True)


def test_completion_covers_commands_with_dataset_argument() -> None:
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        for parameter in command.params:
            if isinstance(parameter, click.Argument) and parameter.name == "dataset":
                assert parameter._custom_shell_complete is not None, name


# --- lineage ---------------------------------------------------------------------------------------------------------


def test_lineage_svg_shows_same_hash_digits_as_tree() -> None:
    head = "f1620" + "0123456789abcdef" * 4
    nothing = dict.fromkeys(Node.__dataclass_fields__)
    node = Node(**nothing | {"name": "a", "id": "i", "uuid": "a", "records": 1, "head": head})  # type: ignore[arg-type]
    assert f">{short(head)}<" in _box(node, (0, 0), asked=False)
