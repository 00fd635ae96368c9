"""``kubothek ingest``, ``poll`` and ``set-watermark``: ingestion into a ledger."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kubothek.cli.complete import complete_dataset
from kubothek.cli.ledger.common import Moment, environment, writable_ledger
from kubothek.cli.options import store_options
from kubothek.words import count

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice
    from kubothek.odf.dataset import Ingested
    from kubothek.odf.ingest import Polled
    from kubothek.odf.sources.readers import Content
    from kubothek.odf.spec.timestamps import Timestamp

_FORMATS = ("csv", "json", "ndjson", "geojson", "ndgeojson", "parquet", "shapefile")
_LARGEST = 64 << 30
F = TypeVar("F", bound=Callable[..., Any])


def polling_options(command: F) -> F:
    """Add the options for reads of a polling source; passed as four arguments."""
    for option in (
        click.option("--allow-containers", is_flag=True, help="Let sources run containers, by docker."),
        click.option("--allow-commands", is_flag=True, help="Let sources run programs of this machine (Pipe)."),
        click.option("--fetch-uncacheable", is_flag=True, help="Read a source again that does not say if it changed."),
        click.option("--env", "variables", multiple=True, metavar="NAME", help="A variable for urls and headers."),
    ):
        command = option(command)
    return command


@click.command()
@store_options
@click.argument("dataset", shell_complete=complete_dataset)
@click.argument("files", nargs=-1, metavar="[FILE...]", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--stdin", is_flag=True, help="Read the rows from standard input.")
@click.option("--source-name", default="default", show_default=True, metavar="NAME", help="The push source.")
@click.option("--input-format", type=click.Choice(_FORMATS), help="Default: that of the push source.")
@click.option("--event-time", type=Moment(), help="Of rows that have none; default: now.")
@click.option("--id", "commit_id", metavar="ID", help="Names the push: done again under it, it is done.")
def ingest(
    choice: StoreChoice,
    dataset: str,
    files: tuple[Path, ...],
    stdin: bool,
    source_name: str,
    input_format: str | None,
    event_time: Timestamp | None,
    commit_id: str | None,
) -> None:
    """Add files to a push source of a ledger: all of their rows in one commit, or none.

    The source's event in the chain (AddPushSource) defines how they are read, preprocessed and merged.
    """
    from kubothek.odf.ingest import InputFormat, push_files
    from kubothek.odf.sources.readers import FileContent

    if stdin == bool(files):
        raise click.UsageError("name the files to ingest, or say --stdin")
    wanted = InputFormat(input_format) if input_format else None
    with choice.opened() as store, ExitStack() as held:
        contents: list[Content] = [FileContent.of_path(file) for file in files]
        if stdin:
            contents = [FileContent.filled("standard input", sys.stdin.buffer, _LARGEST)]
        for content in contents:
            if isinstance(content, FileContent):
                held.callback(content.handle.close)
        root = writable_ledger(store, dataset)
        digest = " ".join([source_name, *map(str, files)])
        done = push_files(
            root, contents, source_name, wanted=wanted, event_time=event_time, commit_id=commit_id, digest=digest
        )
    click.echo(f"{dataset}: {_ingested(done)}")


@click.command()
@store_options
@click.argument("dataset", shell_complete=complete_dataset)
@polling_options
def poll(
    choice: StoreChoice,
    dataset: str,
    variables: tuple[str, ...],
    fetch_uncacheable: bool,
    allow_commands: bool,
    allow_containers: bool,
) -> None:
    """Read the polling source of a ledger until it has nothing new. Each file is a commit."""
    from kubothek.cli.ledger.sources import locally
    from kubothek.odf.ingest import poll_source

    env = environment(variables)
    with choice.opened() as store:
        context = locally(
            [store.config],
            env=env,
            fetch_uncacheable=fetch_uncacheable,
            allow_commands=allow_commands,
            allow_containers=allow_containers,
        )
        root = writable_ledger(store, dataset)
        click.echo(f"{dataset}: {polled_text(poll_source(root, context, show_progress))}")


@click.command("set-watermark")
@store_options
@click.argument("dataset", shell_complete=complete_dataset)
@click.argument("time", type=Moment())
def set_watermark(choice: StoreChoice, dataset: str, time: Timestamp) -> None:
    """Set the watermark of a ledger: all events up to this time have arrived. A watermark never goes back."""
    with choice.opened() as store:
        done = writable_ledger(store, dataset).set_watermark(time)
    click.echo(f"{dataset}: the watermark {'was' if done.up_to_date else 'is'} {done.watermark}")


def _ingested(done: Ingested) -> str:
    if done.repeated:
        return "this push happened before; nothing was added"
    if done.up_to_date:
        return f"nothing new; version {done.version}"
    return f"version {done.version}: {count(done.records, 'record')}"


def polled_text(done: Polled) -> str:
    """Return a message about the result of a poll."""
    if done.commits:
        return f"version {done.version}: {count(done.records, 'record')} in {count(done.commits, 'commit')}"
    if done.uncacheable:
        return "its source does not say whether it changed; --fetch-uncacheable reads it again"
    return "its source has nothing new"


def show_progress(name: str, polled: Polled) -> None:
    """Print the progress of a poll."""
    click.echo(f"{name}: {count(polled.records, 'record')} so far", err=True)
