"""``kubothek plan``: what a run would do."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubothek.cli.options import manifests_option
from kubothek.cli.output import output_option, show
from kubothek.cli.run import tell_foreign
from kubothek.words import count

if TYPE_CHECKING:
    from kubothek.api.meta import Resource
    from kubothek.cli.steps import Step
    from kubothek.local.manifests import Key


@click.command()
@manifests_option
@output_option()
@click.option("-v", "--verbose", is_flag=True, help="Also list resources of earlier runs that these manifests lack.")
def plan(manifests: tuple[Path, ...], output: str, verbose: bool) -> int:
    """Show what `run` would do, and why; change nothing.

    Reads the manifests, the state of earlier runs, and the stores. Refuses a forbidden edit with the message of a
    cluster. Manifests of other API groups are skipped. Exit code 1 if a resource is blocked.
    """
    from kubothek.cli.forecast import Forecaster
    from kubothek.cli.steps import Verb
    from kubothek.local.apply import apply, states_of
    from kubothek.local.manifests import load

    loaded = load(manifests)
    tell_foreign(loaded)
    states = states_of(loaded, Path.cwd())
    applied = apply(loaded, states, datetime.now(UTC))
    with Forecaster(applied, Path.cwd()) as forecaster:
        steps = [step for key in _in_order(applied.resources) for step in forecaster.steps(key)]
    absent = list(applied.absent)
    if output in ("table", "wide"):
        width = max((len(str(step.key)) for step in steps), default=0)
        for step in steps:
            click.secho(f"{step.verb.mark} {step.verb:<10}", fg=step.verb.color, nl=False)
            click.echo(f"{step.key!s:<{width}}  {step.why}")
        if verbose:
            for key in absent:
                click.echo(f"  unchanged: {key} is not in these manifests")
        elif absent:
            click.echo(f"{count(len(absent), 'resource')} of earlier runs not in these manifests: --verbose lists them")
    else:
        show(output, [_object(step) for step in steps], ())
    blocked = any(step.verb is Verb.BLOCKED for step in steps)
    return 1 if blocked else 0


def _object(step: Step) -> dict[str, str]:
    key = step.key
    return {
        "kind": key.kind,
        "namespace": key.namespace,
        "name": key.name,
        "action": str(step.verb),
        "reason": step.why,
    }


def _in_order(resources: Mapping[Key, Resource]) -> list[Key]:
    """Return the keys by kind; Commits and Queries after the Commits that they depend on."""
    from kubothek.api.commit import Commit
    from kubothek.api.query import Query
    from kubothek.local.manifests import Key

    needs = {
        key: [Key("Commit", key.namespace, reference.name) for reference in resource.spec.depends_on]
        for key, resource in resources.items()
        if isinstance(resource, Commit | Query)
    }
    depth: dict[Key, int] = {}
    try:
        for key in TopologicalSorter(needs).static_order():
            depth[key] = 1 + max((depth[other] for other in needs.get(key, ())), default=0)
    except CycleError:  # the run reports it for these Commits
        return list(resources)
    kinds = {kind: number for number, kind in enumerate(dict.fromkeys(key.kind for key in resources))}
    return sorted(resources, key=lambda key: (kinds[key.kind], depth.get(key, 0)))
