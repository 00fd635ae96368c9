"""``kubectl kubothek plan``: what applying manifests to a cluster would do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubothek.cli.options import manifests_arguments
from kubothek.kubectl.cluster import Cluster, cluster_options

if TYPE_CHECKING:
    from kubothek.kubectl.proposing import Proposal

REFUSED = 1
"""Exit code: at least one manifest is refused."""
COSTLY = 3
"""Exit code: everything can be applied, but data is deleted, rewritten or rebuilt."""

_SHOWN = {
    "create": ("+ create", "green"),
    "change": ("~ change", "yellow"),
    "keep": ("= as it is", "bright_black"),
    "delete": ("- delete", "red"),
    "refuse": ("! refused", "red"),
}


@click.command()
@manifests_arguments
@cluster_options
@click.option("--prune", metavar="SELECTOR", default="", help="Labels of what goes when no manifest has it any more.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def plan(manifests: tuple[Path, ...], cluster: Cluster, prune: str, output: str) -> int:
    """Show what applying manifests would do, and the consequences for the data; change nothing.

    The API server receives each manifest as a dry run, and applies its rules, webhooks and roles. What would be
    rewritten, rebuilt or deleted is derived from the statuses. Manifests of other API groups are skipped.

    Exit code 0: can be applied. 1: something is refused. 3: can be applied, but data is deleted, rewritten or rebuilt.
    """
    from kubothek.kubectl.proposing import proposals
    from kubothek.local.documents import ManifestError
    from kubothek.local.manifests import read

    loaded, problems = read(manifests, others=True)
    if problems:
        raise ManifestError(problems)
    found = cluster.run(lambda api, namespace: proposals(api, loaded, namespace, prune))
    if output == "json":
        _as_json(found)
    else:
        _as_text(found)
    if any(each.action == "refuse" for each in found):
        return REFUSED
    return COSTLY if any(told.effect.costly for each in found for told in each.consequences) else 0


def _as_text(found: Sequence[Proposal]) -> None:
    width = max((len(str(each.key)) for each in found), default=0)
    for each in found:
        mark, color = _SHOWN[each.action]
        click.secho(f"{mark:<10}", fg=color, nl=False)
        click.echo(f"  {each.key!s:<{width}}  {each.where}".rstrip())
        for change in each.changes:
            effect = f" ({change.effect})" if change.effect else ""
            click.echo(f"    {change.path}: {_text(change.before)} → {_text(change.after)}{effect}")
        for told in each.consequences:
            click.secho(f"    {told.effect}: ", fg="red" if told.effect.costly else None, nl=False)
            click.echo(told.told)
        for problem in each.problems:
            click.echo(f"    {'refused' if each.action == 'refuse' else 'warning'}: {problem}")
    counts = ((sum(each.action == action for each in found), action) for action in _SHOWN)
    click.echo(", ".join(f"{number} to {action}" for number, action in counts if number) or "nothing to do")


def _as_json(found: Sequence[Proposal]) -> None:
    import orjson

    listed = [
        {
            "action": each.action,
            "kind": each.key.kind,
            "namespace": each.key.namespace,
            "name": each.key.name,
            "manifest": each.where,
            "changes": [
                {"path": change.path, "before": change.before, "after": change.after, "effect": change.effect}
                for change in each.changes
            ],
            "consequences": [{"effect": told.effect, "message": told.told} for told in each.consequences],
            "problems": list(each.problems),
        }
        for each in found
    ]
    click.echo(orjson.dumps({"resources": listed}, option=orjson.OPT_INDENT_2))


def _text(value: object) -> str:
    import orjson

    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
