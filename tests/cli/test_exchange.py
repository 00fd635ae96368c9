"""Datasets between two stores on the command line, by a gateway that is a process of its own."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubothek.odf.dataset import Root
from kubothek.storage import StoreConfig, open_store
from kubothek.table.log import DatasetLog
from tests.cli.conftest import Kubothek
from tests.odf.dataset.planes import LEDGER, made, push

pytestmark = pytest.mark.slow

TOKEN = "a-token-for-the-test-0001"
TOKENS = f"""
- name: me
  token: {TOKEN}
  pull: ["*"]
  push: [copy]
"""


@pytest.fixture
def gateway(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(project / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(project / "state"))
    (project / "theirs").mkdir()
    store = open_store(StoreConfig((project / "theirs").as_uri()))
    made(store, LEDGER)
    push(store, {1: "A", 2: "B"})
    (project / "tokens.yaml").write_text(TOKENS)
    (project / "tokens.yaml").chmod(0o600)
    program = Path(sys.executable).with_name("kubothek")
    arguments = ["serve", "--store", "file:theirs", "--token-file", "tokens.yaml", "--listen", "127.0.0.1:0"]
    with subprocess.Popen([program, *arguments], stderr=subprocess.PIPE, text=True, cwd=project) as process:
        assert process.stderr is not None
        yield process.stderr.readline().split()[-1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stderr.read().count('"status"') > 5


def test_login_pull_push_search_and_logout_succeed(
    kubothek: Kubothek, project: Path, gateway: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = ("--store", "file:mine")
    denied = kubothek("pull", *mine, f"{gateway}/planes")
    assert (denied.code, "InvalidCredentials" in denied.err) == (1, True)
    for token, code in (("wrong-wrong-wrong-wrong", 1), (TOKEN, 0)):
        monkeypatch.setattr("sys.stdin", open_text(project, token))
        assert kubothek("login", gateway, "--stdin").code == code
    kept = project / "config" / "kubothek" / "tokens.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert kubothek("search", "--at", gateway, "planes").out.splitlines()[1].split()[0] == "planes"
    first = kubothek("pull", *mine, f"{gateway}/planes")
    assert (first.code, "5 blocks, 1 of 1 object" in first.out) == (0, True), first
    assert "up to date" in kubothek("pull", *mine, f"odf+{gateway}/planes").out
    assert kubothek("search", *mine, "planes").out.splitlines()[1].split()[:3] == ["planes", "Root", "2"]
    sent = kubothek("push", *mine, "planes", f"odf+{gateway}/copy")
    assert (sent.code, "created there, 5 blocks and 1 object" in sent.out) == (0, True), sent
    assert "nothing new" in kubothek("push", *mine, "planes", f"odf+{gateway}/copy").out
    assert f"nothing new for odf+{gateway}/copy" in kubothek("push", *mine, "planes").out
    assert "never pushed" in kubothek("push", *mine, "elsewhere").err
    assert "AccessDenied" in kubothek("push", *mine, "planes", f"odf+{gateway}/other").err
    assert "read only" in kubothek("push", *mine, "planes", f"{gateway}/copy").err
    out = kubothek("push", *mine, "planes", (project / "out").as_uri())
    assert (out.code, "5 blocks" in out.out) == (0, True), out
    assert kubothek("logout", gateway).out == "1 token forgotten\n"
    assert "InvalidCredentials" in kubothek("pull", *mine, f"{gateway}/planes").err


@pytest.mark.requirement("AL-01")
def test_remote_alias_is_remembered_in_local_state_after_success(
    kubothek: Kubothek, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(project / "state"))
    (project / "theirs").mkdir()
    theirs = open_store(StoreConfig((project / "theirs").as_uri()))
    made(theirs, LEDGER)
    for name in ("out", "other"):
        assert kubothek("export", "--store", "file:theirs", "planes", (project / name).as_uri()).code == 0
    mine = ("--store", "file:mine")
    assert "version 1" in kubothek("pull", *mine, (project / "out").as_uri(), "--as", "one").out
    assert kubothek("pull", *mine, (project / "out").as_uri(), "--as", "two", "--no-alias").code == 0
    push(theirs, {1: "A"})
    kubothek("export", "--store", "file:theirs", "planes", (project / "out").as_uri())
    assert "2 blocks" in kubothek("pull", *mine, "one").out
    assert "up to date" in kubothek("pull", *mine, "--all").out
    assert "kubothek ingest" in kubothek("pull", *mine, "two").out, "nobody was to remember it"
    again = kubothek("pull", *mine, (project / "other").as_uri(), "--as", "one")
    assert "Diverged" in again.err
    assert "up to date" in kubothek("pull", *mine, "one").out, "what failed is not remembered"
    store = open_store(StoreConfig((project / "mine").as_uri()))
    assert len({Root(store, DatasetLog(store, name)).id for name in ("one", "two")}) == 1
    assert "never pushed" in kubothek("push", *mine, "one").err
    assert not [*(project / "mine").rglob("*remotes*")]


def open_text(project: Path, text: str) -> object:
    path = project / "stdin"
    path.write_text(f"{text}\n")
    return path.open()


def test_serve_with_token_file_readable_by_others_is_refused(kubothek: Kubothek, project: Path) -> None:
    (project / "s").mkdir()
    path = project / "tokens.yaml"
    path.write_text(TOKENS)
    path.chmod(0o644)
    found = kubothek("serve", "--store", "file:s", "--token-file", path)
    assert (found.code, "chmod 600" in found.err) == (1, True)
    path.chmod(0o600)
    for text in (
        "x",
        "- 1",
        "- {name: a, token: short}",
        f"- {{name: a, token: {TOKEN}, sing: [x]}}",
        "- {a: [",
        f"{TOKENS}{TOKENS}",
    ):
        path.write_text(text)
        found = kubothek("serve", "--store", "file:s", "--token-file", path)
        assert (found.code, str(path) in found.err) == (1, True), text


def test_pull_from_invalid_url_is_refused(kubothek: Kubothek, project: Path) -> None:
    for url in ("ftp://x/y", "https://user@x/y", "https://x/y?z", "odf+file:///x", "https://x:99999/y", "planes"):
        found = kubothek("pull", "--store", "file:mine", url, "--as", "x")
        assert found.code in (1, 2), url
        assert "https://" in found.err
