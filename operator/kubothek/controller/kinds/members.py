"""Datasets of a Cube: the Dataset resource of each, and its form in job specs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kubothek.api import jobs
from kubothek.api.cube import Cube, CubeDataset, CubeStatus
from kubothek.api.dataset import Dataset, DatasetSpec
from kubothek.api.members import CUBE_LABEL, dataset_name
from kubothek.api.meta import API_VERSION, ObjectMeta, OwnerReference
from kubothek.api.table import Table
from kubothek.controller.context import Context
from kubothek.controller.references import dataset_ref


@dataclass(frozen=True, slots=True)
class Member:
    """Dataset that a cube has or should have; ``spec`` None: found in the store, but not in the manifest."""

    name: str
    dataset: str
    """Name of its Dataset."""
    spec: CubeDataset | None


def members_of(cube: Cube, status: CubeStatus) -> Sequence[Member]:
    """Return the datasets of the manifest in its order, then those found in the store, if the cube is adopted."""
    listed = {dataset.name: dataset for dataset in cube.spec.datasets}
    found = status.shape.datasets if cube.spec.adopt and status.shape is not None else ()
    names = dict.fromkeys((*listed, *sorted(found)))
    return [Member(name, dataset_name(cube.name, name), listed.get(name)) for name in names]


def wanted(cube: Cube, member: Member) -> Dataset:
    """Return the desired Dataset of a member. The cube manages the indices, because it knows which it needs."""
    table, labels = _table(cube, member), {**cube.metadata.labels, CUBE_LABEL: cube.name}
    owner = OwnerReference(
        api_version=API_VERSION,
        kind="Cube",
        name=cube.name,
        uid=cube.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )
    return Dataset(
        api_version=API_VERSION,
        kind="Dataset",
        metadata=ObjectMeta(name=member.dataset, namespace=cube.namespace, labels=labels, owner_references=(owner,)),
        spec=DatasetSpec(
            uuid=cube.uuid_of(member.name),
            store_ref=cube.spec.store_ref,
            engine_ref=cube.spec.engine_ref,
            table=table,
            adopt=cube.spec.adopt,
            sources=member.spec.sources if member.spec else (),
            maintenance=cube.spec.maintenance,
            sharing=cube.spec.sharing,
            export=cube.spec.export,
            suspend=cube.spec.suspend,
        ),
    )


def _table(cube: Cube, member: Member) -> Table:
    """Return the layout. A dataset without a spec keeps the layout that it has in the store (``adopt``)."""
    if member.spec is None:
        return Table()
    own = member.spec.partition_on
    return Table(partition_on=(cube.spec.partition_columns or ()) if own is None else own, **dict(member.spec.table))


def refusal_key(dataset: str) -> str:
    """Return the key of :meth:`Context.launch_refusal` for a Dataset; no job has such a name."""
    return f"dataset/{dataset}"


def is_as_wanted(there: Dataset, member: Dataset) -> bool:
    """Return whether an existing Dataset needs no update. It may have other labels in addition to ours."""
    return there.spec == member.spec and member.metadata.labels.items() <= there.metadata.labels.items()


def cube_ref(cube: Cube, context: Context) -> jobs.CubeRef:
    """Return a Cube as jobs need it, with the claim that each of its Datasets makes."""
    spec = cube.spec
    members = []
    for member in members_of(cube, cube.status):
        there = context.get(Dataset, cube.namespace, member.dataset)
        if there is None or there.cube != cube.name:
            continue
        own = member.spec
        members.append(
            jobs.CubeMemberRef(
                name=member.name,
                dataset=dataset_ref(there, context.settings),
                partition_on=own.partition_on if own is not None else None,
            )
        )
    return jobs.CubeRef(
        prefix=cube.prefix,
        seed=spec.seed_dataset,
        dimension_columns=spec.dimension_columns or (),
        partition_columns=spec.partition_columns or (),
        index_columns=spec.index_columns,
        suppress_index_on=spec.suppress_index_on,
        members=tuple(members),
    )
