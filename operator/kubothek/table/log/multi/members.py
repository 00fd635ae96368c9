"""The datasets of a cube, and what their heads say of it (Kartothek Cube, "Datasets" and "Metadata"). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from kubothek.errors import CubeInvalid
from kubothek.table.log.history.snapshot import Snapshot
from kubothek.table.log.model.head import Head
from kubothek.table.log.multi.spec import LEGACY_TIME, CubeSpec, is_hidden

IS_SEED: Final = "is_seed"
DIMENSIONS: Final = "dimension_columns"
PARTITIONS: Final = "partition_columns"
SUPPRESSED: Final = "suppress_index_on"
OWN: Final = "ktk_cube_"
LEGACY: Final = "klee_"
"""Prefix that kartothek's predecessor used for the same names, except ``suppress_index_on``."""


@dataclass(frozen=True)
class Member:
    """One dataset of a cube, at one version.

    ``name``      without the cube's prefix
    ``snapshot``  its head, schema and version; the order of the files in the head decides which row of a cell is last
    """

    name: str
    spec: CubeSpec
    snapshot: Snapshot

    @property
    def uuid(self) -> str:
        """The uuid of the dataset."""
        return self.snapshot.head.uuid

    @property
    def is_seed(self) -> bool:
        """Whether it is the seed, which defines the cells."""
        return self.name == self.spec.seed_dataset

    @cached_property
    def schema(self) -> pa.Schema:
        """The stored columns; empty if nothing defines them yet."""
        return pa.schema([]) if self.snapshot.schema is None else self.snapshot.schema

    @property
    def partition_on(self) -> tuple[str, ...]:
        """Its partition columns, as stored; may include a legacy one that cubes hide."""
        return self.snapshot.head.partition_keys

    @cached_property
    def dimensions(self) -> tuple[str, ...]:
        """The cube's dimensions that it has, in the cube's order."""
        return tuple(column for column in self.spec.dimension_columns if column in self.schema.names)

    @cached_property
    def payload(self) -> tuple[str, ...]:
        """All other columns that a cube shows, without the cube's partition columns, sorted.

        A partition column of the dataset alone is one of them.
        """
        other = {*self.spec.dimension_columns, *self.spec.partition_columns}
        return tuple(sorted(column for column in self.schema.names if column not in other and not is_hidden(column)))


def is_member(head: Head) -> bool:
    """Return whether a head says that its dataset belongs to a cube, of any program."""
    return any(key.startswith((OWN, LEGACY)) for key in head.metadata)


def metadata_of(spec: CubeSpec, name: str) -> dict[str, Any]:
    """Return the metadata about the cube in the head of a member."""
    return {
        OWN + DIMENSIONS: list(spec.dimension_columns),
        OWN + IS_SEED: name == spec.seed_dataset,
        OWN + PARTITIONS: list(spec.partition_columns),
        OWN + SUPPRESSED: sorted(spec.suppress_index_on),
    }


def is_seed(head: Head) -> bool:
    """Return whether the head claims to be a seed's."""
    return bool(_found(head, IS_SEED))


def spec_in(prefix: str, heads: Mapping[str, Head]) -> CubeSpec:
    """Return the cube that these heads, by member name, describe; its index columns are those with an index.

    Raises CubeInvalid if none or several of them are a seed's, or the seed does not say what the cube's columns are.
    """
    seeds = sorted(name for name, head in heads.items() if is_seed(head))
    if not seeds:
        raise CubeInvalid(f"could not find a seed dataset for cube {prefix!r}: no {OWN}{IS_SEED} among its datasets")
    if len(seeds) > 1:
        raise CubeInvalid(f"found several possible seed datasets for cube {prefix!r}: {', '.join(seeds)}")
    seed = heads[seeds[0]]
    dimensions = _found(seed, DIMENSIONS)
    if not dimensions:
        raise CubeInvalid(f"could not recover the dimension columns of cube {prefix!r} from its seed {seeds[0]!r}")
    partitions = _partition_columns(prefix, seeds[0], seed)
    suppressed = seed.metadata.get(OWN + SUPPRESSED) or ()
    given = {*dimensions, *partitions}
    indexed = {column for head in heads.values() for column in head.indices}
    indexed -= given | {key for head in heads.values() for key in head.partition_keys}
    return CubeSpec.of(
        prefix,
        dimension_columns=dimensions,
        partition_columns=partitions,
        seed_dataset=seeds[0],
        index_columns=(column for column in indexed if not is_hidden(column)),
        suppress_index_on=suppressed,
    )


def in_order(spec: CubeSpec, names: Iterable[str]) -> list[str]:
    """Return the names of members: the seed first, the others sorted."""
    return sorted(names, key=lambda name: (name != spec.seed_dataset, name))


def _partition_columns(prefix: str, name: str, seed: Head) -> Any:
    """Return them as stored; if the predecessor did not store them, the partition keys without its time, the last."""
    if (stored := _found(seed, PARTITIONS)) is not None:
        return stored
    *columns, last = seed.partition_keys or ("",)
    if not columns or last != LEGACY_TIME:
        raise CubeInvalid(
            f"could not recover the partition columns of cube {prefix!r}: its seed {name!r} does not name them, and "
            f"its partition keys {list(seed.partition_keys)} are not some columns and {LEGACY_TIME}"
        )
    return columns


def _found(head: Head, what: str) -> Any:
    return head.metadata.get(OWN + what, head.metadata.get(LEGACY + what))
