"""The options that commands share: manifests and store."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice

F = TypeVar("F", bound=Callable[..., Any])

_PATH = click.Path(path_type=Path)


def manifests_option(command: F) -> F:
    """Add ``-f``, required; passed as ``manifests: tuple[Path, ...]``."""
    option = click.option(
        "-f",
        "--filename",
        "manifests",
        multiple=True,
        required=True,
        type=_PATH,
        metavar="PATH",
        help="A manifest, or a directory with manifests at any depth; repeatable.",
    )
    return option(command)


def manifests_arguments(command: F) -> F:
    """Add ``PATH…`` and ``-f``, at least one required; passed as ``manifests: tuple[Path, ...]``."""

    @functools.wraps(command)
    def wrapped(*args: Any, paths: tuple[Path, ...], named: tuple[Path, ...], **kwargs: Any) -> Any:
        if not paths + named:
            raise click.UsageError("name a manifest, or a directory with manifests")
        return command(*args, manifests=(*paths, *named), **kwargs)

    option = click.option(
        "-f", "--filename", "named", multiple=True, type=_PATH, metavar="PATH", help="The same as PATH; repeatable."
    )
    return click.argument("paths", nargs=-1, type=_PATH, metavar="PATH...")(option(wrapped))  # type: ignore[return-value]


def limit_option(things: str) -> Callable[[F], F]:
    """Add ``-n``, how many of ``things`` to show; passed as ``limit: int``, 0 for all."""
    return click.option(
        "-n",
        "--limit",
        type=click.IntRange(min=0),
        default=50,
        show_default=True,
        help=f"How many {things} to show; 0 for all.",
    )


def store_options(command: F) -> F:
    """Add the options that name a store; passed together as ``choice: StoreChoice``."""

    @functools.wraps(command)
    def wrapped(
        *args: Any,
        store: str | None,
        manifests: tuple[Path, ...],
        store_name: str | None,
        endpoint: str | None,
        region: str | None,
        keys_dir: str | None,
        **kwargs: Any,
    ) -> Any:
        from kubothek.cli.stores import StoreChoice

        choice = StoreChoice(store, manifests, store_name, endpoint, region, keys_dir)
        return command(*args, choice=choice, **kwargs)

    for option in (
        click.option("--keys-dir", metavar="DIR", help="The keys of encrypted skipping metadata, a file each."),
        click.option("--region", metavar="REGION", help="The region of the bucket."),
        click.option("--endpoint", metavar="URL", help="S3 endpoint; wins over that of the manifest."),
        click.option("--store-name", metavar="NAME", help="Which ObjectStore, if the manifests have several."),
        click.option(
            "-f",
            "--filename",
            "manifests",
            multiple=True,
            type=_PATH,
            metavar="PATH",
            help="Manifests that hold the ObjectStore; default: those in the current directory.",
        ),
        click.option(
            "--store",
            metavar="URL",
            help="The store: s3://bucket/prefix or file:path. Default: $KUBOTHEK_STORE, if set.",
        ),
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]


def writing_options(command: F) -> F:
    """Add the options that name a store, and ``--writer``; passed together as ``choice: StoreChoice``."""

    @functools.wraps(command)
    def wrapped(*args: Any, choice: StoreChoice, writer: str | None, **kwargs: Any) -> Any:
        return command(*args, choice=replace(choice, writer=writer), **kwargs)

    option = click.option(
        "--writer",
        metavar="NAME",
        help="Your name in the history, and in spec.writers of a Dataset. Default: $KUBOTHEK_WRITER, if set.",
    )
    return store_options(option(wrapped))  # type: ignore[return-value]
