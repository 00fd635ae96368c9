"""Groups of commands that are listed without imports; a command is imported when it is called."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem


class Entry(NamedTuple):
    """Place of a command, ``module:attribute``, and its help."""

    where: str
    help: str
    section: str = "Commands"
    """The heading below which ``--help`` lists it."""


class LazyGroup(click.Group):
    """A group with the commands ``entries``."""

    def __init__(self, *args: Any, entries: Mapping[str, Entry], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in order."""
        return list(self._entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of this name."""
        entry = self._entries.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.where.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return names of commands and options, without an import of a command."""
        names = [
            CompletionItem(name, help=entry.help)
            for name, entry in self._entries.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write names and help of the commands, by section."""
        for section in dict.fromkeys(entry.section for entry in self._entries.values()):
            with formatter.section(section):
                rows = [(name, entry.help) for name, entry in self._entries.items() if entry.section == section]
                formatter.write_dl(rows)
