"""Groups of commands that are listed by name and help, and imported when one is called."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem


class Entry(NamedTuple):
    """Where a command is, ``module:attribute``, and what it does."""

    where: str
    help: str
    section: str = "Commands"
    """The heading below which ``--help`` lists it."""


class LazyGroup(click.Group):
    """A group whose commands are these ``entries``."""

    def __init__(self, *args: Any, entries: Mapping[str, Entry], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, in order."""
        return list(self._entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name."""
        entry = self._entries.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.where.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names of commands and options, without an import of a command."""
        names = [
            CompletionItem(name, help=entry.help)
            for name, entry in self._entries.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Their names and what they do, by section."""
        for section in dict.fromkeys(entry.section for entry in self._entries.values()):
            with formatter.section(section):
                rows = [(name, entry.help) for name, entry in self._entries.items() if entry.section == section]
                formatter.write_dl(rows)
