"""``kubothek verify``: verification of a dataset, or of a bare ODF dataset."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from kubothek.cli.complete import complete_dataset
from kubothek.cli.ledger.common import elsewhere
from kubothek.cli.options import store_options
from kubothek.cli.output import output_option, show
from kubothek.cli.versions import AnyVersion
from kubothek.words import count

if TYPE_CHECKING:
    from datetime import datetime

    from kubothek.cli.stores import StoreChoice
    from kubothek.odf import Level, Problem, Verdict
    from kubothek.verify import Finding

_LEVELS = ("chain", "physical", "full")


@click.command()
@store_options
@click.argument("dataset", required=False, shell_complete=complete_dataset)
@click.option("--odf", metavar="URL", help="Instead of DATASET: a directory or prefix with refs/head and blocks/.")
@click.option(
    "--level",
    type=click.Choice(_LEVELS),
    default="full",
    show_default=True,
    help="chain: blocks and commit records; physical: also all bytes; full: also all rows and indices.",
)
@click.option("--as-of", type=AnyVersion(), metavar="VERSION", help="Of DATASET; default: the present version.")
@click.option("--since", type=click.IntRange(min=0), metavar="VERSION", help="Skip files of versions up to this one.")
@click.option("--until-block", type=click.IntRange(min=0), metavar="N", help="The last block; default: all.")
@click.option("--since-block", type=click.IntRange(min=0), metavar="N", help="Skip slices up to this block.")
@click.option("-r", "--recursive", is_flag=True, help="Also verify the inputs of DATASET, up to the roots.")
@output_option()
@click.pass_context
def verify(
    ctx: click.Context,
    choice: StoreChoice,
    dataset: str | None,
    odf: str | None,
    level: str,
    as_of: int | datetime | str | None,
    since: int | None,
    until_block: int | None,
    since_block: int | None,
    recursive: bool,
    output: str,
) -> None:
    """Check a dataset against its commits: the chain of a ledger, files and indices.

    Changes no data; safe to run beside readers and writers. The exit code is 1 if something is wrong, and the first
    fault is shown with its remedy. Damage of the current version is recorded for the operator that manages the dataset.
    At level full, the transformations of a derivative are run again and must return the same records.
    """
    from kubothek.odf import Level

    if (dataset is None) == (odf is None):
        raise click.UsageError("give either DATASET or --odf URL")
    if odf is not None and (as_of is not None or since is not None):
        raise click.UsageError("an ODF dataset has blocks, not versions: use --until-block and --since-block")
    wanted = Level[level.upper()]
    if odf is not None:
        name, text, first = odf, *_odf(choice, odf, wanted, since_block, until_block)
    else:
        assert dataset is not None, "as asked above"
        if recursive and any(bound is not None for bound in (as_of, since, until_block, since_block)):
            raise click.UsageError("--recursive accepts no bounds of versions or blocks: leave them out")
        if recursive:
            name, text, first = dataset, *_recursively(choice, dataset, wanted)
        else:
            name, text, first = dataset, *_dataset(choice, dataset, wanted, as_of, since, until_block, since_block)
    if first is None or output not in ("table", "wide"):
        show(output, {"dataset": name, "sound": first is None, "message": text}, [f"{name}: {text}"])
    else:
        click.echo(f"error: Corrupt: {name}: {text}", err=True)
    if first is not None:
        ctx.exit(1)


def _dataset(
    choice: StoreChoice,
    dataset: str,
    level: Level,
    as_of: int | datetime | str | None,
    since: int | None,
    until_block: int | None,
    since_block: int | None,
) -> tuple[str, Finding | None]:
    from kubothek.table.log import DatasetLog
    from kubothek.verify import Since, keep_damage, verify_dataset

    with choice.opened() as store, _progress() as report:
        verdict = verify_dataset(
            store,
            DatasetLog(store, dataset),
            level=level,
            version=as_of,
            until_block=until_block,
            since=Since(since, since_block),
            progress=report,
        )
        keep_damage(store, dataset, verdict)
    if verdict.chain is not None:
        _report_notes(verdict.chain)
    return str(verdict), verdict.first


def _recursively(choice: StoreChoice, dataset: str, level: Level) -> tuple[str, Finding | None]:
    from kubothek.jobs.verify import recursive_message
    from kubothek.verify import keep_damage
    from kubothek.verify.recursion import verify_recursively

    with choice.opened() as store, _progress() as report:
        found = verify_recursively(store, dataset, level=level, progress=report)
        for each in found:
            keep_damage(store, each.uuid, each.verdict)
    first = next((each.verdict.first for each in found if not each.verdict.sound), None)
    return recursive_message([(each.uuid, each.verdict) for each in found]), first


def _odf(
    choice: StoreChoice, url: str, level: Level, since_block: int | None, until_block: int | None
) -> tuple[str, Finding | None]:
    from kubothek.odf import Layout, Scope
    from kubothek.odf import verify as verify_chain
    from kubothek.storage import StoreConfig, open_store
    from kubothek.verify import Finding
    from kubothek.verify.datasets import block_at

    if choice.store is not None or choice.manifests or choice.store_name:
        raise click.UsageError("--odf names the dataset: leave out --store, -f and --store-name")
    store = open_store(StoreConfig(elsewhere(url), choice.endpoint, choice.region))
    first_block = 0 if since_block is None else since_block + 1
    head = None if until_block is None else block_at(store, Layout(), None, until_block)
    with _progress() as report:
        verdict = verify_chain(
            store, Layout(), head, scope=Scope(level=level, first_block=first_block), progress=report
        )
    _report_notes(verdict)
    if verdict.first is not None:
        found = Finding.of(verdict.first)
        return str(found), found
    what = [count(verdict.blocks, "block")]
    what += [count(verdict.slices, "slice"), count(verdict.bytes, "byte")] if level else []
    return f"{verdict.dataset_id} is sound: {', '.join(what)}, head {verdict.head}{verdict.unverified}", None


def _report_notes(verdict: Verdict) -> None:
    """Print the first of each kind of finding that leaves a chain sound, and how many more there are."""
    from kubothek.odf import Severity

    notes: dict[str, list[Problem]] = {}
    for each in verdict.problems:
        if each.severity is not Severity.ERROR:
            notes.setdefault(each.code, []).append(each)
    for first, *more in notes.values():
        click.echo(f"note: {first}{f' (and {len(more)} more)' if more else ''}", err=True)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Yield a callback that shows a transient progress bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Verifying", total=None)

        def report(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield report
