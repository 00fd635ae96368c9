"""The entry point: which commands there are, and how their errors reach the user.

A command's module is imported when the command runs, and heavy libraries inside it when they are needed, so
that ``kubothek --help`` answers at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from kubothek.cli.errors import explain
from kubothek.cli.lazy import Entry, LazyGroup

COMMANDS = {
    "run": Entry("kubothek.cli.run:run", "Make a directory of manifests come true on this machine."),
    "plan": Entry("kubothek.cli.plan:plan", "Say what `run` would do, and why; change nothing."),
    "lint": Entry("kubothek.cli.lint:lint", "Check manifests without looking at any store."),
    "put": Entry("kubothek.cli.put:put", "Upload files into a store, for Commits to read."),
    "get": Entry("kubothek.cli.get:get", "List datasets, or resources of a kind."),
    "describe": Entry("kubothek.cli.describe:describe", "Show one dataset: schema, layout, size, owner."),
    "log": Entry("kubothek.cli.log:log", "Show the history of a dataset, newest first."),
    "diff": Entry("kubothek.cli.diff:diff", "Show what lies between two versions of a dataset."),
    "adopt": Entry("kubothek.cli.adopt:adopt", "Show who owns a dataset, take it over, or convert it."),
    "index": Entry("kubothek.cli.index:index", "Tidy up the indices of a dataset, or build them anew."),
    "skipping": Entry("kubothek.cli.skipping:skipping", "Build, refresh, describe, explain or drop skipping metadata."),
    "health": Entry("kubothek.cli.health:health", "Show how a dataset is: its files, and what history holds."),
    "compact": Entry("kubothek.cli.compact:compact", "Make fewer, larger files of the small ones of a dataset."),
    "heal": Entry("kubothek.cli.heal:heal", "Make anew what is derived from the data; say which data is lost."),
    "verify": Entry("kubothek.cli.verify:verify", "Find out whether a dataset is what was committed."),
    "tag": Entry("kubothek.cli.tag:tag", "Name versions of a dataset, so that they are kept; or show the names."),
    "gc": Entry("kubothek.cli.gc:gc", "Say which objects no version needs any more, or delete them."),
    "query": Entry("kubothek.cli.query:query", "Run one SELECT over the datasets of a store."),
    "import": Entry(
        "kubothek.cli.ledger.exchange:import_", "Make a dataset of an ODF snapshot, or of a whole ODF dataset."
    ),
    "export": Entry(
        "kubothek.cli.ledger.exchange:export", "Write a ledger as an ODF dataset: a directory, or a bucket."
    ),
    "serve": Entry("kubothek.cli.exchange.serve:serve", "Give out the ledgers of a store to other parties."),
    "push": Entry("kubothek.cli.exchange.push:push", "Make a dataset at a URL what it is here."),
    "search": Entry("kubothek.cli.exchange.search:search", "Find ledgers, here or at a gateway."),
    "login": Entry("kubothek.cli.exchange.login:login", "Keep a token for a gateway."),
    "logout": Entry("kubothek.cli.exchange.login:logout", "Forget the token of a gateway."),
    "ingest": Entry("kubothek.cli.ledger.feed:ingest", "Hand files to a push source of a ledger."),
    "poll": Entry("kubothek.cli.ledger.feed:poll", "Read the polling source of a ledger."),
    "pull": Entry("kubothek.cli.ledger.pull:pull", "Bring ledgers up to date: poll, derive, or follow a URL."),
    "lineage": Entry("kubothek.cli.ledger.lineage:lineage", "Show what a ledger is made of, and what is made of it."),
    "tail": Entry("kubothek.cli.ledger.tail:tail", "Show the last records of a ledger, with what was taken back."),
    "chain": Entry("kubothek.cli.ledger.chain:chain", "Write the chain of a ledger anew, or move it back."),
    "set-watermark": Entry(
        "kubothek.cli.ledger.feed:set_watermark", "Say up to when all events of a ledger were seen."
    ),
    "cube": Entry("kubothek.cli.cube:cube", "Cubes: several datasets as one. See `kubothek cube --help`."),
}


@click.group(cls=LazyGroup, entries=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kubothek", message="%(prog)s %(version)s")
def cli() -> None:
    """Versioned Parquet datasets in object storage, from manifests.

    Works on any store, with or without a cluster behind it.
    """


def _bug(error: Exception) -> list[str]:
    return [
        f"error: {type(error).__name__}: {error}",
        "hint: this is a fault of Kubothek; with KUBOTHEK_TRACEBACK=1 in the environment it tells where",
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    finish(cli, "kubothek", arguments)


def finish(command: click.Command, name: str, arguments: Sequence[str] | None) -> NoReturn:
    """Run a command and exit: 0 done, 1 an explained error, 2 wrong usage, 130 interrupted."""
    try:
        code = command.main(args=arguments, prog_name=name, complete_var="_KUBOTHEK_COMPLETE", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader (head, less) has gone; nobody is there to be told
        sys.exit(0)
    except Exception as error:
        if os.environ.get("KUBOTHEK_TRACEBACK"):
            raise
        for line in explain(error) or _bug(error):
            click.echo(line, err=True)
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)
