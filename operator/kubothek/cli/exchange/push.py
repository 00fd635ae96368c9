"""``kubothek push NAME URL``: push of a dataset to another party."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kubothek.cli.complete import complete_dataset
from kubothek.cli.exchange.remotes import remember, remembered
from kubothek.cli.exchange.tokens import token_for
from kubothek.cli.ledger.common import BY, elsewhere
from kubothek.cli.options import store_options
from kubothek.words import count

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice


@click.command()
@store_options
@click.argument("dataset", shell_complete=complete_dataset)
@click.argument("url", metavar="[URL]", required=False)
@click.option("--no-alias", is_flag=True, help="Do not remember the URL for this dataset.")
@click.option("--force", is_flag=True, help="Drop blocks that only the URL has.")
def push(choice: StoreChoice, dataset: str, url: str | None, no_alias: bool, force: bool) -> None:
    """Push a ledger's new blocks to a URL.

    odf+https:// is a gateway, which creates the dataset if it does not exist and you have the right; s3:// and file://
    are the layout of the simple protocol. Blocks that only the URL has are kept unless you pass --force. Without a URL,
    the last one that the dataset was pushed to is used.
    """
    from kubothek.cli.exchange.progress import shown
    from kubothek.odf.dataset import Root
    from kubothek.odf.named import fetched_text, missing_text
    from kubothek.odf.sync import Reach, Relation, push_remote
    from kubothek.storage import StoreConfig
    from kubothek.storage.urls import create_directory
    from kubothek.table.log import DatasetLog

    with choice.opened() as store, shown() as report:
        known = url or remembered(store.url, dataset, "push")
        if known is None:
            raise click.UsageError(f"{dataset} was never pushed from here: pass a URL")
        url = elsewhere(known)
        create_directory(StoreConfig(url))
        root = Root(store, DatasetLog(store, dataset), by=BY)
        reach = Reach(token=token_for(url), endpoint=choice.endpoint, region=choice.region)
        done = push_remote(root, url, reach=reach, force=force, told=report)
        if not no_alias:
            remember(store.url, dataset, "push", url)
    if done.relation is Relation.EQUAL:
        more = fetched_text(done.objects, "sent") + missing_text(done.missing)
        click.echo(f"{dataset}: nothing new for {url}{more}")
        return
    made = "created there, " if done.created else ""
    sent = f"{count(done.blocks, 'block')} and {count(done.objects, 'object')} sent"
    click.echo(f"{dataset}: {made}{sent}, up to {done.head}{missing_text(done.missing)}")
