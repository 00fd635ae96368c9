"""``kubothek lint``: validation of manifests."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from kubothek.api.commit import Commit
from kubothek.api.dataset import Dataset
from kubothek.api.meta import Resource
from kubothek.cli.options import manifests_arguments
from kubothek.cli.output import show
from kubothek.cli.statements import wrong_statements
from kubothek.controller.validation.resource_set import Gathered
from kubothek.controller.validation.rules import findings
from kubothek.local.documents import ManifestError
from kubothek.local.manifests import Key, Manifests, read
from kubothek.words import count


@click.command()
@manifests_arguments
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "yaml", "csv", "github"]),
    default="table",
    help="github: annotations of a pull request.",
)
def lint(manifests: tuple[Path, ...], output: str) -> int:
    """Check manifests without access to a store or cluster.

    Reports all errors with file and line: fields that the schema or the rules of a kind refuse, SQL, filters and
    expressions that do not parse, and what a webhook would refuse. A reference to a resource in none of the files
    is a warning, as it may be in the cluster. Manifests of other API groups are skipped. Exit code 1 if there is an
    error.
    """
    resources, mistakes = check(manifests)
    errors = any(mistake.level == "error" for mistake in mistakes)
    if output in ("json", "yaml"):
        show(output, {"valid": not errors, "problems": _listed(mistakes)}, ())
    elif output == "csv":
        show(output, _listed(mistakes), ())
    elif output == "github":
        for mistake in mistakes:
            click.echo(_annotation(mistake))
    else:
        for mistake in mistakes:
            click.echo(f"{mistake.level}: {mistake.where}: {mistake.message}", err=True)
        if not errors:
            counts = Counter(key.kind for key in resources)
            text = ", ".join(count(number, kind) for kind, number in counts.items())
            click.echo(f"valid: {text}")
    return 1 if errors else 0


def _listed(mistakes: list[Mistake]) -> list[dict[str, object]]:
    return [
        {"level": m.level, "file": m.file, "line": m.line, "path": m.path, "reason": m.reason, "message": m.message}
        for m in mistakes
    ]


def _annotation(mistake: Mistake) -> str:
    """Return a workflow command of GitHub Actions, which shows the message next to the line."""
    where = f"file={_escaped(mistake.file, ':,')}" + (f",line={mistake.line}" if mistake.line else "")
    return f"::{mistake.level} {where},title={_escaped(mistake.reason, ':,')}::{_escaped(mistake.message)}"


def _escaped(text: str, more: str = "") -> str:
    for character in ("%", "\r", "\n", *more):
        text = text.replace(character, f"%{ord(character):02X}")
    return text


# All rules for manifests in files.


@dataclass(frozen=True, slots=True)
class Mistake:
    """One error or warning: where it is, and what to do."""

    level: Literal["error", "warning"]
    where: str
    """``file`` or ``file:line``"""
    path: str
    reason: str
    message: str
    """With kind and name of the resource, and the path of the field."""

    @property
    def file(self) -> str:
        """The file, without the line."""
        return re.sub(r":\d+$", "", self.where)

    @property
    def line(self) -> int | None:
        """The line, from 1; None if it is about the file."""
        found = re.search(r":(\d+)$", self.where)
        return int(found[1]) if found else None


def check(paths: Sequence[Path]) -> tuple[list[Key], list[Mistake]]:
    """Return the resources that are valid by themselves, and all errors and warnings.

    Warnings are left out while a manifest cannot be read: a missing resource may be in it.
    """
    try:
        manifests, problems = read(paths, others=True)
    except ManifestError as error:
        return [], [Mistake("error", problem.where, "", "InvalidSpec", problem.message) for problem in error.problems]
    mistakes = [Mistake("error", each.where, each.path, "InvalidSpec", each.message) for each in problems]
    together = [mistake for mistake in _together(manifests) if mistake.level == "error" or not problems]
    if not manifests.resources and not mistakes:
        where = " ".join(map(str, paths))
        mistakes.append(Mistake("error", where, "", "InvalidSpec", "no Kubothek manifests found"))
    return list(manifests.resources), [*mistakes, *sorted(together, key=lambda each: each.level)]


def _together(manifests: Manifests) -> Iterator[Mistake]:
    there = Gathered(manifests.resources.values(), manifests.bounds)
    for key, resource in manifests.resources.items():
        label = f"{key.kind} {key.name}"
        for path, why in wrong_statements(resource, _changed_dataset(manifests, resource)):
            reason = why.partition(":")[0]
            yield Mistake("error", manifests.where(key, path), path, reason, f"{label}: {path}: {why}")
        for found in findings(resource, there):
            where = manifests.where(key, found.path)
            level: Literal["error", "warning"] = "error" if found.denies else "warning"
            yield Mistake(level, where, found.path, found.reason, f"{label}: {found}")


def _changed_dataset(manifests: Manifests, resource: Resource) -> Dataset | None:
    """Return the Dataset that a Commit changes, if its manifest is there."""
    if not isinstance(resource, Commit) or resource.spec.dataset_ref is None:
        return None
    found = manifests.resources.get(Key("Dataset", resource.namespace, resource.spec.dataset_ref.name))
    return found if isinstance(found, Dataset) else None
