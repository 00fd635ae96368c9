"""``kubothek plan``: what a run would do."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from kubothek.cli.options import manifests_option


@click.command()
@manifests_option
def plan(manifests: tuple[Path, ...]) -> int:
    """Say what `run` would do, and why; change nothing.

    Reads the manifests, what earlier runs left, and the stores. An edit that is forbidden is refused here in the
    same words as by a cluster. Exit code 1 if anything stands in the way.
    """
    from kubothek.cli.forecast import Forecaster, Verb
    from kubothek.runtime.local.apply import apply, states_of
    from kubothek.runtime.local.manifests import load

    loaded = load(manifests)
    states = states_of(loaded, Path.cwd())
    applied = apply(loaded, states, datetime.now(UTC))
    with Forecaster(applied, Path.cwd()) as forecaster:
        steps = [step for key in applied.resources for step in forecaster.steps(key)]
    width = max((len(str(step.key)) for step in steps), default=0)
    for step in steps:
        click.secho(f"{step.verb.mark} {step.verb:<10}", fg=step.verb.color, nl=False)
        click.echo(f"{step.key!s:<{width}}  {step.why}")
    for key in applied.absent:
        click.echo(f"  left as it is: {key}, which is in no manifest any more")
    blocked = any(step.verb is Verb.BLOCKED for step in steps)
    return 1 if blocked else 0
