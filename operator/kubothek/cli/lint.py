"""``kubothek lint``: validation of manifests."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubothek.cli.options import manifests_arguments
from kubothek.cli.output import show
from kubothek.words import count

if TYPE_CHECKING:
    from kubothek.cli.lint_rules import Mistake


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

    Reports all errors with file and line: fields that the schema or the rules of a kind refuse, SQL and filters that do
    not parse, and what a webhook would refuse. A reference to a resource in none of the files is a warning, as it may
    be in the cluster. Manifests of other API groups are skipped. Exit code 1 if there is an error.
    """
    from kubothek.cli.lint_rules import check

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
            told = ", ".join(count(number, kind) for kind, number in counts.items())
            click.echo(f"valid: {told}")
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
