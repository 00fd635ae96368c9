"""The pages of docs/: what is made from the code is up to date, nothing is left out, and links lead somewhere."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

import pytest

from kubothek.api.kinds import KINDS
from tests import pages
from tests.documented import ROOT
from tests.documented import pages as every_page

REASONS = (ROOT / "docs" / "reasons.md").read_text()
SECTIONS = ("Example", "Fields", "Conditions", "Troubleshooting")


def documented(text: str) -> set[str]:
    """The reasons in the first columns of the tables of a page."""
    cells = re.findall(r"^\| ([^|]*`[A-Z][^|]*) \|", text, re.MULTILINE)
    return {reason for cell in cells for reason in re.findall(r"`([A-Z][A-Za-z]+)`", cell)}


def test_generated_pages_match_code() -> None:
    for file, text in pages.pages().items():
        assert file.read_text() == text, f"{file.relative_to(ROOT)} is out of date: run `make pages`"


def test_overview_picture_matches_source() -> None:
    images = ROOT / "docs" / "images"
    digest = sha256((images / "overview.dot").read_bytes()).hexdigest()
    assert digest in (images / "overview.svg").read_text(), "overview.svg is out of date: run `make pictures`"


def test_documented_reasons_match_code() -> None:
    assert documented(REASONS) == pages.told() | set(pages.errors()) | UNSEEN


UNSEEN = {"ImagePullFailed", "PodFailed", "NameTaken"}
"""Reasons that the code puts together in ways that are not looked for."""


@pytest.mark.parametrize("kind", KINDS)
def test_kind_page_has_all_required_sections(kind: str) -> None:
    text = pages.page(kind).read_text()
    assert text.startswith(f"# {kind}\n")
    assert tuple(re.findall(r"^## (\w+)", text, re.MULTILINE))[-4:] == SECTIONS
    assert re.search(rf"^```yaml\n(?:.*\n)*?kind: {kind}\n", text, re.MULTILINE), (
        "an example, which is applied in a test"
    )
    conditions = text[text.index("## Conditions") : text.index("## Troubleshooting")]
    assert documented(conditions) <= documented(REASONS)
    assert documented(conditions)


def anchors(file: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"^```.*?^```", "", file.read_text(), flags=re.DOTALL | re.MULTILINE), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(file: Path) -> list[str]:
    text = re.sub(r"^```.*?^```", "", file.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", text)) if "://" not in link]


def test_page_links_all_resolve() -> None:
    for file in every_page():
        for link in links(file):
            path, _, anchor = link.partition("#")
            target = (file.parent / path).resolve() if path else file
            assert target.exists(), f"{file.relative_to(ROOT)}: {link}"
            if anchor and target.suffix == ".md":
                assert anchor in anchors(target), f"{file.relative_to(ROOT)}: {link}"


def test_table_of_contents_lists_every_page() -> None:
    contents = ROOT / "docs" / "README.md"
    reached = {(contents.parent / link.partition("#")[0]).resolve() for link in links(contents)}
    assert {
        file for file in (ROOT / "docs").rglob("*.md") if file != contents and file.parent.name != "decisions"
    } <= reached


def test_kind_pages_state_each_default_once_and_escape_no_code() -> None:
    for file in pages.pages():
        for line in file.read_text().splitlines():
            told = re.findall(r"(?i)default: `?([^.`;| ]+)", line)
            assert len(told) == len(set(told)), f"{file.name}: {line}"
            assert "&lt;" not in "".join(line.split("`")[1::2]), f"{file.name}: {line}"


def test_install_page_states_cpu_request_of_chart() -> None:
    (cpu,) = re.findall(r"(?m)^  requests: \{cpu: (\w+), ", (ROOT / "charts" / "kubothek" / "values.yaml").read_text())[
        :1
    ]
    assert f"| `resources` | {cpu} CPU, " in (ROOT / "docs" / "install.md").read_text()


def test_spark_page_readers_end_in_load() -> None:
    code = re.findall(r"(?s)```python\n(.*?)```", (ROOT / "docs" / "spark.md").read_text())
    assert all(".load()" in block for block in code if "spark.read" in block)
