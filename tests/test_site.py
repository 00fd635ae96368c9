"""The documentation as a site: it builds without a warning, each page can be searched, and versions can be selected."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.documented import ROOT


def _build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(config), "--site-dir", str(site)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, env=environment, text=True, capture_output=True, check=False)


def _make_small_site(directory: Path, page: str) -> None:
    """Write a site of one page, with the configuration of ours."""
    docs = directory / "docs"
    docs.mkdir()
    (docs / "site.py").symlink_to(ROOT / "docs" / "site.py")
    (docs / "README.md").write_text(page)
    text, _, _ = (ROOT / "mkdocs.yml").read_text().partition("nav:\n  - Overview")
    (directory / "mkdocs.yml").write_text(text + "nav:\n  - Overview: README.md\n")


def test_site_builds_without_warnings_and_pages_are_searchable(tmp_path: Path) -> None:
    built = _build(ROOT / "mkdocs.yml", tmp_path)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    documents = json.loads((tmp_path / "search" / "search_index.json").read_text())["docs"]
    found = {document["location"].partition("#")[0] for document in documents}
    pages = {page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")}
    assert found == {
        "" if page == Path("README.md") else f"{page.parent if page.name == 'README.md' else page.with_suffix('')}/"
        for page in pages
    }


def test_site_with_dead_link_or_unlisted_page_is_refused(tmp_path: Path) -> None:
    _make_small_site(tmp_path, "# Title\n\n[a](missing.md) [b](#missing)\n")
    (tmp_path / "docs" / "unlisted.md").write_text("# Unlisted\n")
    built = _build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert built.returncode != 0
    for problem in ("'missing.md'", "'#missing'", "unlisted.md"):
        assert problem in built.stderr


def test_version_selector_of_each_page_lists_published_versions(tmp_path: Path) -> None:
    _make_small_site(tmp_path, "# Title\n")
    programs = Path(sys.executable).parent  # mike starts mkdocs by its name
    environment = os.environ | {
        "NO_MKDOCS_2_WARNING": "1",
        "PATH": f"{programs}:{os.environ['PATH']}",
        "GIT_CONFIG_GLOBAL": os.devnull,
        **{f"GIT_{who}_{what}": "docs@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("git", "init", "--quiet")
    run("git", "commit", "--quiet", "--allow-empty", "--message", "docs")
    for version in ("0.1.0", "0.2.0"):
        run("mike", "deploy", "--update-aliases", version, "latest")
    run("mike", "set-default", "latest")
    listed = {each["version"]: each["aliases"] for each in json.loads(run("git", "show", "gh-pages:versions.json"))}
    assert listed == {"0.1.0": [], "0.2.0": ["latest"]}
    for version in listed:
        assert '"version": {"provider": "mike"}' in run("git", "show", f"gh-pages:{version}/index.html")
    assert "latest/" in run("git", "show", "gh-pages:index.html")
