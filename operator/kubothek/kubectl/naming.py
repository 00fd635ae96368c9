"""Arguments of the form ``KIND/NAME``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from kubothek.kubectl.cluster import Cluster, ClusterProblem

if TYPE_CHECKING:
    from kubothek.cluster.api import Api


_SHORT: Final = {
    "kos": "ObjectStore",
    "keng": "Engine",
    "kcube": "Cube",
    "kds": "Dataset",
    "kcm": "Commit",
    "kq": "Query",
    "kcp": "Compaction",
    "kver": "Verification",
    "kgc": "GCPolicy",
    "ksi": "SkippingIndex",
    "krepo": "Repository",
    "ksync": "Sync",
}


class Named(NamedTuple):
    """Reference to a resource by kind and name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.lower()}/{self.name}"


def kind_of(word: str) -> str | None:
    """Return the kind that ``commit``, ``commits``, ``kcm`` or ``Commit`` stands for, or None."""
    from kubothek.cluster.api import RESOURCES

    word = word.lower().partition(".")[0]
    for kind in _SHORT.values():
        if word in (kind.lower(), RESOURCES[kind][1]):
            return kind
    return _SHORT.get(word)


class ResourceName(click.ParamType[Named]):
    """``KIND/NAME``, or ``NAME`` if the parameter has a default kind."""

    name = "resource"

    def __init__(self, kind: str | None = None) -> None:
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Named:
        """Return the reference. Fails for an unknown kind."""
        if isinstance(value, Named):
            return value
        word, slash, name = str(value).rpartition("/")
        if not slash and self._kind is not None:
            return Named(self._kind, name)
        kind = kind_of(word) if slash else None
        if kind is None or not name:
            self.fail(f"{value!r} is no KIND/NAME, such as commit/january; kinds are {', '.join(_SHORT.values())}")
        return Named(kind, name)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """Return kinds; after a kind, or with a default one, the names in the cluster, if it answers."""
        from click.shell_completion import CompletionItem

        word, slash, _ = incomplete.rpartition("/")
        kind = kind_of(word) if slash else self._kind
        if kind is None:
            kinds = (f"{each.lower()}/" for each in _SHORT.values())
            return [CompletionItem(each) for each in kinds if each.startswith(incomplete)]

        found = (f"{word}{slash}{name}" for name in names(ctx, kind))
        return [CompletionItem(each) for each in found if each.startswith(incomplete)]


# Shell completion: the script of each shell, and the names of resources.


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
