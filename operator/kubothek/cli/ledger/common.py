"""Common parts of the ledger commands: opening a ledger, and parameters for times and variables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kubothek.odf.dataset import Root
    from kubothek.odf.spec.timestamps import Timestamp
    from kubothek.storage import Store
    from kubothek.table.log import DatasetLog

BY = "cli"


class Moment(click.ParamType["Timestamp"]):
    """``2026-11-21T14:00:00Z``, or ``2026-11-21``, which is 00:00 UTC of that day."""

    name = "TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Timestamp:
        """Return the time."""
        from kubothek.errors import FormatInvalid
        from kubothek.odf.spec.timestamps import Timestamp

        text = str(value)
        try:
            return Timestamp.parse(f"{text}T00:00:00Z" if len(text) == len("2026-11-21") else text)
        except FormatInvalid as error:
            self.fail(str(error), param, ctx)


def writable_log(store: Store, dataset: str) -> DatasetLog:
    """Return the dataset's log, for a write, which fails if a Dataset resource owns the dataset."""
    from kubothek.table.log import DatasetLog

    return DatasetLog(store, dataset, unowned_only=True, conditional_writes=store.probe().conditional_writes)


def writable_ledger(store: Store, dataset: str) -> Root:
    """Return the dataset's chain, for a change. Raises NotALedger, DatasetNotFound, OwnedByAnother."""
    from kubothek.odf.dataset import Root

    log = writable_log(store, dataset)
    log.settled()  # before anything is fetched
    return Root(store, log, by=BY)


def environment(names: Sequence[str]) -> dict[str, str]:
    """Return the variables with these names; a source can read no others. Raises UsageError."""
    if absent := [name for name in names if name not in os.environ]:
        raise click.UsageError(f"the environment has no variable {absent[0]}, which --env names")
    return {name: os.environ[name] for name in names}


def elsewhere(text: str) -> str:
    """Return the absolute URL of a directory or a URL."""
    from kubothek.urls import absolute_url

    return absolute_url(text, Path.cwd())
