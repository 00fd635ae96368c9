"""Shell completion: the script of each shell, and the names of resources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from kubothek.kubectl.cluster import Cluster, ClusterProblem

if TYPE_CHECKING:
    from kubothek.cluster.api import Api


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes the words of `kubothek` in a shell.

    For bash: `source <(kubectl kubothek completion bash)`. Words of `kubectl kubothek` are completed by kubectl's own
    completion, which finds `kubectl_complete-kubothek` beside this program.
    """
    from click.shell_completion import get_completion_class

    from kubothek.cli.main import cli

    found = get_completion_class(shell)
    assert found is not None, "click has one for each choice"
    click.echo(found(cli, {}, "kubothek", "_KUBOTHEK_COMPLETE").source())


def names(context: click.Context, kind: str) -> Sequence[str]:
    """Return the names of the resources of a kind; empty if the cluster does not answer."""
    given = context.params
    cluster = Cluster(given.get("kubeconfig"), given.get("context"), given.get("namespace"))

    async def listed(api: Api, namespace: str) -> list[str]:
        return [obj["metadata"]["name"] async for page, _ in api.pages(kind, namespace) for obj in page]

    try:
        return cluster.run(listed)
    except ClusterProblem:
        return []
