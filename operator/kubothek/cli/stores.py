"""The store of a command: the one that options name, or that of the manifests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubothek.storage import Store, StoreConfig, open_store
from kubothek.storage.urls import create_directory
from kubothek.urls import absolute_url

if TYPE_CHECKING:
    from kubothek.catalog import Lake


@dataclass(frozen=True, slots=True)
class StoreChoice:
    """The values of the store options, and of ``--writer``."""

    store: str | None
    manifests: tuple[Path, ...]
    store_name: str | None
    endpoint: str | None
    region: str | None
    keys_dir: str | None = None
    writer: str | None = None

    @contextmanager
    def opened(self, *, create: bool = False) -> Iterator[Store]:
        """Yield the store; ``create`` creates the directory of a file store. Raises InputError, AccessDenied."""
        with self.config() as config:
            if create:
                create_directory(config)
            yield open_store(config)

    @contextmanager
    def config(self) -> Iterator[StoreConfig]:
        """Yield how to reach the store; a Secret of the manifests is a directory while the context lasts."""
        if self.store is not None and (self.manifests or self.store_name):
            raise click.UsageError("--store names the store already: leave out -f and --store-name")
        url = self.store or (None if self.manifests else os.environ.get("KUBOTHEK_STORE"))
        if url is not None:
            yield StoreConfig(absolute_url(url, Path.cwd()), self.endpoint, self.region, keys_dir=self.keys_dir)
            return
        from kubothek.cli.manifest_stores import chosen_store, reachable

        manifests, chosen = chosen_store(self.manifests, self.store_name)
        with reachable(chosen, manifests.secrets, Path.cwd()) as config:
            yield replace(
                config,
                endpoint=self.endpoint or config.endpoint,
                region=self.region or config.region,
                keys_dir=self.keys_dir or config.keys_dir,
            )

    def lake(self, store: Store) -> Lake:
        """Return the lake in the store; the author of its commits is the writer, or ``cli`` without one."""
        from kubothek.catalog import Lake

        return Lake(store, self.writer, program="cli")
