"""Sources that are containers of a cluster: prepared by one program, run by their image, read by the poll."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kubothek.api.jobs import JOB, ExitCode, JobResult, PollJob
from kubothek.controller.tasks.containers import OUTPUT_DIRECTORY
from kubothek.jobs import fetch as fetching
from kubothek.odf.sources.fetch.containers import OUT
from tests.jobs.conftest import Here
from tests.jobs.test_ledger import defined, names, polled, sound

pytestmark = pytest.mark.slow

COUNTING = """\
n="${ODF_ETAG:-0}"
echo "id,name,seats"
echo "$n,$NAME,$ODF_BATCH_SIZE"
echo "at $n" >&2
printf "%s" "$((n + 1))" > "$OUT/new-etag"
[ "$n" = 2 ] || touch "$OUT/has-more"
"""
"""Numbers from 0 to 2, one a run; it stands for a program that is in the image."""


class Pod:
    """What a cluster does for a poll whose source is a container of the image ``x``."""

    def __init__(self, here: Here, identity: Path, directory: Path, script: str = COUNTING, **fetch: Any) -> None:
        self.here, self.directory, self.rounds = here, directory, 0
        self.secret = directory / "secret"
        self.secret.mkdir(parents=True)
        (self.secret / "NAME").write_text("it's $HOME\n")
        env = [{"name": "NAME"}, {"name": "OUT", "value": str(directory / "out")}]
        step = {"kind": "Container", "image": "x", "command": ["/bin/sh", "-c"], "args": [script], "env": env} | fetch
        defined(here, {**polled("https://x"), "fetch": step, "merge": {"kind": "Append"}}, identity=identity)
        self.job: dict[str, Any] = {}

    def prepare(self) -> int:
        self.rounds += 1
        out, launcher = self.directory / "out", self.directory / f"launcher-{self.rounds}"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        launcher.mkdir()
        container = {"image": "x", "launcher_dir": str(launcher), "output_dir": str(out)}
        self.job = self.here.job("poll") | {"env_dir": str(self.secret), "container": container}
        return fetching.main([self.here.write(self.job)])

    def fetch(self) -> subprocess.CompletedProcess[str]:
        """As the source's image does it, which has nothing of this machine in its environment."""
        job = JOB.validate_python(self.job)
        assert isinstance(job, PollJob)
        assert job.container is not None
        return subprocess.run(job.container.command, env={}, capture_output=True, text=True)

    def poll(self) -> tuple[JobResult, int]:
        return self.here.run(self.job)

    def round(self) -> JobResult:
        assert self.prepare() == ExitCode.DONE
        ran = self.fetch()
        assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr
        result, code = self.poll()
        assert code == ExitCode.DONE, result
        assert result.poll is not None
        return result


@pytest.mark.requirement("FE-10")
def test_fetch_container_resumes_from_state_of_previous_round(here: Here, identity: Path, tmp_path: Path) -> None:
    pod = Pod(here, identity, tmp_path / "pod")
    rounds = [pod.round().poll for _ in range(3)]
    assert [(done.commits, done.records, done.has_more) for done in rounds if done] == [
        (1, 1, True),
        (1, 1, True),
        (1, 1, False),
    ]
    assert names(here) == {0: "it's $HOME", 1: "it's $HOME", 2: "it's $HOME"}
    assert {row["seats"] for row in here.rows("id")} == {10000}
    head = here.head()
    again, code = pod.poll()
    assert (code, again.reason) == (ExitCode.TRANSIENT, "SourceChanged"), "what it left is of a state that has passed"
    assert here.head() == head
    sound(here)


@pytest.mark.requirement("FE-10")
def test_fetch_container_without_new_data_commits_nothing(here: Here, identity: Path, tmp_path: Path) -> None:
    pod = Pod(here, identity, tmp_path / "pod", script="exit 0")
    head = here.head()
    assert pod.round().message == "the source has nothing new"
    assert here.head() == head


@pytest.mark.requirement("FE-10")
@pytest.mark.parametrize(
    ("left", "told"),
    [
        ('ln -s "$OUT/../secret/NAME" "$OUT/new-etag"', "'new-etag', which the container left, cannot be read"),
        ('rm "$OUT/stdout"; ln -s "$OUT/../secret/NAME" "$OUT/stdout"', "'stdout', which the container left"),
        ('rm "$OUT/stdout"', "removed the file of its standard output"),
        ('mkfifo "$OUT/has-more"', "'has-more', which the container left, is no plain file"),
        ('head -c 70000 /dev/zero > "$OUT/new-etag"', "of more than 64 KiB"),
        ('printf "\\377" > "$OUT/new-etag"', "that is no UTF-8 text"),
    ],
)
def test_fetch_container_with_invalid_output_files_is_refused(
    here: Here, identity: Path, tmp_path: Path, left: str, told: str
) -> None:
    pod = Pod(here, identity, tmp_path / "pod", script=f"echo id,name,seats; {left}")
    head = here.head()
    assert (pod.prepare(), pod.fetch().returncode) == (ExitCode.DONE, 0)
    result, code = pod.poll()
    assert (code, result.reason, told in result.message) == (ExitCode.INVALID, "SourceFailed", True), result
    assert here.head() == head


@pytest.mark.requirement("FE-03")
def test_fetch_container_keeps_its_output_and_exit_code(here: Here, identity: Path, tmp_path: Path) -> None:
    pod = Pod(here, identity, tmp_path / "pod", script="echo out; echo no such table >&2; exit 3")
    assert pod.prepare() == ExitCode.DONE
    ran = pod.fetch()
    assert (ran.returncode, ran.stdout, ran.stderr) == (3, "", "no such table\n")
    nowhere = Pod(here, identity, tmp_path / "other", command=["/no/such/program"])
    assert nowhere.prepare() == ExitCode.DONE
    ran = nowhere.fetch()
    assert (ran.returncode, "/no/such/program: not found" in ran.stderr) == (127, True)


@pytest.mark.requirement("FE-03")
@pytest.mark.parametrize(
    ("fetch", "reason", "told"),
    [
        ({"image": "y"}, "SourceChanged", "not any more, a container of image 'x'"),
        ({"command": []}, "InvalidInput", "give its command"),
        ({"env": [{"name": "a-b", "value": "1"}]}, "InvalidInput", "unlike 'a-b'"),
        ({"env": [{"name": "LACKING"}]}, "InvalidInput", "needs variable 'LACKING'"),
        ({"args": ["a\0b"]}, "InvalidInput", "zero byte"),
    ],
)
def test_fetch_that_cannot_be_prepared_is_refused_before_container_runs(
    here: Here,
    identity: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fetch: dict[str, Any],
    reason: str,
    told: str,
) -> None:
    pod = Pod(here, identity, tmp_path / "pod", **fetch)
    monkeypatch.setenv("KUBOTHEK_TERMINATION_LOG", str(tmp_path / "said"))
    assert pod.prepare() in (ExitCode.INVALID, ExitCode.TRANSIENT)
    result = JobResult.model_validate_json((tmp_path / "said").read_bytes())
    assert (result.reason, told in result.message) == (reason, True), result
    assert list((tmp_path / "pod" / "launcher-1").iterdir()) == []


@pytest.mark.requirement("FE-10")
def test_fetch_output_directory_equals_directory_of_pod() -> None:
    assert OUTPUT_DIRECTORY == OUT
