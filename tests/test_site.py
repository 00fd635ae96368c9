"""The documentation as a site: it builds without a warning, and each page can be searched."""

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


def test_site_builds_without_warnings_and_each_page_can_be_searched(tmp_path: Path) -> None:
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


def test_site_with_a_dead_link_or_anchor_or_an_unlisted_page_is_refused(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "site.py").symlink_to(ROOT / "docs" / "site.py")
    (docs / "README.md").write_text("# Title\n\n[a](missing.md) [b](#missing)\n")
    (docs / "unlisted.md").write_text("# Unlisted\n")
    text, _, _ = (ROOT / "mkdocs.yml").read_text().partition("nav:\n  - Overview")
    (tmp_path / "mkdocs.yml").write_text(text + "nav:\n  - Overview: README.md\n")
    built = _build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert built.returncode != 0
    for problem in ("'missing.md'", "'#missing'", "unlisted.md"):
        assert problem in built.stderr
