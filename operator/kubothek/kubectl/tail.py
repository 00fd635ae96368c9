"""``kubectl kubothek tail``: follows a run to its end."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from kubothek.kubectl.acting import existing
from kubothek.kubectl.cluster import Cluster, ClusterProblem, cluster_options
from kubothek.kubectl.naming import Named, ResourceName

if TYPE_CHECKING:
    from kubothek.api.meta import Resource
    from kubothek.cluster.api import Api

_CHECK_SECONDS = 1.0
"""Seconds between two requests: jobs report progress less often."""


@click.command()
@click.argument("resource", type=ResourceName("Commit"), metavar="KIND/NAME")
@cluster_options
def tail(resource: Named, cluster: Cluster) -> int:
    """Follow a run, or any other resource, until it ends or is ready.

    Shows a progress bar on a terminal, a line for each change elsewhere. Exit code 0 if it succeeded, 1 if it failed or
    cannot continue by itself.
    """
    return cluster.run(lambda api, namespace: _follow(api, namespace, resource))


async def _follow(api: Api, namespace: str, named: Named) -> int:
    from kubothek.api.conditions import state_of
    from kubothek.cli.display import display
    from kubothek.local.summary import Phase, summarise

    seen = await _fetch(api, namespace, named)
    with display([]) as screen:
        while True:
            summary = summarise(seen)
            screen.update(seen)
            if summary.phase.fine or summary.phase is Phase.FAILED:
                break
            await asyncio.sleep(_CHECK_SECONDS)
            seen = await _fetch(api, namespace, named)
    state = state_of(seen.status)
    if state is not None and not sys.stdout.isatty():
        click.echo(f"{named} {summary.phase}: {summary.message}")
    return 0 if summary.phase.fine else 1


async def _fetch(api: Api, namespace: str, named: Named) -> Resource:
    from kubothek.api.kinds import InvalidResource, parse

    try:
        return parse(await existing(api, namespace, named))
    except InvalidResource as error:
        raise ClusterProblem(f"{named} is of another release than this command: {error}") from None
