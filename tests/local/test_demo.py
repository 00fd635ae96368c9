"""`make demo`: the main job on this machine, in a checkout of its own; and its manifests once more."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kubothek

EXAMPLES = Path(__file__).parents[2] / "examples"
FLIGHTS = 336_776


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the examples, as in a clone."""
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    return tmp_path


def demo(checkout: Path) -> str:
    """All of it; what it said."""
    return _said(checkout, "examples/demo.sh")


def manifests_again(checkout: Path) -> str:
    """What its runs of manifests say when nothing is left to do; what it looks at beside them adds nothing anyway.

    The third and the last have all manifests of the others.
    """
    script = (EXAMPLES / "demo.sh").read_text().splitlines()
    runs = [line for line in script if line.startswith("kubothek run ")]
    assert len(runs) == 5
    return _said(checkout, "-ec", "\n".join((runs[2], runs[4])))


def _said(checkout: Path, *arguments: str) -> str:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment.pop("KUBOTHEK_STORE", None)
    environment["XDG_STATE_HOME"] = str(checkout / "state")  # the private key of the ledger
    done = subprocess.run(
        ["bash", *arguments], cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_demo_commits_every_flight_by_spark_and_second_run_adds_nothing(checkout: Path) -> None:
    said = demo(checkout)
    assert "10 resources ready (5 jobs, " in said
    assert re.search(rf"\ball +{FLIGHTS}\b", said), "the query's total"
    assert "17 resources ready (" in said
    assert re.search(r"Newark Liberty Intl +B6 +228 +1172 +EMBRAER +1 +EWR +N258JB", said), "the answer of the cube"
    assert "20 resources ready (" in said
    assert re.search(r"\n +6 .* AddData +801 ", said), "400 corrections are two records each, and one plane is gone"
    assert re.search(r"-C .* N907JB .* AIRBUS INDUSTRIE .*\n.*\+C .* N907JB .* AIRBUS ", said)
    assert re.search(r"\bAIRBUS INDUSTRIE +400\n", said), "as it was"
    assert re.search(r"-C .* MQ +false +\d+ +\d+ +853\n.*\+C .* MQ +false ", said, re.I), "a month's figures follow"
    assert "delays: departures, winds, departures-in-the-wind, delays: sound, " in said
    for name in ("flights", "nyc"):
        log = checkout / f".demo/store/.kubothek-state/jobs/default/{name}/1/log.txt"
        assert "spark" in log.read_text().lower()

    flights = kubothek.open((checkout / ".demo/store").as_uri()).dataset("flights")
    assert (flights.version, flights.rows) == (1, FLIGHTS)
    assert flights.scan(columns=["month"]).read_all().num_rows == FLIGHTS
    assert sorted(path.name for path in (checkout / ".demo/store/flights/table").glob("month=*")) == sorted(
        f"month={month}" for month in range(1, 13)
    )

    again = manifests_again(checkout)
    # The store is looked at again, as other Datasets are named than the last time; and so many may not fit one look.
    assert re.search(r"\b20 resources ready \([012] jobs?, ", again)
    assert kubothek.open((checkout / ".demo/store").as_uri()).dataset("register").version == 3
    assert (flights.version, kubothek.open((checkout / ".demo/store").as_uri()).cube("nyc").snapshot().version) == (
        1,
        1,
    )


def test_example_manifests_are_equal_in_both_runtimes_except_store() -> None:
    """What `examples/flights` refers to exists under the same names beside either store."""
    names = [
        re.findall(
            r"^kind: (\w+)\nmetadata:\n  name: ([\w-]+)", (EXAMPLES / "stores" / f"{where}.yaml").read_text(), re.M
        )
        for where in ("local", "cluster")
    ]
    assert names[0] == names[1] == [("ObjectStore", "lake"), ("Engine", "default")]


@pytest.mark.parametrize("script", ["demo.sh", "demo-cluster.sh"])
def test_demo_headings_in_file_have_no_escape_codes(script: str) -> None:
    lines = (EXAMPLES / script).read_text().splitlines()
    heading = "\n".join(line for line in lines if line.startswith(("bold=", "if [ -t 1 ]", "say()")))
    done = subprocess.run(["bash", "-c", f"{heading}\nsay 1/7"], capture_output=True, text=True, check=True)
    assert done.stdout == "\n1/7\n"
