"""``kubothek chain``: the chain of a ledger as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kubothek.cli.complete import complete_dataset
from kubothek.cli.ledger.common import BY
from kubothek.cli.options import store_options
from kubothek.words import count

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice
    from kubothek.odf.dataset import Ledger
    from kubothek.storage import Store

_yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


@click.group()
def chain() -> None:
    """Compact or reset the chain of a ledger.

    Both create another chain of the same dataset: copies of the old chain have to be copied again as a whole.
    """


@chain.command()
@store_options
@click.argument("dataset", shell_complete=complete_dataset)
@_yes_option
def compact(choice: StoreChoice, dataset: str, yes: bool) -> None:
    """Rewrite the chain with fewer, larger slices: the same records at the same offsets. Both chains are verified."""
    with choice.opened() as store:
        root = _root(store, dataset)
        _ask(yes, f"rewrite the chain of {dataset}, {count(root.state.length, 'block')}")
        before, done = root.state.length, root.compact()
    if done.up_to_date:
        click.echo(f"{dataset}: nothing to compact")
    else:
        click.echo(f"{dataset}: version {done.version}: {count(before, 'block')} became {root.state.length:,}")


@chain.command()
@store_options
@click.argument("dataset", shell_complete=complete_dataset)
@click.argument("block")
@_yes_option
def reset(choice: StoreChoice, dataset: str, block: str, yes: bool) -> None:
    """Reset the chain and the table to BLOCK; later blocks are no longer part of the ledger.

    Older versions can be read as long as they are retained.
    """
    from kubothek.errors import FormatInvalid
    from kubothek.odf.spec.multihash import Multihash

    with choice.opened() as store:
        root = _root(store, dataset)
        try:
            wanted = Multihash.parse(block)
        except FormatInvalid as error:
            advice = f"`kubothek log --odf {dataset}` lists the blocks"
            raise click.BadParameter(f"{error}; {advice}", param_hint="BLOCK") from None
        _ask(yes, f"drop the blocks of {dataset} after {block}")
        done = root.reset(wanted)
    click.echo(f"{dataset}: version {done.version}: {count(root.state.length, 'block')}, up to {done.head}")


def _root(store: Store, dataset: str) -> Ledger:
    from kubothek.odf.dataset import Ledger
    from kubothek.table.log import DatasetLog

    return Ledger(store, DatasetLog(store, dataset, conditional_writes=store.probe().conditional_writes), by=BY)


def _ask(yes: bool, what: str) -> None:
    if not yes:
        click.confirm(f"{what}?", abort=True)
