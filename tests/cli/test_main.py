"""The command itself: fast, never a traceback, exit codes that scripts can rely on."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kubothek.cli import main as module
from kubothek.errors import StoreUnavailable
from kubothek.storage import StoreConfig, open_store
from tests.cli.conftest import Kubothek

HEAVY = ("pyarrow", "duckdb", "boto3", "pydantic", "rich", "pyspark", "yaml")


def test_help_lists_every_command_without_heavy_imports() -> None:
    program = (
        "import sys; from kubothek.cli.main import main\n"
        "try: main(['--help'])\n"
        f"except SystemExit: print('HEAVY', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    for command in ("run", "plan", "lint", "put", "get", "describe", "log", "adopt", "query"):
        assert f"\n  {command} " in done.stdout
    assert done.stdout.endswith("HEAVY []\n")


@pytest.mark.parametrize("name", ["kubothek", "kubectl-kubothek"])
def test_programs_are_both_installed(name: str) -> None:
    program = Path(sys.executable).with_name(name)
    done = subprocess.run([program, "lint", "-f", "/nonexistent"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "error: /nonexistent: no such file or directory\n")


def test_help_of_each_command_shows_usage(kubothek: Kubothek) -> None:
    for command in module.COMMANDS:
        answer = kubothek(command, "--help")
        assert answer.code == 0
        assert answer.out.startswith(f"Usage: kubothek {command} ")


PURPOSES = (
    "Apply manifests on this machine.",
    "Rebuild indices and metadata; report lost files.",
    "List unreferenced objects; --enforce deletes them.",
    "Push a ledger's new blocks to a URL.",
    "Set a ledger's watermark.",
)


def test_help_states_purpose_of_each_command(kubothek: Kubothek) -> None:
    text = kubothek("--help").out
    assert [purpose for purpose in PURPOSES if purpose not in text] == []
    assert "Idempotency key: repeats do nothing." in " ".join(kubothek("cube", "append", "--help").out.split())


def test_wrong_usage_exits_with_2(kubothek: Kubothek) -> None:
    answer = kubothek("run")
    assert (answer.code, "Missing option '-f'" in answer.err) == (2, True)
    assert kubothek("nonsense").code == 2


def test_store_error_is_one_line_with_reason_and_hint(kubothek: Kubothek, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise StoreUnavailable("http://127.0.0.1:1 does not answer")

    monkeypatch.setattr(module.cli, "main", broken)
    assert kubothek("get") == (
        1,
        "",
        "error: StoreUnavailable: http://127.0.0.1:1 does not answer\n"
        "hint: check that the endpoint is right and reachable from here; --endpoint names another\n",
    )


def test_full_disk_of_file_store_is_reported_without_endpoint_hint(
    kubothek: Kubothek, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(module.cli, "main", lambda *_, **__: open_store(StoreConfig(tmp_path.as_uri())).put("k", b""))
    found = kubothek("get")
    assert (found.code, found.out) == (1, "")
    assert found.err.endswith("No space left on device; disk full: free space, then retry\n")
    assert "hint" not in found.err


def test_unwritable_file_is_named(kubothek: Kubothek, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "/data/lake")

    monkeypatch.setattr(module.cli, "main", full)
    assert kubothek("run") == (1, "", "error: /data/lake: No space left on device\n")


def test_internal_error_shows_traceback_on_request_only(kubothek: Kubothek, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*_: object, **__: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(module.cli, "main", wrong)
    answer = kubothek("run")
    assert (answer.code, answer.err.splitlines()[0]) == (1, "error: KeyError: 'x'")
    monkeypatch.setenv("KUBOTHEK_TRACEBACK", "1")
    with pytest.raises(KeyError):
        module.main(["run"])


def test_ctrl_c_exits_with_130(kubothek: Kubothek, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module.cli, "main", interrupted)
    assert kubothek("get") == (130, "", "interrupted\n")


def test_closed_output_pipe_is_no_error() -> None:
    program = "from kubothek.cli.main import main; main(['run', '--help'])"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
