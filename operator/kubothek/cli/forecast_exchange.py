"""Forecast for Syncs and Repositories, without requests to them."""

from __future__ import annotations

from collections.abc import Mapping

from kubothek.api.dataset import Dataset
from kubothek.api.meta import Resource
from kubothek.api.repository import Repository
from kubothek.api.sync import Sync
from kubothek.cli.forecast_stores import wrong
from kubothek.cli.steps import Step, Verb
from kubothek.controller.validation.compatibility import sync_blocker
from kubothek.local.manifests import Key


def repository_step(key: Key, repository: Repository) -> Step:
    """Return the step of a Repository, which does nothing on its own."""
    use = "is pulled from and pushed to" if repository.spec.push else "is pulled from"
    return Step(key, Verb.KEEP, f"{repository.spec.url} {use}")


def sync_step(key: Key, sync: Sync, resources: Mapping[Key, Resource]) -> Step:
    """Return the step of a Sync. Every run compares both sides, and transfers missing objects."""
    spec = sync.spec
    there, here = (
        Key("Repository", key.namespace, spec.repository_ref.name),
        Key("Dataset", key.namespace, spec.dataset_ref.name),
    )
    repository, dataset = resources.get(there), resources.get(here)
    if not isinstance(repository, Repository):
        return Step(key, Verb.BLOCKED, f"needs {there}, {wrong(None)}")
    if not isinstance(dataset, Dataset):
        return Step(key, Verb.BLOCKED, f"needs {here}, {wrong(None)}")
    state = sync_blocker(sync, repository, dataset)
    if state is not None and state.abnormal == "Stalled":
        return Step(key, Verb.BLOCKED, f"{state.reason}: {state.message}")
    if spec.suspend:
        return Step(key, Verb.SUSPENDED, "spec.suspend is true")
    url = f"{repository.spec.url.rstrip('/')}/{spec.remote or dataset.uuid}"
    return Step(key, Verb.COMMIT, f"{'pulls' if sync.pulls else 'pushes to'} {url} what is new")
