"""What is documented exists: commands, options, fields, metrics, files and requirement ids, looked up one by one.

The texts are the pages, the charts' notes and rules, and the messages and docstrings of the code. Reasons and links are
looked up in test_pages.py, manifests on an API server in tests/cluster/test_documented_manifests.py.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click
import pytest
import yaml

from kubothek.api.kinds import KINDS
from kubothek.api.schema import structural_schema
from kubothek.cli.main import cli
from kubothek.kubectl.main import plugin
from tests.documented import ROOT
from tests.documented import pages as every_page

CODE = ROOT / "operator" / "kubothek"
GROUPS = {"kubothek": cli, "kubectl kubothek": plugin}
_PROGRAM = re.compile(r"(kubectl kubothek|kubothek)(?= )")
_END = re.compile(r"\s#|[|;&<>]|\$\(|…|\.\.\.(?!\w)|\bEOF\b")
"""Where a command line ends, or is no longer one that can be read."""


class Said(NamedTuple):
    """A text, and where it stands."""

    place: str
    text: str


def _pages() -> Iterator[Said]:
    for file in every_page():
        yield Said(str(file.relative_to(ROOT)), file.read_text())


@cache
def _code() -> tuple[Said, ...]:
    """Every text in the code: messages and docstrings, with the constant parts of those that are put together."""
    return tuple(
        Said(f"{file.relative_to(ROOT)}:{node.lineno}", text)
        for file in sorted(CODE.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.expr) and (text := _text(node))
    )


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "NAME" for part in node.values)
    return ""


def _charts() -> Iterator[Said]:
    for file in sorted((ROOT / "charts").rglob("*")):
        if file.suffix in (".yaml", ".tpl", ".txt", ".json"):
            yield Said(str(file.relative_to(ROOT)), file.read_text())


def _spans(said: Said) -> Iterator[Said]:
    """Inline code and fenced lines; lines that end with a backslash go on."""
    text = re.sub(r"\\\n\s*", " ", said.text)
    for block in re.finditer(r"^ *```.*\n((?:.*\n)*?) *```", text, re.MULTILINE):
        yield from (Said(said.place, line.strip().removeprefix("$ ")) for line in block[1].splitlines())
    prose = re.sub(r"^ *```.*\n(?:.*\n)*? *```", "", text, flags=re.MULTILINE)
    yield from (Said(said.place, " ".join(code.split())) for code in re.findall(r"`+([^`]+)`+", prose))


def _command_lines() -> Iterator[Said]:
    for said in _pages():
        for place, text in _spans(said):
            if _PROGRAM.match(text):
                yield Said(place, text)
    for said in _code():
        for found in re.finditer(r"`((?:kubectl )?kubothek [^`]+)`", said.text):
            yield Said(said.place, found[1])


def _unknown(line: str) -> str | None:
    """What in a command line does not exist."""
    program = _PROGRAM.match(line)
    assert program
    command: click.Command = GROUPS[program[1]]
    rest = _END.split(line[program.end() :])[0].replace("[", " ").replace("]", " ").strip()
    try:
        words = shlex.split(rest)
    except ValueError:
        words = rest.split()
    known = set(_options(command))
    for word in words:
        if word.startswith("--"):
            if (option := word.partition("=")[0]) not in known:
                return option
        elif isinstance(command, click.Group) and not word.startswith("-"):
            inner = command.get_command(click.Context(command), word)
            if inner is None:
                # ``kubothek --store URL get``, or the name of a thing that the group takes itself.
                if re.fullmatch(r"[a-z][a-z-]+", word) and not known & {
                    previous for previous in words if previous != word
                }:
                    return word
                continue
            command = inner
            known |= set(_options(command))
    return None


def _options(command: click.Command) -> Iterator[str]:
    yield from ("--help", "--version")
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)


def test_documented_commands_and_options_exist() -> None:
    lines = list(_command_lines())
    assert len(lines) > 200
    wrong = [f"{place}: `{text}`: no {what}" for place, text in lines if (what := _unknown(text)) is not None]
    assert not wrong, "\n".join(wrong)


def test_documented_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        (said.place, t) for page in _pages() for said in _spans(page) for t in re.findall(r"^make ([a-z-]+)", said.text)
    }
    assert len(named) > 10
    assert not {each for each in named if each[1] not in targets}


@cache
def _fields() -> dict[str, frozenset[str]]:
    """The paths of the fields of each kind, from ``spec``."""

    def below(schema: dict[str, object], at: str) -> Iterator[str]:
        yield at
        inner = schema.get("items", schema)
        assert isinstance(inner, dict)
        for name, field in inner.get("properties", {}).items():
            yield from below(field, f"{at}.{name}")
        if "additionalProperties" in inner or inner.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{at}.*"

    return {
        kind: frozenset(below(structural_schema(model.model_fields["spec"].annotation), "spec"))  # type: ignore[arg-type]
        for kind, model in KINDS.items()
    }


def _is_field(kind: str | None, path: str) -> bool:
    path = re.sub(r"\[[^\]]*\]", "", path)
    every = [_fields()[kind]] if kind else list(_fields().values())
    return any(path in fields or any(f"{path.rsplit('.', cut)[0]}.*" in fields for cut in (1, 2)) for fields in every)


def test_documented_fields_exist() -> None:
    pattern = re.compile(rf"(?:\b({'|'.join(KINDS)})\.|(?<![\w.]))(spec(?:\.[a-z][A-Za-z]+(?:\[\])?)+)")
    named = {
        (said.place, kind or None, path)
        for said in [*(code for page in _pages() for code in _spans(page)), *_code()]
        for kind, path in pattern.findall(said.text)
    }
    assert len(named) > 50
    wrong = sorted(
        f"{place}: {kind or ''} {path}"
        for place, kind, path in named
        if not _is_field(kind, path) and not _of_others(path)
    )
    assert not wrong, "\n".join(wrong)


def _of_others(path: str) -> bool:
    """A field of a kind that is not ours."""
    return path.split(".")[1] in OTHERS_FIELDS or path.rsplit(".", 1)[1] in _METHODS


_METHODS = {"all", "contains", "exists", "startsWith"}
"""Methods of CEL, behind a field."""
OTHERS_FIELDS = {"containers", "volumes", "nodeName", "serviceAccountName", "schedulingGates", "priorityClassName"}
"""Fields of a Pod's spec."""


def test_documented_metrics_exist() -> None:
    words = {said.text for said in _code() if re.fullmatch(r"[a-z]+(?:_[a-z]+)*", said.text)}
    known = {word for said in _code() for word in re.findall(r"\bkubothek_[a-z_]+[a-z]", said.text)}
    # ``f"kubothek_store_{name}"``: one of the words of the code is the name.
    composed = {
        re.sub("NAME", "([a-z_]+)", said.text) for said in _code() if re.fullmatch(r"kubothek_[a-zNAME_]+", said.text)
    }
    patterns = [re.compile(pattern) for pattern in composed if "(" in pattern]
    named = {
        (said.place, word)
        for said in [*_pages(), *_charts()]
        for word in re.findall(r"\b(kubothek_[a-z_]*[a-z])\b(?![-.*{])", said.text)
    }
    assert len(named) > 50

    def exists(word: str) -> bool:
        return word in known or any(
            set(found.groups()) <= words for each in patterns if (found := each.fullmatch(word))
        )

    ends = re.compile(r"_(bucket|sum|count|total|created)$")
    assert not sorted(
        f"{place}: {word}" for place, word in named if not exists(word) and not exists(ends.sub("", word))
    )


def test_documented_environment_variables_exist() -> None:
    files = [
        *CODE.rglob("*.py"),
        *ROOT.glob("tests/**/*.py"),
        *ROOT.glob("benchmarks/**/*.py"),
        *ROOT.glob("examples/*"),
    ]
    files += [*(ROOT / ".ci").iterdir(), *ROOT.glob("spark-images/**/*"), ROOT / "Makefile"]
    known = {w for f in files if f.is_file() for w in re.findall(r"KUBOTHEK_[A-Z_]+", f.read_text(errors="replace"))}
    named = {(said.place, word) for said in _pages() for word in re.findall(r"\bKUBOTHEK_[A-Z_]+\b", said.text)}
    assert named
    assert not {each for each in named if each[1] not in known}


def test_documented_file_paths_exist() -> None:
    """In pages, docstrings and comments: what looks like a path of the checkout."""
    pattern = re.compile(
        r"(?<![\w/.{*-])((?:operator|tests|docs|examples|charts|config|crds|benchmarks|spark-images|\.ci)/[\w./-]*\w)"
    )
    sources = [*CODE.rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "charts").rglob("*.yaml")]
    texts = [*_pages(), *(Said(str(file.relative_to(ROOT)), file.read_text()) for file in sources)]
    named = {(said.place, path) for said in texts for path in pattern.findall(said.text)}
    assert len(named) > 200
    wrong = [f"{place}: {path}" for place, path in sorted(named) if not _exists(Path(place), path)]
    assert not wrong, "\n".join(wrong)


def _exists(place: Path, path: str) -> bool:
    bases = (ROOT, ROOT / place.parent, ROOT / "operator")
    return any(
        (base / path).exists() or any(base.glob(path + ("*" if path.endswith("_") else "[-_.]*"))) for base in bases
    )


def test_documented_chart_values_exist() -> None:
    values = {
        name: yaml.safe_load((ROOT / "charts" / name / "values.yaml").read_text())
        for name in ("kubothek", "kubothek-gateway")
    }
    named = {
        (said.place, value)
        for page in [*_pages()]
        for said in _spans(page)
        if "helm" in said.text
        for value in re.findall(r"--set(?:-string|-json|-file)? '?([A-Za-z][\w.]*)", said.text)
    }
    assert named
    assert not [each for each in named if not any(_has(chart, each[1].split(".")) for chart in values.values())]


def _has(values: object, path: list[str]) -> bool:
    if not path or values in ({}, None):
        return True
    return isinstance(values, dict) and path[0] in values and _has(values[path[0]], path[1:])


def test_cited_requirements_exist() -> None:
    texts = set(
        re.findall(r"^\| ([A-Z]{2,4}-\d\d) \|", (ROOT / "docs" / "odf-requirements.md").read_text(), re.MULTILINE)
    )
    prefixes = {text.partition("-")[0] for text in texts}
    sources = [*CODE.rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "docs").rglob("*.md")]
    cited = {
        (str(file.relative_to(ROOT)), identifier)
        for file in sources
        for identifier in re.findall(r"(?<![\w-])([A-Z]{2,4}-\d\d)(?!\d)", file.read_text())
        if identifier.partition("-")[0] in prefixes
    }
    assert len({identifier for _, identifier in cited}) > 200
    assert not {each for each in cited if each[1] not in texts}


@pytest.mark.parametrize("pattern", [r"\b[a-z]+-facts\b", r"\bdecisions? (\d+)\b"])
def test_cited_documents_exist(pattern: str) -> None:
    decisions = {int(file.name[:4]) for file in (ROOT / "docs" / "decisions").glob("[0-9]*.md")}
    sources = [*CODE.rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "docs").rglob("*.md")]
    for file in sources:
        if file == Path(__file__):
            continue
        for found in re.findall(pattern, file.read_text()):
            assert found.isdigit(), f"{file.relative_to(ROOT)} cites {found}, which is not in the repository"
            assert int(found) in decisions, f"{file.relative_to(ROOT)} cites decision {found}"
