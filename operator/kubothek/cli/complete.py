"""Shell completion of names: datasets, cubes and kinds."""

from __future__ import annotations

from collections.abc import Iterable

import click

KINDS = (
    "datasets",
    "cubes",
    "commits",
    "queries",
    "compactions",
    "verifications",
    "gcpolicies",
    "skippingindices",
    "repositories",
    "syncs",
    "objectstores",
)


def complete_dataset(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the datasets of the store on the command line; none if it cannot be reached."""
    return _starting(_names(ctx, cubes=False), incomplete)


def complete_cube(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the cubes of the store on the command line."""
    return _starting(_names(ctx, cubes=True), incomplete)


def complete_get(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return kinds and datasets; cubes after ``cubes``."""
    given = ctx.params.get("what") or ()
    if given[:1] == ("cubes",):
        return _starting(_names(ctx, cubes=True), incomplete)
    return _starting((*(() if given else KINDS), *_names(ctx, cubes=False)), incomplete)


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _names(ctx: click.Context, *, cubes: bool) -> list[str]:
    from kubothek.catalog import Lake
    from kubothek.cli.stores import StoreChoice

    fields = ("store", "manifests", "store_name", "endpoint", "region", "keys_dir")
    store, manifests, *others = (ctx.params.get(field) for field in fields)
    try:
        with StoreChoice(store, tuple(manifests or ()), *others).opened() as opened:
            lake = Lake(opened)
            return list(lake.cubes() if cubes else lake.datasets())
    except Exception:  # noqa: BLE001 - a shell cannot show an error here
        return []


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    r"""Print the script that completes commands, options and names of datasets in a shell.

    \b
    bash: source <(kubothek completion bash)      in ~/.bashrc
    zsh:  source <(kubothek completion zsh)       in ~/.zshrc
    fish: kubothek completion fish | source       in ~/.config/fish/config.fish
    """
    from click.shell_completion import ShellComplete, get_completion_class

    found = get_completion_class(shell)
    assert found is not None, "click knows these three"
    script = ShellComplete.source(found(ctx.find_root().command, {}, "kubothek", "_KUBOTHEK_COMPLETE"))
    click.echo(script)
