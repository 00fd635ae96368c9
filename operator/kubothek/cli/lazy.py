"""Groups of commands that are listed by name and help, and imported when one is called."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import click


class Entry(NamedTuple):
    """Where a command is, ``module:attribute``, and what it does."""

    where: str
    help: str


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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Their names and what they do."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self._entries.items()])
