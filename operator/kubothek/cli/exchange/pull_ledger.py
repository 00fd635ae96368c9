"""``kubothek pull``: updates of ledgers from their sources, inputs or URLs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from kubothek.cli.exchange.remotes import remember, remembered
from kubothek.cli.exchange.tokens import token_for
from kubothek.cli.ledger.common import BY, elsewhere, environment, writable_log
from kubothek.cli.ledger.feed import polled_text, polling_options, show_progress
from kubothek.cli.options import store_options
from kubothek.words import count

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice
    from kubothek.odf.derived import Derivative, Inputs
    from kubothek.odf.sources.fetch import FetchContext
    from kubothek.storage import Store

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice
    from kubothek.odf.sync import Pulled


# ``kubothek pull URL --as NAME``: a dataset of another party.


def remote_options(command: Any) -> Any:
    """Add the options for a dataset at a URL."""
    options = (
        click.option("--as", "name", metavar="NAME", help="Of a URL: what it is called here; default: its last part."),
        click.option("--no-alias", is_flag=True, help="Of a URL: do not remember it for this dataset."),
        click.option("--force", is_flag=True, help="Of a URL: discard blocks that exist only here."),
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
    """Return the URL from which the dataset was pulled last."""
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
    """Pull a new dataset from a URL, or the new blocks of one that was pulled before."""
    from kubothek.cli.exchange.progress import shown
    from kubothek.cli.ledger.exchange import short_name, table_of
    from kubothek.odf.sync import Reach
    from kubothek.odf.sync import pull_remote as pull_it

    url = elsewhere(url)
    uuid = name or short_name(url.rstrip("/"))
    with choice.opened(create=True) as store, shown() as report:
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
            told=report,
        )
        if not no_alias:
            remember(store.url, uuid, "pull", url)
    click.echo(f"{uuid}: {_description(done)}")


def _description(done: Pulled) -> str:
    from kubothek.odf.named import fetched_text, missing_text
    from kubothek.odf.sync import Relation

    brought = done.brought
    if done.relation is Relation.EQUAL:
        return (
            f"up to date, version {done.version}{fetched_text(brought.fetched_objects)}{missing_text(brought.missing)}"
        )
    size = f"{brought.fetched_objects:,} of {count(brought.objects, 'object')} fetched, {brought.fetched_bytes:,} bytes"
    text = f"version {done.version}: {count(done.blocks, 'block')}, {size}, up to {done.head}"
    return text + missing_text(brought.missing)


_ON_CHANGE = ("stop", "reset")


@click.command()
@store_options
@click.argument("datasets", nargs=-1, metavar="DATASET...|URL")
@click.option("-r", "--recursive", is_flag=True, help="First what they are derived from, up to the roots.")
@click.option("--all", "everything", is_flag=True, help="All ledgers of the store that no manifest keeps up.")
@click.option(
    "--on-change",
    type=click.Choice(_ON_CHANGE),
    default="stop",
    show_default=True,
    help="If the history or columns of an input changed: stop, or rebuild all data.",
)
@polling_options
@remote_options
def pull(
    choice: StoreChoice,
    datasets: tuple[str, ...],
    recursive: bool,
    everything: bool,
    on_change: str,
    variables: tuple[str, ...],
    fetch_uncacheable: bool,
    allow_commands: bool,
    allow_containers: bool,
    **remote: Any,
) -> None:
    """Update ledgers: poll a root, run the transformation of a derivative, or copy the state of the dataset at a URL.

    Inputs are updated before datasets that derive from them. Datasets that a manifest manages, and roots with only push
    sources, are skipped. With OPENLINEAGE_URL in the environment, runs of derivatives are reported to that collector.

    https:// is any web server over an ODF dataset, odf+https:// a gateway with the smart protocol, s3:// and file://
    the layout in a bucket or directory. Everything is verified before it is visible. After an interruption, run it
    again to continue. The URL is remembered: later, the name of the dataset is enough to pull from it.
    """
    from kubothek.cli.ledger.sources import locally
    from kubothek.odf.derived import inputs_of

    if len(datasets) == 1 and not (recursive or everything or remote["name"]):
        found = None if ":" in datasets[0] else remembered_remote(choice, datasets[0])
        if found is not None:
            pull_remote(choice, found, **{**remote, "name": datasets[0]})
            return
    if any(":" in each for each in datasets):
        if len(datasets) > 1 or everything or recursive:
            raise click.UsageError("a URL is pulled alone, without --all and --recursive")
        pull_remote(choice, datasets[0], **remote)
        return
    if any(remote.values()):
        raise click.UsageError(
            "--as, --no-alias, --force, --verify, --no-table and --partition-on go with a URL, such as https://…"
        )
    if everything == bool(datasets):
        raise click.UsageError("name the datasets to pull, or say --all")
    env = environment(variables)
    with choice.opened() as store:
        inputs = inputs_of(store)
        context = locally(
            [store.config],
            env=env,
            fetch_uncacheable=fetch_uncacheable,
            allow_commands=allow_commands,
            allow_containers=allow_containers,
        )
        for name in _in_order(store, inputs, datasets, recursive=recursive):
            if (url := remembered(store.url, name, "pull")) is not None:  # its chain belongs to another party
                pull_remote(choice, url, **{**remote, "name": name})
                continue
            text = _pulled(store, name, inputs, context, reset=on_change == "reset", asked=name in datasets)
            click.echo(f"{name}: {text}")


def _in_order(store: Store, inputs: Inputs, datasets: Sequence[str], *, recursive: bool) -> list[str]:
    """Return the datasets, inputs first. Raises NotALedger, DatasetNotFound, InputError for a cycle."""
    from graphlib import CycleError, TopologicalSorter

    from kubothek.errors import DatasetDeleted, DatasetNotFound, InputError, NotALedger
    from kubothek.odf.dataset import Ledger
    from kubothek.table.log import DatasetLog
    from kubothek.table.log.history.listing import dataset_names

    feeds: dict[str, list[str]] = {}
    waiting = list(datasets or dataset_names(store))
    while waiting:
        name = waiting.pop()
        if name in feeds:
            continue
        try:
            transform = Ledger(store, DatasetLog(store, name)).state.transform
        except (DatasetDeleted, DatasetNotFound, NotALedger):
            if name in datasets:
                raise
            continue
        sources = [inputs(each.dataset_ref) for each in transform.inputs] if transform is not None else []
        feeds[name] = [source.uuid for source in sources if source is not None]
        waiting += feeds[name] if recursive else []
    try:
        return [name for name in TopologicalSorter(feeds).static_order() if name in feeds]
    except CycleError as error:
        raise InputError(f"these are derived from each other: {', '.join(error.args[1])}") from None


def _pulled(store: Store, name: str, inputs: Inputs, context: FetchContext, *, reset: bool, asked: bool) -> str:
    """Update one dataset; return a message."""
    from kubothek.errors import OwnedByAnother
    from kubothek.odf.derived import Derivative, open_ledger
    from kubothek.odf.ingest import poll_source

    log = writable_log(store, name)
    try:
        log.settled()
    except OwnedByAnother:
        if asked:
            raise
        return "left as it is, a manifest keeps it up"
    ledger = open_ledger(store, log, by=BY)
    if isinstance(ledger, Derivative):
        return _derived(ledger, inputs, reset=reset)
    if ledger.state.polling_source is None:
        return "rows are pushed to it (kubothek ingest)"
    return polled_text(poll_source(ledger, context, show_progress))


def _derived(ledger: Derivative, inputs: Inputs, *, reset: bool) -> str:
    from uuid import uuid4

    from kubothek.api.jobs import OpenLineage
    from kubothek.jobs import derivative_lineage
    from kubothek.jobs.deriving import Derived, derive
    from kubothek.odf.derived import OnChange

    def report(so_far: Derived) -> None:
        click.echo(f"{ledger.uuid}: {count(so_far.consumed, 'record')} of its inputs so far", err=True)

    url = os.environ.get("OPENLINEAGE_URL")
    to = None if url is None else OpenLineage(url=url, namespace=os.environ.get("OPENLINEAGE_NAMESPACE", "local"))
    with derivative_lineage.reporting(to, ledger, inputs, run=str(uuid4())) as end:
        return str(end(derive(ledger, inputs, on_change=OnChange.RESET if reset else OnChange.REFUSE, report=report)))
