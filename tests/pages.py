"""``python -m tests.pages`` (`make pages`): what in docs/ is made from the code, written into the pages.

docs/kinds/*.md have the fields of each kind, docs/reasons.md what jobs report, docs/python.md the Python API,
docs/decisions/README.md the index of decisions, docs/architecture.md the journeys of tests/layout, between a pair of
markers each: ``<!-- fields -->`` … ``<!-- end -->``. tests/test_pages.py says when the code has moved on.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import kubothek.errors
from kubothek.api.kinds import KINDS
from kubothek.api.schema import structural_schema
from kubothek.errors import LakeError
from kubothek.odf.sync.smart import messages
from kubothek.spark import errors as spark_errors
from tests.documented import ROOT
from tests.layout.journeys import JOURNEYS, Sources, modules, steps
from tests.python_page import reference

CODE = ROOT / "operator" / "kubothek"
DECISIONS = ROOT / "docs" / "decisions"
DECISION = re.compile(r"# (\d+)\. (.+)\n\nStatus: (\w+)\. Date: (\d{4}-\d\d-\d\d)\.\n\n")
REASON = re.compile(r"[A-Z][A-Za-z]+[a-z]")
_WHEN = re.compile(r"(Immutable|A job on edit|Takes effect ([^.]+))\. ?")
_STATES: Final = {"ready", "progressing", "waiting", "stalled", "resting", "complete", "failed", "problem_text"}
_TELLING: Final = _STATES | {
    "Finding",
    "Refused",
    "Setback",
    "_kept",
    "_failed",
    "failed_view",
    "view_of",
    "_denied",
    "JobResult",
    "_given_up",
}
_TOLD_IN: Final = ("controller", "jobs/outcome.py", "cluster")
_TABLES: Final = (
    "cluster/pod_status/pod_facts.py",
    "cluster/pod_status/unfinished.py",
    "cluster/pod_status/outcome.py",
    "cluster/launch.py",
    "controller/scheduling/launching.py",
)
"""Modules with tables of reasons."""
_NO_REASONS: Final = frozenset(
    {
        "CommitNotFound",
        "ContainerCannotRun",
        "FailedAttachVolume",
        "FailedCreatePodSandBox",
        "FailedMount",
        "NodeShutdown",
    }
    | {"ConfigMap", "Normal", "Pod", "Preempting", "Shutdown", "StartError", "Warning"}
)
"""Words of Kubernetes in the same places: kinds, types of events, what nodes say of pods."""
_AT: Final = {
    "ObjectStore": "at the next inspection",
    "Engine": "at the next job",
    "GCPolicy": "at the next job",
    "SkippingIndex": "at the next inspection",
}
"""When an edit takes effect, where the fields do not say it themselves."""


def page(kind: str) -> Path:
    """The page of a kind."""
    return ROOT / "docs" / "kinds" / f"{kind.lower()}.md"


def pages() -> dict[Path, str]:
    """Each page with a part that is made, as it should be."""
    made = {page(kind): _filled(page(kind), "fields", fields(kind)) for kind in KINDS}
    reasons = ROOT / "docs" / "reasons.md"
    python = ROOT / "docs" / "python.md"
    made[python] = _filled(python, "python", reference())
    index = DECISIONS / "README.md"
    made[index] = _filled(index, "decisions", decisions())
    architecture = ROOT / "docs" / "architecture.md"
    followed = architecture.read_text()
    for name in ("Commit", "Query"):
        followed = _with(architecture, followed, f"follow {name}", journey(name))
    return made | {reasons: _filled(reasons, "reported", reported()), architecture: followed}


def _filled(file: Path, marker: str, text: str) -> str:
    return _with(file, file.read_text(), marker, text)


def _with(file: Path, page: str, marker: str, text: str) -> str:
    before, start, rest = page.partition(f"<!-- {marker} -->\n")
    _, end, after = rest.partition("<!-- end -->")
    assert start, f"{file} lacks the markers of {marker}"
    assert end, f"{file} lacks the markers of {marker}"
    return f"{before}{start}\n{text}\n{end}{after}"


def decisions() -> str:
    """The decisions as a table: number, title, status and date. Raises AssertionError for one without a header."""
    rows = []
    for file in sorted(DECISIONS.glob("[0-9]*.md")):
        header = DECISION.match(file.read_text())
        assert header, f"{file.name} has to begin with `# NUMBER. TITLE` and `Status: WORD. Date: YYYY-MM-DD.`"
        assert int(header[1]) == int(file.name[:4]), f"{file.name} has the number {header[1]} in its title"
        rows.append(f"| {header[1]} | [{header[2]}]({file.name}) | {header[3]} | {header[4]} |")
    return "\n".join(["| | decision | status | date |", "|---|---|---|---|", *rows])


def journey(name: str) -> str:
    """The modules of a journey as a table: what each is for, and which of its functions to open."""
    sources, found = Sources(CODE), steps(JOURNEYS[name])
    rows = []
    for module in modules(found):
        opened = ", ".join(f"`{step.name}`" for step in found if step.module == module)
        purpose = sources.purpose(module).replace("``", "`")
        rows.append(f"| `{module.replace('.', '/')}.py` | {_cell(purpose)} | {opened} |")
    return "\n".join(["| module | what it does | open |", "|---|---|---|", *rows])


def fields(kind: str) -> str:
    """The fields of a spec as a table: place, type, default, when an edit takes effect, and what it says."""
    schema = structural_schema(KINDS[kind].model_fields["spec"].annotation)  # type: ignore[arg-type]
    rows = [" | ".join(row) for row in _fields(schema, "", _AT.get(kind, "at once"))]
    return "\n".join(["| field | of | an edit | |", "|---|---|---|---|", *(f"| {row} |" for row in rows)])


def _fields(schema: Mapping[str, Any], at: str, when: str) -> Iterator[tuple[str, str, str, str]]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        place = f"{at}{name}"
        text = str(field.get("description", ""))
        found = _WHEN.match(text)
        edit = when if found is None else (found[2] or found[1].lower())
        said = _cell(text[found.end() :] if found is not None else text)
        if name in required:
            said = f"**required.** {said}".strip()
        elif "default" in field and not isinstance(field["default"], dict):
            value = _plain(field["default"])
            told = re.sub(rf"(?:^|;|(?<=\.)) ?default: {re.escape(value)}(?=\.|$)", "", said, flags=re.IGNORECASE)
            said = f"{told.replace('..', '.')} Default: `{value}`".strip()
        yield f"`{place}`", _type(field), edit, said
        inner, below = (field.get("items", {}), "[]") if field.get("type") == "array" else (field, "")
        yield from _fields(inner, f"{place}{below}.", edit)


def _type(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field.get("x-kubernetes-int-or-string"):
        return "quantity"
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}" if "properties" not in field["items"] else "list"
    if "duration" in str(field.get("pattern", "")) or str(field.get("pattern", "")).startswith(
        "^([0-9]+(\\.[0-9]+)?(ms"
    ):
        return "duration"
    return str(field.get("type", "any"))


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _cell(text: str) -> str:
    """Text for a cell of a table; inside of code, Markdown shows ``<`` as it is."""
    parts = text.replace("|", "\\|").split("`")
    return "`".join(part if at % 2 else part.replace("<", "&lt;") for at, part in enumerate(parts)).strip()


def reported() -> str:
    """The reasons of errors that jobs end with, from the classes that raise them."""
    rows = [f"| `{reason}` | {_cell(text)} |" for reason, text in sorted(errors().items())]
    return "\n".join(["| reason | |", "|---|---|", *rows])


def errors() -> dict[str, str]:
    """What each class of errors says of itself, by its reason."""
    found: dict[str, str] = {}
    for module in (kubothek.errors, messages, spark_errors):
        for each in vars(module).values():
            if isinstance(each, type) and issubclass(each, LakeError) and each.__module__ == module.__name__:
                # A subclass may keep the reason of its base, which says more.
                found.setdefault(each.reason, " ".join((each.__doc__ or "").replace("``", "`").split()))
    # Bases, which nothing is raised as.
    return {reason: text for reason, text in found.items() if reason not in ("LakeError", "StoreError", "CommitError")}


def told() -> set[str]:
    """Every reason that the operator itself puts into a condition or an event, as its code has them."""
    found = {f"{kind}NotFound" for kind in ("ObjectStore", "Dataset", "Cube", "Engine", "Repository", "Commit")}
    for place in _TOLD_IN:
        for file in [CODE / place] if place.endswith(".py") else sorted((CODE / place).rglob("*.py")):
            tree = ast.parse(file.read_text())
            tables = str(file.relative_to(CODE)) in _TABLES
            for node in ast.walk(tree):
                found |= set(_of_call(node)) | (set(_of_table(node)) if tables else set())
    return found - _NO_REASONS


def _of_call(node: ast.AST) -> Iterator[str]:
    if not isinstance(node, ast.Call):
        return
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    if name in _TELLING or name == "Event":
        yield from (text for each in node.args[:4] for text in _constants(each))
    yield from (
        text for keyword in node.keywords if keyword.arg in ("reason", "stalled") for text in _constants(keyword.value)
    )


def _of_table(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Tuple | ast.Dict):
        for each in node.elts if isinstance(node, ast.Tuple) else (*node.keys, *node.values):
            yield from _constants(each)


def _constants(node: ast.AST | None) -> Iterator[str]:
    nodes = [node.body, node.orelse] if isinstance(node, ast.IfExp) else [node]
    for each in nodes:
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and REASON.fullmatch(each.value):
            yield each.value


def main() -> None:
    """Write the pages."""
    for file, text in pages().items():
        file.write_text(text)


if __name__ == "__main__":
    main()
