"""Rules about exclusive claims: to a dataset in a store, and to the name of a cube's member."""

from __future__ import annotations

from collections.abc import Iterator

from kubothek.api.cube import Cube
from kubothek.api.dataset import Dataset
from kubothek.api.members import dataset_name
from kubothek.api.objectstore import ObjectStore
from kubothek.controller.context import Lookup
from kubothek.controller.finding import Finding

_Home = tuple[str, str | None]


def same_dataset(dataset: Dataset, there: Lookup) -> Iterator[Finding]:
    """Yield a finding if two Datasets have one uuid in one place: the bucket accepts only one owner as writer."""
    home = _home(dataset, there)
    for other in there.list(Dataset, dataset.namespace):
        if other.name != dataset.name and other.uuid == dataset.uuid and _home(other, there) == home:
            whose = f"Dataset {other.name!r} has the uuid {dataset.uuid!r} in the same place"
            path = "spec.uuid" if dataset.spec.uuid is not None else "metadata.name"
            yield Finding("OwnedByAnother", path, f"{whose}: give this one another spec.uuid")
            return


def name_of_member(dataset: Dataset, there: Lookup) -> Iterator[Finding]:
    """Yield a finding if a Dataset has the name that a Cube gives to one of its own."""
    if dataset.cube is not None:
        return
    for cube in there.list(Cube, dataset.namespace):
        for member in cube.spec.datasets:
            if dataset_name(cube.name, member.name) == dataset.name:
                whose = f"Cube {cube.name!r} calls its dataset {member.name!r} so"
                yield Finding("NameCollision", "metadata.name", f"{whose}: choose another name")
                return


def names_of_members(cube: Cube, there: Lookup) -> Iterator[Finding]:
    """Yield a finding for each Dataset of a Cube whose name belongs to another Dataset."""
    for index, member in enumerate(cube.spec.datasets):
        other = there.get(Dataset, cube.namespace, dataset_name(cube.name, member.name))
        if other is not None and other.cube != cube.name:
            message = (
                f"there is a Dataset {other.name!r} that is not of this Cube, and its dataset {member.name!r} needs "
                "the name: delete that one (its data stays), or give the Cube another name, with the same "
                "spec.uuidPrefix"
            )
            yield Finding("NameCollision", f"spec.datasets[{index}].name", message)


def _home(dataset: Dataset, there: Lookup) -> _Home:
    """Return the place of the data: two ObjectStores may refer to the same one."""
    name = dataset.spec.store_ref.name
    store = there.get(ObjectStore, dataset.namespace, name)
    return (name, None) if store is None else (store.spec.url.rstrip("/"), store.spec.endpoint)
