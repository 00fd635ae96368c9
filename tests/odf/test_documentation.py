"""docs/odf.md names tests and codes that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "odf.md").read_text()
REQUIREMENTS = (ROOT / "docs" / "odf-requirements.md").read_text()


def _texts(directory: str) -> str:
    return "\n".join(path.read_text() for path in sorted(ROOT.glob(f"{directory}/*.py")))


def test_odf_page_rows_name_existing_tests_or_reason() -> None:
    tests = set(re.findall(r"^def (test_\w+)", _texts("tests/**"), re.M))
    assert set(re.findall(r"`(test_\w+)`", PAGE)) <= tests
    started = re.findall(r"^\| [A-Z]+-\d\d", PAGE, re.M)
    rows = re.findall(r"^\| ([A-Z]+-\d\d[^|]*) \| (?:M|M\*|S/M|S|O|I|–) \| (?:=|M|I) \| (.*) \|$", PAGE, re.M)
    assert len(rows) == len(started) > 220
    for ids, cell in rows:
        assert re.search(r"`test_\w+`", cell) or len(cell) > 10, ids


def test_odf_page_has_a_row_for_every_requirement_that_binds() -> None:
    binding = set(re.findall(r"^\| ([A-Z]+-\d\d) \| (?:M|M\*|S/M|I) \|", REQUIREMENTS, re.M))
    rows = re.findall(r"^\| ([A-Z]+-\d\d[^|]*) \|", PAGE, re.M)
    assert len(binding) > 200
    assert binding <= {identifier for row in rows for identifier in re.findall(r"[A-Z]+-\d\d", row)}


def test_odf_page_lists_every_problem_code_and_rule() -> None:
    problems = re.findall(
        r'(?:Problem|broken|_note)\(\s*"(\w+)",\s*"([A-Z]+-\d+)"',
        _texts("operator/kubothek/odf/**"),
    )
    assert len(problems) > 40
    codes = set(re.findall(r"`([A-Z]\w+)`", PAGE))
    assert {code for code, _ in problems} <= codes
    for _, rule in problems:
        assert re.search(rf"\b{rule}\b", PAGE) or rule == "SA-01", rule  # optional, but what is there must be safe
