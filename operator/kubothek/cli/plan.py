"""``kubothek plan``: what a run would do."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubothek.cli.options import manifests_option
from kubothek.cli.output import output_option, show
from kubothek.cli.run import report_foreign
from kubothek.words import count

if TYPE_CHECKING:
    from kubothek.cli.steps import Step


@click.command()
@manifests_option
@output_option()
@click.option("-v", "--verbose", is_flag=True, help="Also list resources of earlier runs that these manifests lack.")
def plan(manifests: tuple[Path, ...], output: str, verbose: bool) -> int:
    """Show what `run` would do, and why; change nothing.

    Reads the manifests, the state of earlier runs, and the stores. Refuses a forbidden edit with the message of a
    cluster. Manifests of other API groups are skipped. Exit code 1 if a resource is blocked.
    """
    from kubothek.cli.plan_jobs import PlannedJobs
    from kubothek.cli.plan_steps import steps_of
    from kubothek.cli.steps import Verb
    from kubothek.local.apply import apply, states_of
    from kubothek.local.dry_run import DryRun
    from kubothek.local.manifests import load

    loaded, now = load(manifests), datetime.now(UTC)
    report_foreign(loaded)
    applied = apply(loaded, states_of(loaded, Path.cwd()), now)
    with ExitStack() as held:
        jobs = PlannedJobs(applied, Path.cwd(), held, now)
        dry_run = DryRun(applied, jobs.simulate, now)
        dry_run.run()
    steps = list(steps_of(applied, dry_run.objects, jobs.outlooks))
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
