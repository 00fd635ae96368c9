"""``kubothek pull URL --as NAME``: a dataset of another party."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kubothek.cli.exchange.remotes import remember, remembered
from kubothek.cli.exchange.tokens import token_for
from kubothek.cli.ledger.common import BY, elsewhere, writable_log
from kubothek.words import count

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice
    from kubothek.odf.sync import Pulled


def remote_options(command: Any) -> Any:
    """What may be said of a dataset at a URL."""
    options = (
        click.option("--as", "name", metavar="NAME", help="Of a URL: what it is called here; default: its last part."),
        click.option("--no-alias", is_flag=True, help="Of a URL: do not remember it for this dataset."),
        click.option("--force", is_flag=True, help="Of a URL: give up blocks that are only here."),
        click.option(
            "--verify", "rows", is_flag=True, help="Of a URL: verify the records even without a table of them."
        ),
        click.option("--no-table", is_flag=True, help="Of a new dataset keep the chain only, without a table."),
        click.option(
            "--partition-on", multiple=True, metavar="COLUMN", help="Of the table of a new dataset; repeatable."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def remembered_remote(choice: StoreChoice, dataset: str) -> str | None:
    """Where the dataset was pulled from last."""
    with choice.config() as config:
        return remembered(config.url, dataset, "pull")


def pull_remote(
    choice: StoreChoice,
    url: str,
    name: str | None,
    *,
    no_alias: bool,
    force: bool,
    rows: bool,
    no_table: bool,
    partition_on: tuple[str, ...],
) -> None:
    """Make a dataset what it is at a URL: a new one, or one that was pulled before, by what is new."""
    from kubothek.cli.exchange.progress import shown
    from kubothek.cli.ledger.exchange import short_name, table_of
    from kubothek.odf.sync import Reach
    from kubothek.odf.sync import pull_remote as pull_it
    from kubothek.storage import open_store
    from kubothek.storage.urls import create_directory

    url = elsewhere(url)
    uuid = name or short_name(url.rstrip("/"))
    with choice.config() as config, shown() as told:
        create_directory(config)
        store = open_store(config)
        reach = Reach(token=token_for(url), endpoint=choice.endpoint, region=choice.region)
        done = pull_it(
            store,
            writable_log(store, uuid),
            url,
            reach=reach,
            table=None if no_table else table_of(partition_on),
            force=force,
            rows=rows or None,
            by=BY,
            told=told,
        )
        if not no_alias:
            remember(config.url, uuid, "pull", url)
    click.echo(f"{uuid}: {_told(done)}")


def _told(done: Pulled) -> str:
    from kubothek.odf.sync import Relation

    if done.relation is Relation.EQUAL:
        return f"up to date, version {done.version}"
    brought = done.brought
    size = f"{brought.fetched_objects:,} of {count(brought.objects, 'object')} fetched, {brought.fetched_bytes:,} bytes"
    return f"version {done.version}: {count(done.blocks, 'block')}, {size}, up to {done.head}"
