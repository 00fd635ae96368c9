"""Each verb of ``kubothek`` where the store fails, something is not installed, or Ctrl-C comes.

What must hold: an error in our words and the exit code that goes with it; no row is lost; no object is left over that
``kubothek health`` does not count, and no temporary file. The verbs are those of the command line itself.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.failures import project
from tests.failures.server import Answer, Request, Server
from tests.failures.verbs import DRY_RUNS, ROWS, Row, verbs
from tests.sampling import SOAK, sampled

pytestmark = pytest.mark.slow

NOBODY = 65534
SIZE_KIB = 16 << 10
MOMENTS = 5
VERBS = [verb for verb, row in ROWS.items() if SOAK or not row.slow]
AT_THE_STORE = [verb for verb in VERBS if ROWS[verb].store and verb != "serve"]
FREE_KIB = (0, 12, 64)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system, and drops its user")


class Project:
    """The project as it was made, in a directory that any user can enter, and the processes that run verbs on it."""

    def __init__(self, server: Server, root: Path) -> None:
        self._server = server
        self._calls: dict[str, int] = {}
        self.root = root
        self.places = project.build(server, root)
        self.rows = project.rows(root)
        self.objects = project.objects(root)
        self.heads = project.heads(root)
        self.counted = project.counted(root)

    def copy(self, to: Path) -> Path:
        shutil.copytree(self.root, to, dirs_exist_ok=True)
        for made in to.glob("*.yaml"):
            made.write_text(made.read_text().replace(str(self.root), str(to)))
        return to

    def calls(self, verb: str) -> int:
        """How often a verb calls the store where nothing is wrong; a server goes on until it is interrupted."""
        if verb not in self._calls:
            with tempfile.TemporaryDirectory(prefix="kubothek-failures-") as directory:
                twin = self.copy(Path(directory) / "twin")
                self._calls[verb] = 1 if verb == "serve" else self.run(twin, verb).calls
        return self._calls[verb]

    def run(self, root: Path, verb: str | Row, **how: Any) -> Answer:
        row = verb if isinstance(verb, Row) else ROWS[verb]
        environment = project.home(root) | {"KUBOTHEK_STORE": "file:store"}
        return self._server.run(Request(row.arguments(self.places), str(root), environment, **how))


@pytest.fixture(scope="module")
def made() -> Iterator[Project]:
    with tempfile.TemporaryDirectory(prefix="kubothek-failures-") as directory, Server() as server:
        os.chmod(directory, 0o755)  # noqa: PTH101
        yield Project(server, Path(directory))


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that any user can enter."""
    with tempfile.TemporaryDirectory(prefix="kubothek-failures-") as directory:
        os.chmod(directory, 0o755)  # noqa: PTH101
        yield Path(directory)


@cache
def may_mount() -> bool:
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", directory], capture_output=True)
        if done.returncode == 0:
            subprocess.run(["umount", directory], check=True)
        return done.returncode == 0


@contextmanager
def mounted(at: Path, *options: str) -> Iterator[None]:
    if not may_mount():
        pytest.skip("this user may not mount a tmpfs")
    subprocess.run(["mount", *options, str(at)], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(at)], check=True)


def in_our_words(done: Answer, codes: tuple[int, ...]) -> None:
    assert done.code in codes, done
    said = done.out + done.err
    assert "Traceback" not in said, done
    assert "fault of Kubothek" not in said, done
    assert "InternalError" not in said, done
    assert "[Errno" not in said, done
    if done.code == 1:
        assert re.search(r"^error: \S|^blocked|^failed|: failed|is not ", said, re.M), done


def nothing_lost(made: Project, root: Path, done: Answer, expected: Callable[[], list[Any]]) -> None:
    """The rows are those of before, or those that the verb or its half makes; what is left over is counted."""
    found = project.rows(root)
    assert not project.temporary_files(root), done
    if found != made.rows:
        assert found in expected(), done
        return
    if project.heads(root) != made.heads:
        return
    left = project.left_over(root, made.objects)
    if left and done.code != 0:
        assert project.counted(root) - made.counted >= len(left), (done, sorted(left))


def after(made: Project, verb: str) -> Callable[[], list[Any]]:
    """The rows once the verb has run where nothing is wrong, or half of it."""

    def rows_after(row: Row) -> Any:
        with tempfile.TemporaryDirectory(prefix="kubothek-failures-") as directory:
            root = made.copy(Path(directory) / "twin")
            made.run(root, row)
            return project.rows(root)

    lines = [ROWS[verb], *(Row(half) for half in [ROWS[verb].half] if half)]
    return lambda: [rows_after(row) for row in lines]


def test_verbs_all_have_failure_table_row() -> None:
    assert sorted(ROWS) == sorted(verbs())


@pytest.mark.parametrize("verb", sampled([verb for verb in VERBS if verb != "serve"], 12))
def test_verb_without_java_and_spark_exits_with_code_of_row(made: Project, place: Path, verb: str) -> None:
    root = made.copy(place / "p")
    done = made.run(root, verb, hidden=["pyspark", "py4j"])
    in_our_words(done, (ROWS[verb].code,))
    assert not project.temporary_files(root)


@contextmanager
def read_only(store: Path) -> Iterator[None]:
    with mounted(store, "--bind", str(store)):
        subprocess.run(["mount", "-o", "remount,ro,bind", str(store)], check=True, capture_output=True)
        yield


@needs_root
@pytest.mark.parametrize("row", sampled(DRY_RUNS, 3), ids=lambda row: row.line)
def test_dry_run_without_write_permission_succeeds(made: Project, place: Path, row: Row) -> None:
    root = made.copy(place / "p")
    with read_only(root / "store"):
        in_our_words(made.run(root, row), (0,))


@needs_root
@pytest.mark.parametrize("verb", sampled(AT_THE_STORE, 24))
def test_verb_on_read_only_store_reads_or_reports_reason(made: Project, place: Path, verb: str) -> None:
    root = made.copy(place / "p")
    with read_only(root / "store"):
        done = made.run(root, verb)
        in_our_words(done, (1,) if ROWS[verb].writes else (0,))
        if ROWS[verb].writes:
            assert "Read-only file system" in done.out + done.err, done
    assert project.rows(root) == made.rows


@needs_root
@pytest.mark.parametrize("verb", sampled(AT_THE_STORE, 24))
def test_verb_on_store_without_permission_reports_access_denied(made: Project, place: Path, verb: str) -> None:
    root = made.copy(place / "p")
    (root / "store").chmod(0o700)
    os.chown(root / "store", NOBODY, NOBODY)
    done = made.run(root, verb, powerless=True)
    in_our_words(done, (1,))
    assert "AccessDenied" in done.out + done.err or "Permission denied" in done.out + done.err, done
    assert project.rows(root) == made.rows


@needs_root
@pytest.mark.parametrize(
    ("verb", "free"), sampled([(verb, free) for verb in AT_THE_STORE for free in FREE_KIB], 60), ids=str
)
def test_verb_on_full_disk_reports_error_and_loses_nothing(made: Project, place: Path, verb: str, free: int) -> None:
    disk = place / "disk"
    disk.mkdir()
    with ExitStack() as stack:
        stack.enter_context(mounted(disk, "-t", "tmpfs", "-o", f"size={SIZE_KIB}k,mode=755", "tmpfs"))
        root = made.copy(disk / "p")
        (root / "home").mkdir(exist_ok=True)
        fill(disk, free)
        done = made.run(root, verb)
        in_our_words(done, (0, 1))
        if done.code == 1:
            assert "No space left" in done.out + done.err, done
        (disk / "filler").unlink()
        nothing_lost(made, root, done, after(made, verb))


def fill(disk: Path, free: int) -> None:
    """Leave so many KiB."""
    with (disk / "filler").open("wb", buffering=0) as filler:
        found = os.statvfs(disk)
        filler.write(bytes(max(0, found.f_bavail * found.f_frsize - (free << 10))))


@pytest.mark.parametrize(
    ("verb", "moment"),
    sampled([(verb, moment) for verb in VERBS if ROWS[verb].store for moment in range(MOMENTS)], 80),
    ids=str,
)
def test_verb_that_is_interrupted_reports_error_and_loses_nothing(
    made: Project, place: Path, verb: str, moment: int
) -> None:
    calls = made.calls(verb)
    assert calls, "it asks the store"
    root = made.copy(place / "p")
    done = made.run(root, verb, interrupt_at=1 + moment * (calls - 1) // (MOMENTS - 1))
    assert done.code == 130, done
    assert re.search(r"^interrupted$|; run the same command to continue$", done.err, re.M), done
    assert "Traceback" not in done.out + done.err, done
    nothing_lost(made, root, done, after(made, verb))
