"""``kubothek tag``: gives versions names, shows them, takes them away."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import kubothek as door
from tests.cli.conftest import Kubothek


@pytest.fixture
def store(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a table of versions 1 to 3, of which each holds one letter more."""
    root = tmp_path / "filled"
    root.mkdir()
    letters = door.open(root.as_uri()).create_dataset("letters")
    for letter in "ab":
        letters.append(pa.table({"letter": [letter]}))
    monkeypatch.setenv("KUBOTHEK_STORE", root.as_uri())
    return root


def test_tag_can_be_set_shown_moved_and_removed(kubothek: Kubothek, store: Path) -> None:
    assert kubothek("tag", "letters").out == "letters: no tags\n"
    assert kubothek("tag", "letters", "audit", "2").out == "letters: audit is version 2\n"
    assert kubothek("tag", "letters", "now").out == "letters: now is version 4\n"
    assert kubothek("tag", "letters").out.split() == ["NAME", "VERSION", "audit", "2", "now", "4"]
    assert "Tags:         audit (version 2), now (version 4)" in kubothek("describe", "letters").out
    assert kubothek("tag", "letters", "audit", "3").out == "letters: audit is version 3; it was version 2\n"
    assert kubothek("tag", "letters", "audit", "--delete").out == "letters: audit deleted; it was version 3\n"
    assert kubothek("tag", "letters").out.split() == ["NAME", "VERSION", "now", "4"]
    log = [line for line in kubothek("log", "letters").out.splitlines() if " Tag " in line]
    assert [line.partition("tags: ")[2] for line in log] == [
        "now is 4",
        "audit is 3, now is 4",
        "audit is 2, now is 4",
        "audit is 2",
    ]
    door.open(store.as_uri()).dataset("letters").untag("now")
    assert "tags: none" in kubothek("log", "letters", "--limit", "1").out


def test_log_shows_purged_versions(kubothek: Kubothek, store: Path) -> None:
    door.open(store.as_uri()).dataset("letters").delete("letter = 'a'", row_level=True, purge=True)
    (line,) = [line for line in kubothek("log", "letters").out.splitlines() if " Delete " in line]
    assert line.endswith("expires what is older than version 4")


def test_query_as_of_tag_reads_tagged_version(kubothek: Kubothek, store: Path) -> None:
    kubothek("tag", "letters", "audit", "2")
    asked = (
        ("SELECT * FROM letters AS OF TAG 'audit'",),
        ("SELECT * FROM letters l AT (VERSION => 2)",),
        ("SELECT * FROM letters", "--as-of", "audit"),
    )
    for query in asked:
        assert kubothek("query", *query, "--output", "csv").out.split() == ['"letter"', '"a"']
    difference = json.loads(kubothek("diff", "letters", "audit", "3", "--json").out)
    assert (difference["before"]["version"], difference["after"]["version"]) == (2, 3)
    letters = door.open(store.as_uri()).dataset("letters")
    assert letters.scan(as_of="audit").read_all()["letter"].to_pylist() == ["a"]
    letters.rollback("audit")
    assert letters.scan().read_all()["letter"].to_pylist() == ["a"]


def test_query_as_of_missing_tag_names_existing_tags(kubothek: Kubothek, store: Path) -> None:
    kubothek("tag", "letters", "audit", "2")
    kubothek("tag", "letters", "start", "1")
    refused = kubothek("query", "SELECT 1 FROM letters AS OF TAG 'begin'")
    assert refused.code == 1
    assert "no tag 'begin'; its tags: audit, start" in refused.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("tag", "letters", "1st"), 1, "a name is a letter"),
        (("tag", "letters", "audit", "9"), 1, "no version 9"),
        (("tag", "letters", "audit", "0"), 2, "0 is not in the range"),
        (("tag", "letters", "audit", "soon"), 2, "'soon' is not a valid integer"),
        (("tag", "letters", "audit", "--delete"), 1, "letters has no tag 'audit'"),
        (("tag", "letters", "audit", "2", "--delete"), 2, "--delete requires NAME, without VERSION"),
        (("tag", "letters", "--delete"), 2, "--delete requires NAME"),
        (("tag", "nothing", "audit"), 1, "there is no dataset 'nothing'"),
    ],
)
def test_tag_with_invalid_arguments_names_reason(
    kubothek: Kubothek, store: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    answer = kubothek(*arguments)
    assert answer.code == code
    assert message in answer.err
    assert kubothek("tag", "letters").out == "letters: no tags\n"
