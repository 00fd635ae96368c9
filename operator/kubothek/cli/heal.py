"""``kubothek heal``: rebuild what is derived from the data of a dataset, and report lost files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kubothek.cli.complete import complete_dataset
from kubothek.cli.options import writing_options
from kubothek.cli.output import output_option, show

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice


@click.command()
@writing_options
@click.argument("dataset", shell_complete=complete_dataset)
@click.option("--restore-view", is_flag=True, help="Rebuild the table of a ledger from its chain.")
@click.option("--keep-own", is_flag=True, help="Set refs/head of a ledger to its own last block: resolves Diverged.")
@output_option()
@click.pass_context
def heal(
    ctx: click.Context, choice: StoreChoice, dataset: str, restore_view: bool, keep_own: bool, output: str
) -> None:
    """Rebuild what is missing or outdated and can be derived from the data of a dataset.

    This is: the schema and its copy for other libraries, markers of commits, checkpoints of the history, indices,
    skipping metadata, and the Iceberg metadata that commits export. Lost data files cannot be rebuilt: they are listed
    with the versions that need them and the newest complete version, and the exit code is 1. Safe to run beside
    readers and writers. With --restore-view, the table of a ledger is rebuilt from its chain, and changes by other
    programs are dropped. With --keep-own, refs/head of a ledger no longer names the blocks of another program; these
    stay in the store until garbage collection.
    """
    from kubothek.table.log import DatasetLog
    from kubothek.table.maintenance import heal as heal_dataset

    lines, last_block, restored = [], None, None
    with choice.opened() as store:
        log = DatasetLog(store, dataset, conditional_writes=store.probe().conditional_writes)
        author = choice.lake(store).author
        if keep_own or restore_view:
            from kubothek.odf.dataset import Ledger

            ledger = Ledger(store, log, by=author)
            if keep_own:
                last_block = ledger.keep_own()
                lines.append(f"{dataset}: refs/head names block {last_block}, the last one of this dataset")
            if restore_view:
                restored = ledger.restore_view().version
                lines.append(f"{dataset}: version {restored}: the table is rebuilt from the chain")
        healed = heal_dataset(store, log, by=author)
    if healed.repaired or not (restore_view or keep_own):
        repaired = f"repaired: {', '.join(healed.repaired)}" if healed.repaired else "nothing to repair"
        lines.append(f"{dataset}: {repaired}")
    found = {
        "dataset": dataset,
        "repaired": list(healed.repaired),
        "lastBlock": last_block,
        "restoredVersion": restored,
        "corrupt": healed.corrupt,
    }
    show(output, found, lines)
    if healed.corrupt is not None:
        click.echo(f"error: Corrupt: {dataset}: {healed.corrupt}", err=True)
        ctx.exit(1)
