"""The entry point: the list of commands, and the display of their errors.

A command's module is imported when the command runs, and heavy libraries when they are needed, so that
``kubothek --help`` answers at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from kubothek.cli.lazy import Entry, LazyGroup

_SECTIONS = {
    "Manifests": {
        "run": Entry("kubothek.cli.run:run", "Apply manifests on this machine."),
        "plan": Entry("kubothek.cli.plan:plan", "Show what `run` would do, and why; change nothing."),
        "lint": Entry("kubothek.cli.lint:lint", "Check manifests without access to a store."),
        "put": Entry("kubothek.cli.put:put", "Upload source files into a store."),
    },
    "Datasets": {
        "get": Entry("kubothek.cli.get:get", "List datasets, cubes, or resources of a kind."),
        "describe": Entry("kubothek.cli.describe:describe", "Show schema, layout, size and owner of a dataset."),
        "log": Entry("kubothek.cli.log:log", "Show the history of a dataset, newest first."),
        "diff": Entry("kubothek.cli.diff:diff", "Compare two versions of a dataset."),
        "query": Entry("kubothek.cli.query:query", "Run a SELECT over the datasets of a store."),
        "files": Entry("kubothek.cli.files:files", "Print the data files of a version, one per line."),
        "tag": Entry("kubothek.cli.tag:tag", "Name versions, which are then kept; or list the names."),
        "iceberg": Entry("kubothek.cli.iceberg:iceberg", "Write Iceberg metadata for other engines."),
        "cube": Entry("kubothek.cli.cube:cube", "Cubes: several datasets with common dimensions."),
    },
    "Changes of a dataset": {
        "append": Entry("kubothek.cli.dataset.write:append", "Add the rows of files."),
        "merge": Entry("kubothek.cli.dataset.write:merge", "Update and insert the rows of files by key."),
        "replace": Entry("kubothek.cli.dataset.write:replace", "Replace partitions by the rows of files."),
        "overwrite": Entry("kubothek.cli.dataset.write:overwrite", "Replace all rows by those of files."),
        "update": Entry("kubothek.cli.dataset.rows:update", "Set values in the rows that match a filter."),
        "delete": Entry("kubothek.cli.dataset.rows:delete", "Delete the rows that match a filter."),
        "columns": Entry("kubothek.cli.dataset.columns:columns", "Add, rename or drop columns."),
        "create": Entry("kubothek.cli.dataset.move:create", "Create an empty dataset."),
        "copy": Entry("kubothek.cli.dataset.move:copy", "Copy a version to a new dataset."),
        "rename": Entry("kubothek.cli.dataset.move:rename", "Give a dataset another name."),
        "drop": Entry("kubothek.cli.dataset.move:drop", "Delete a dataset."),
        "restore": Entry("kubothek.cli.dataset.move:restore", "Undo `drop` within the grace period."),
    },
    "Maintenance": {
        "health": Entry("kubothek.cli.health:health", "Show file sizes, small files and what history holds."),
        "compact": Entry("kubothek.cli.compact:compact", "Merge small files into larger ones."),
        "index": Entry("kubothek.cli.index:index", "Add, drop, compact or rebuild secondary indices."),
        "skipping": Entry("kubothek.cli.skipping:skipping", "Build, refresh, describe or drop skipping metadata."),
        "gc": Entry("kubothek.cli.gc:gc", "List unreferenced objects; --enforce deletes them."),
        "grace": Entry("kubothek.cli.grace:grace", "Show or set how long a store keeps unreferenced objects."),
        "heal": Entry("kubothek.cli.heal:heal", "Rebuild indices and metadata; report lost files."),
        "verify": Entry("kubothek.cli.verify:verify", "Check a dataset against its commits."),
        "adopt": Entry("kubothek.cli.adopt:adopt", "Show or change the owner of a dataset, or convert it."),
    },
    "Ledgers (Open Data Fabric)": {
        "import": Entry("kubothek.cli.ledger.exchange:import_", "Create a dataset from an ODF snapshot or dataset."),
        "export": Entry("kubothek.cli.ledger.exchange:export", "Write a ledger as an ODF dataset."),
        "ingest": Entry("kubothek.cli.ledger.feed:ingest", "Add files to a push source of a ledger."),
        "poll": Entry("kubothek.cli.ledger.feed:poll", "Poll the source of a ledger."),
        "pull": Entry("kubothek.cli.exchange.pull_ledger:pull", "Update ledgers: poll, derive, or follow a URL."),
        "tail": Entry("kubothek.cli.ledger.tail:tail", "Show the last records of a ledger."),
        "lineage": Entry("kubothek.cli.ledger.lineage:lineage", "Show inputs and dependants of a ledger."),
        "chain": Entry("kubothek.cli.ledger.chain:chain", "Compact or reset the chain of a ledger."),
        "set-watermark": Entry("kubothek.cli.ledger.feed:set_watermark", "Set a ledger's watermark."),
    },
    "Exchange": {
        "serve": Entry("kubothek.cli.exchange.serve:serve", "Serve the ledgers of a store over HTTP."),
        "push": Entry("kubothek.cli.exchange.push:push", "Push a ledger's new blocks to a URL."),
        "search": Entry("kubothek.cli.exchange.search:search", "Find ledgers in a store or at a gateway."),
        "login": Entry("kubothek.cli.exchange.login:login", "Store a token for a gateway."),
        "logout": Entry("kubothek.cli.exchange.login:logout", "Delete the token of a gateway."),
    },
    "Shell": {
        "completion": Entry("kubothek.cli.complete:completion", "Print the completion script of bash, zsh or fish."),
    },
}
COMMANDS = {
    name: entry._replace(section=section) for section, entries in _SECTIONS.items() for name, entry in entries.items()
}


@click.group(cls=LazyGroup, entries=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kubothek", message="%(prog)s %(version)s")
def cli() -> None:
    """Versioned Parquet datasets in object storage, from manifests.

    Works on any store, with or without a cluster.
    """


def _bug(error: Exception) -> list[str]:
    return [
        f"error: {type(error).__name__}: {error}",
        "hint: this is a bug in Kubothek; KUBOTHEK_TRACEBACK=1 in the environment shows where",
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
        sys.stderr.close()  # the reader (head, less) has exited
        sys.exit(0)
    except Exception as error:
        if os.environ.get("KUBOTHEK_TRACEBACK"):
            raise
        for line in explain(error) or _bug(error):
            click.echo(line, err=True)
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


# Errors as lines for users: what failed, and what to do.


_HINTS = {
    "InvalidCredentials": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, for this store",
    "AccessDenied": "grant these credentials read permission on this store, and write permission for changes",
    "BucketNotFound": "check the URL; `kubothek put` and `kubothek run` create the directory of a file store",
    "StoreUnavailable": "check that the endpoint is right and reachable from here; --endpoint names another",
    "DatasetNotFound": "`kubothek get` lists the datasets of the store",
    "RowLevelNeeded": "`kubothek delete --row-level` rewrites files that also have other rows",
    "VersionNotFound": "`kubothek log DATASET` lists the versions that can be read",
    "NotALedger": "ledgers are made by `kubothek import` or spec.ledger; `kubothek log` and `query` are for tables too",
    "TooManyDeletes": "`kubothek gc DATASET` lists the objects; --max-deletes raises the limit",
    "QueryInvalid": "`kubothek get` lists the datasets, `kubothek describe DATASET` the columns of one",
}


def explain(error: Exception) -> list[str] | None:
    """Return the lines for an expected error; None for a bug."""
    # No import is needed: a module that was not loaded did not raise.
    lake = sys.modules.get("kubothek.errors")
    local = sys.modules.get("kubothek.local.errors")
    if lake is not None and isinstance(error, lake.LakeError):
        # A disk error names its own remedy, and has no endpoint.
        hint = None if isinstance(error, lake.DiskUnavailable) else _HINTS.get(error.reason)
        return [f"error: {error.reason}: {error}", *([f"hint: {hint}"] if hint else [])]
    if local is not None and isinstance(error, local.LocalError):
        return [f"error: {line}" for line in str(error).splitlines()]
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename is not None else ""
        return [f"error: {where}{error.strerror or error}"]
    return None
