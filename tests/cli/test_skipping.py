"""``kubothek skipping``: metadata of datasets and of other files, by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kubothek as door
from kubothek.cli.remembered import MOST, recent, remember
from kubothek.sql.read import Read
from kubothek.table.expressions import parse
from kubothek.table.scan.plan import Step
from tests.cli.conftest import Kubothek

pytestmark = pytest.mark.slow


@pytest.fixture
def store(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a table of four files, and with files that are none's."""
    root = project / "filled"
    root.mkdir()
    lake = door.open(root.as_uri())
    letters = lake.create_dataset("letters")
    for number in range(4):
        rows = pa.table({"n": range(10 * number, 10 * number + 10), "s": [f"s{number}"] * 10})
        letters.append(rows)
        path = root / f"landing/trips/{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, path)
    monkeypatch.setenv("KUBOTHEK_STORE", root.as_uri())
    monkeypatch.setenv("XDG_STATE_HOME", str(project / "state"))
    return root


def out(kubothek: Kubothek, *arguments: str) -> str:
    answer = kubothek("skipping", *arguments)
    assert (answer.code, answer.err) == (0, "")
    return answer.out


def stats(kubothek: Kubothek, name: str, where: str, *options: str) -> dict[str, object]:
    found: dict[str, dict[str, object]] = json.loads(out(kubothek, "explain", name, where, "-o", "json", *options))
    return found["stats"]


def test_skipping_index_of_dataset_can_be_built_refreshed_and_dropped(kubothek: Kubothek, store: Path) -> None:
    assert out(kubothek, "describe", "letters") == "letters has no skipping metadata\n"
    built = out(kubothek, "build", "letters", "--index", "minmax:n", "--index", "Prefix:s,length=2")
    assert built == "letters: version 6: 4 files described\n"
    lines = out(kubothek, "describe", "letters").splitlines()
    assert lines[0].startswith("letters: 4 of 4 files described, metadata ")
    assert lines[1] == f"for Xskipper: EXPLICIT_LOCATION {store.as_uri()}/.kubothek/letters/skipping/"
    assert [line.split() for line in lines[2:]] == [
        ["TYPE", "COLUMN", "PARAMETERS", "KEY"],
        ["MinMax", "n"],
        ["Prefix", "s", "length=2"],
    ]
    found = stats(kubothek, "letters", "n = 12")
    assert (found["isSkippable"], found["skipped_Objs"], found["total_Objs"]) == (True, 3, 4)
    assert found["skipped_Bytes"] != 0
    explained = out(kubothek, "explain", "letters", "s LIKE 's2%'").splitlines()
    assert explained[0].split() == ["STEP", "FILES", "LEFT"]
    assert explained[-1].endswith(".parquet")
    again = out(kubothek, "build", "letters")
    assert again == "letters: the skipping metadata is up to date\n"
    assert out(kubothek, "drop", "letters", "--yes") == "letters: version 7 has no skipping metadata\n"
    assert out(kubothek, "drop", "letters", "--yes") == "letters: there was no skipping metadata\n"


def test_skipping_refresh_updates_timestamps_of_copy_for_xskipper(kubothek: Kubothek, store: Path) -> None:
    out(kubothek, "build", "letters", "--index", "MinMax:n")
    assert out(kubothek, "refresh", "letters") == "letters: the skipping metadata is up to date\n"
    for path in (store / "letters").rglob("*.parquet"):
        path.touch()
    assert out(kubothek, "refresh", "letters").endswith("; version 7: the times of files for Xskipper\n")
    assert out(kubothek, "refresh", "letters") == "letters: the skipping metadata is up to date\n"
    assert stats(kubothek, "letters", "n = 12")["skipped_Objs"] == 3


def test_skipping_index_of_plain_files_can_be_built_and_used(kubothek: Kubothek, store: Path) -> None:
    built = out(kubothek, "build", "trips", "--location", "landing/trips/", "--index", "MinMax:n")
    assert built == "trips: 4 of 4 files described (4 new)\n"
    answer = kubothek("query", "SELECT count(*) AS c FROM trips WHERE n = 12")
    assert answer.out.splitlines()[1].strip() == "1"
    assert "from trips (1 file)" in answer.out
    (store / "landing/trips/3.parquet").unlink()
    assert out(kubothek, "refresh", "trips") == "trips: 3 of 3 files described (1 gone)\n"
    assert out(kubothek, "describe", "trips").startswith("trips: 3 of 3 files described, metadata ")
    assert stats(kubothek, "trips", "n = 12")["skipped_Objs"] == 2
    assert stats(kubothek, "trips", "s = 'x'")["isSkippable"] is False
    directory = ".kubothek/++plain/trips/xskipper"
    assert stats(kubothek, "landing/trips", "n = 12", "--metadata", directory)["skipped_Objs"] == 2
    assert out(kubothek, "drop", "trips", "--yes").startswith("trips: ")
    assert kubothek("skipping", "drop", "trips", "--yes").code == 1


def test_query_reports_skipped_files_per_dataset_and_in_total(kubothek: Kubothek, store: Path) -> None:
    out(kubothek, "build", "letters", "--index", "MinMax:n")
    out(kubothek, "build", "trips", "--location", "landing/trips", "--index", "MinMax:n")
    sql = "SELECT l.s FROM letters l JOIN trips t USING (n) WHERE l.n = 12 AND t.n < 15"
    found = json.loads(out(kubothek, "stats", sql, "-o", "json"))
    of_files = {name: (each["skipped_Objs"], each["total_Objs"]) for name, each in found["datasets"].items()}
    assert of_files == {"letters": (3, 4), "trips": (2, 4)}
    whole = found["aggregated"]
    assert (whole["status"], whole["isSkippable"]) == ("SUCCESS", True)
    assert (whole["skipped_Objs"], whole["total_Objs"]) == (5, 8)
    sizes = [path.stat().st_size for path in (store / "landing/trips").iterdir()]
    assert found["datasets"]["trips"]["total_Bytes"] == sum(sizes)
    assert whole["skipped_Bytes"] == sum(each["skipped_Bytes"] for each in found["datasets"].values()) > 0
    lines = [line.split() for line in out(kubothek, "stats", sql).splitlines()]
    assert [line[:4] for line in lines[1:]] == [
        ["letters", "3", "of", "4"],
        ["trips", "2", "of", "4"],
        ["all", "5", "of", "8"],
    ]
    nothing = json.loads(out(kubothek, "stats", "SELECT s FROM letters WHERE s = 's1'", "-o", "json"))
    assert nothing["aggregated"]["isSkippable"] is False
    assert out(kubothek, "stats", "SELECT 1") == "no dataset is read\n"


def test_skipping_auto_considers_own_query_history(kubothek: Kubothek, store: Path) -> None:
    out(kubothek, "build", "letters", "--auto")
    assert {"MinMax", "ValueList"} == {
        line.split()[0] for line in out(kubothek, "describe", "letters").splitlines()[3:]
    }
    for _ in range(3):
        kubothek("query", "SELECT 1 FROM letters WHERE s LIKE '%2'")
    out(kubothek, "build", "letters", "--auto")
    lines = out(kubothek, "describe", "letters").splitlines()
    assert any(line.startswith("Suffix") for line in lines)
    assert lines[-1] == "your last 3 queries with a filter skipped 9 of 12 files (75%)"


def test_query_history_is_bounded(kubothek: Kubothek, store: Path) -> None:
    where = parse("n = 1")
    steps = (Step("all files", 4), Step("skipping metadata", 1))
    for _ in range(3 * MOST):
        remember("file:///x", [Read.of("letters", 1, steps, where)])
    found = recent("file:///x", "letters")
    assert len(found) == MOST
    assert (found[0].considered, found[0].skipped, found[0].filters) == (4, 3, ("n:Equal",))
    (file,) = (store.parent / "state/kubothek/queries").iterdir()
    assert len(file.read_bytes().splitlines()) <= 2 * MOST
    file.write_bytes(b'half a li\n["letters", 1, 1, []]\n')
    assert len(recent("file:///x", "letters")) == 1
    assert recent("file:///x", "other") == []


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["build", "letters", "--index", "MinMax:nothing"], 1, "there is no 'nothing'"),
        (["build", "letters", "--index", "Magic:n"], 2, "there is no index type 'Magic'"),
        (["build", "letters", "--index", "MinMax"], 2, "write TYPE:COLUMN"),
        (["build", "letters", "--index", "Prefix:s,size=3"], 2, "'size'"),
        (["build", "letters", "--index", "MinMax:n,key=k1"], 1, "footerKey"),
        (["build", "trips", "--location", "landing/trips"], 2, "--index"),
        (["build", "trips", "--glob", "*.parquet"], 2, "--location"),
        (["build", "nothing", "--index", "MinMax:n"], 1, "nothing"),
        (["describe", "nothing"], 1, "no dataset or skipping metadata 'nothing'"),
        (["explain", "letters", "n = 'x'"], 1, "n"),
    ],
)
def test_skipping_with_invalid_arguments_names_reason(
    kubothek: Kubothek, store: Path, arguments: list[str], code: int, why: str
) -> None:
    answer = kubothek("skipping", *arguments)
    assert answer.code == code
    assert why in answer.err
