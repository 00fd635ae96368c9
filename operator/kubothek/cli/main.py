"""The entry point: which commands there are, and how their errors reach the user.

A command's module is imported when the command runs, and heavy libraries inside it when they are needed, so
that ``kubothek --help`` answers at once.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

import click

from kubothek.cli.errors import explain


class _Entry(NamedTuple):
    where: str
    help: str


COMMANDS = {
    "run": _Entry("kubothek.cli.run:run", "Make a directory of manifests come true on this machine."),
    "plan": _Entry("kubothek.cli.plan:plan", "Say what `run` would do, and why; change nothing."),
    "lint": _Entry("kubothek.cli.lint:lint", "Check manifests without looking at any store."),
    "put": _Entry("kubothek.cli.put:put", "Upload files into a store, for Commits to read."),
    "get": _Entry("kubothek.cli.get:get", "List datasets, or resources of a kind."),
    "describe": _Entry("kubothek.cli.describe:describe", "Show one dataset: schema, layout, size, owner."),
    "log": _Entry("kubothek.cli.log:log", "Show the history of a dataset, newest first."),
    "diff": _Entry("kubothek.cli.diff:diff", "Show what lies between two versions of a dataset."),
    "adopt": _Entry("kubothek.cli.adopt:adopt", "Show who owns a dataset, take it over, or convert it."),
    "index": _Entry("kubothek.cli.index:index", "Tidy up the indices of a dataset, or build them anew."),
    "skipping": _Entry(
        "kubothek.cli.skipping:skipping", "Build, refresh, describe, explain or drop skipping metadata."
    ),
    "health": _Entry("kubothek.cli.health:health", "Show how a dataset is: its files, and what history holds."),
    "compact": _Entry("kubothek.cli.compact:compact", "Make fewer, larger files of the small ones of a dataset."),
    "heal": _Entry("kubothek.cli.heal:heal", "Make anew what is derived from the data; say which data is lost."),
    "tag": _Entry("kubothek.cli.tag:tag", "Name versions of a dataset, so that they are kept; or show the names."),
    "gc": _Entry("kubothek.cli.gc:gc", "Say which objects no version needs any more, or delete them."),
    "query": _Entry("kubothek.cli.query:query", "Run one SELECT over the datasets of a store."),
}


class _LazyGroup(click.Group):
    """A group whose commands are listed by name and help, and imported when one is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.where.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
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
    """Run the command line and exit: 0 done, 1 an explained error, 2 wrong usage, 130 interrupted."""
    try:
        code = cli.main(args=arguments, prog_name="kubothek", standalone_mode=False)
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
