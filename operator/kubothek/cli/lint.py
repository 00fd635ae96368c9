"""``kubothek lint``: are these manifests valid?"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubothek.cli.options import manifests_arguments
from kubothek.words import count

if TYPE_CHECKING:
    from kubothek.cli.lint_rules import Mistake


@click.command()
@manifests_arguments
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    help="json: one object; github: annotations of a pull request.",
)
def lint(manifests: tuple[Path, ...], output: str) -> int:
    """Check manifests without looking at any store or cluster.

    Everything that is wrong is told at once, with file and line: what the schema and the rules of the kinds refuse,
    and what a webhook would refuse of them together. A reference to what is in none of the files is a warning only,
    as it may be in the cluster. Manifests of other API groups are passed over. Exit code 1 if there is an error.
    """
    from kubothek.cli.lint_rules import check

    resources, mistakes = check(manifests)
    errors = any(mistake.level == "error" for mistake in mistakes)
    if output == "json":
        _as_json(mistakes, valid=not errors)
    elif output == "github":
        for mistake in mistakes:
            click.echo(_annotation(mistake))
    else:
        for mistake in mistakes:
            click.echo(f"{mistake.level}: {mistake.where}: {mistake.message}", err=True)
        if not errors:
            counts = Counter(key.kind for key in resources)
            told = ", ".join(count(number, kind) for kind, number in counts.items())
            click.echo(f"valid: {told or 'nothing but Secrets'}")
    return 1 if errors else 0


def _as_json(mistakes: list[Mistake], *, valid: bool) -> None:
    import orjson

    listed = [
        {"level": m.level, "file": m.file, "line": m.line, "path": m.path, "reason": m.reason, "message": m.message}
        for m in mistakes
    ]
    click.echo(orjson.dumps({"valid": valid, "problems": listed}, option=orjson.OPT_INDENT_2))


def _annotation(mistake: Mistake) -> str:
    """A workflow command of GitHub Actions, which shows the message beside the line."""
    where = f"file={_escaped(mistake.file, ':,')}" + (f",line={mistake.line}" if mistake.line else "")
    return f"::{mistake.level} {where},title={_escaped(mistake.reason, ':,')}::{_escaped(mistake.message)}"


def _escaped(text: str, more: str = "") -> str:
    for character in ("%", "\r", "\n", *more):
        text = text.replace(character, f"%{ord(character):02X}")
    return text
