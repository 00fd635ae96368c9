"""The store of a manifest: its choice, and how to reach it.

It is separate from kubothek.cli.stores, as the models of manifests take time to import and a URL does not need them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from kubothek.api.meta import GROUP
from kubothek.api.objectstore import ObjectStore
from kubothek.local.credentials import CredentialFiles
from kubothek.local.documents import SUFFIXES
from kubothek.local.manifests import Manifests, load
from kubothek.storage import StoreConfig
from kubothek.urls import absolute_url


def chosen_store(paths: Sequence[Path], store_name: str | None) -> tuple[Manifests, ObjectStore]:
    """Return the manifests, default those directly in the current directory, and their only or named ObjectStore."""
    manifests = load(paths) if paths else _nearby()
    stores = [store for store in manifests.resources.values() if isinstance(store, ObjectStore)]
    names = ", ".join(sorted(store.name for store in stores))
    if store_name is not None:
        stores = [store for store in stores if store.name == store_name]
    if len(stores) == 1:
        return manifests, stores[0]
    where = " ".join(map(str, paths)) or "the current directory"
    if not names:
        raise click.UsageError(f"no ObjectStore in {where}: name the store with --store URL, -f PATH or KUBOTHEK_STORE")
    if not stores:
        raise click.UsageError(f"no ObjectStore {store_name!r} in {where}; there is: {names}")
    raise click.UsageError(f"several ObjectStores in {where}: choose one with --store-name ({names})")


@contextmanager
def reachable(
    store: ObjectStore, secrets: Mapping[tuple[str, str], Mapping[str, bytes]], base: Path
) -> Iterator[StoreConfig]:
    """Yield how to reach the store of a manifest; its Secrets are directories while the context lasts."""
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


def _nearby() -> Manifests:
    """Load the manifests directly in the current directory; skip YAML files of other programs."""
    files = [file for file in sorted(Path().iterdir()) if file.suffix in SUFFIXES and file.is_file()]
    return load([file for file in files if f"{GROUP}/" in file.read_text(errors="replace")])
