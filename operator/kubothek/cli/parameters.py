"""Options and types of parameters that commands which change data share."""

from __future__ import annotations

from collections.abc import Collection

import click

id_option = click.option("--id", "commit_id", metavar="ID", help="Idempotency key: repeats do nothing.")
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")


class Names(click.ParamType[tuple[str, ...]]):
    """``a,b``."""

    name = "a,b"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Return the non-empty names."""
        if isinstance(value, tuple):
            return value
        return tuple(name.strip() for name in str(value).split(",") if name.strip())


class Pair(click.ParamType[tuple[str, str]]):
    """``NAME=VALUE``."""

    name = "NAME=VALUE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return both sides of the first ``=``."""
        if isinstance(value, tuple):
            return value
        name, equals, text = str(value).partition("=")
        if not equals or not name:
            self.fail(f"{value!r} is not NAME=VALUE", param, ctx)
        return name, text


def pairs(given: Collection[tuple[str, str]], option: str) -> dict[str, str]:
    """Return the values by name. Raises UsageError for a duplicate name."""
    found: dict[str, str] = {}
    for name, value in given:
        if name in found:
            raise click.UsageError(f"{option} names {name!r} twice")
        found[name] = value
    return found
