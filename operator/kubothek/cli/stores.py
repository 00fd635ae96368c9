"""Which store a command works on: the one that is named, or that of the manifests."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urlsplit

import click

from kubothek.lake.store import StoreConfig
from kubothek.resources.meta import GROUP
from kubothek.resources.objectstore import ObjectStore
from kubothek.runtime.local.credentials import CredentialFiles
from kubothek.runtime.local.documents import SUFFIXES
from kubothek.runtime.local.manifests import Manifests, load
from kubothek.runtime.local.state import absolute_url


@dataclass(frozen=True, slots=True)
class StoreChoice:
    """What the options say."""

    store: str | None
    manifests: tuple[Path, ...]
    store_name: str | None
    endpoint: str | None
    region: str | None
    keys_dir: str | None = None

    @contextmanager
    def config(self) -> Iterator[StoreConfig]:
        """How to reach the store; a Secret of the manifests is a directory while the context lasts."""
        if self.store is not None and (self.manifests or self.store_name):
            raise click.UsageError("--store names the store already: leave out -f and --store-name")
        url = self.store or (None if self.manifests else os.environ.get("KUBOTHEK_STORE"))
        if url is not None:
            yield StoreConfig(absolute_url(url, Path.cwd()), self.endpoint, self.region, keys_dir=self.keys_dir)
            return
        manifests, chosen = self._from_manifests()
        with reachable(chosen, manifests.secrets, Path.cwd()) as config:
            yield replace(
                config,
                endpoint=self.endpoint or config.endpoint,
                region=self.region or config.region,
                keys_dir=self.keys_dir or config.keys_dir,
            )

    def _from_manifests(self) -> tuple[Manifests, ObjectStore]:
        manifests = load(self.manifests) if self.manifests else _nearby()
        stores = [store for store in manifests.resources.values() if isinstance(store, ObjectStore)]
        names = ", ".join(sorted(store.name for store in stores))
        if self.store_name is not None:
            stores = [store for store in stores if store.name == self.store_name]
        if len(stores) == 1:
            return manifests, stores[0]
        where = " ".join(map(str, self.manifests)) or "the current directory"
        if not names:
            raise click.UsageError(
                f"no ObjectStore in {where}: name the store with --store URL, -f PATH or KUBOTHEK_STORE"
            )
        if not stores:
            raise click.UsageError(f"no ObjectStore {self.store_name!r} in {where}; there is: {names}")
        raise click.UsageError(f"several ObjectStores in {where}: choose one with --store-name ({names})")


@contextmanager
def reachable(
    store: ObjectStore, secrets: Mapping[tuple[str, str], Mapping[str, bytes]], base: Path
) -> Iterator[StoreConfig]:
    """How to reach the store of a manifest; its Secrets, if it has some, are directories while the context lasts."""
    spec = store.spec
    config = StoreConfig(absolute_url(spec.url, base), spec.endpoint, spec.region)
    references = {"credentials_dir": spec.credentials_secret_ref, "keys_dir": spec.keys_secret_ref}
    with ExitStack() as held:
        directories = {}
        for field, reference in references.items():
            contents = secrets.get((store.namespace, reference.name)) if reference is not None else None
            if contents is not None:
                scratch = Path(held.enter_context(TemporaryDirectory()))
                directories[field] = str(held.enter_context(CredentialFiles(scratch / "secret", contents)))
        yield replace(config, **directories)


def create_directory(config: StoreConfig) -> None:
    """Make sure that the directory of a file store is there, for commands that write."""
    parts = urlsplit(config.url)
    if parts.scheme == "file":
        Path(unquote(parts.path)).mkdir(parents=True, exist_ok=True)


def _nearby() -> Manifests:
    """The manifests right in the current directory; YAML files of other programs are passed over."""
    files = [file for file in sorted(Path().iterdir()) if file.suffix in SUFFIXES and file.is_file()]
    return load([file for file in files if f"{GROUP}/" in file.read_text(errors="replace")])
