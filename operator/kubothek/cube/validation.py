"""Pure checks of what may be written to a cube, from the columns of the data, before any row is read.

Source: kartothek's checks before a write (``kartothek.io_components.cube.write``). Each error names the dataset, the
column and the rule.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from kubothek.cube.cells import Named
from kubothek.errors import CubeInvalid, DatasetExists
from kubothek.table.log.multi.members import OWN
from kubothek.table.log.multi.spec import CubeSpec, check_member_name

_RESERVED: Final = (OWN, "kubothek_")


def check_build(spec: CubeSpec, names: Collection[str], there: Collection[str], *, overwrite: bool) -> None:
    """Raise CubeInvalid or DatasetExists unless a cube can be built from ``names``; ``there`` are existing datasets."""
    check_names(names)
    if spec.seed_dataset not in names:
        raise CubeInvalid(f"seed data ({spec.seed_dataset!r}) is missing: a cube is built with its seed")
    if there and not overwrite:
        raise DatasetExists(
            f"there is a cube {spec.uuid_prefix!r} already, with the datasets {_list(sorted(there))}; append to it, "
            "extend it, or overwrite all of them"
        )
    if left := sorted(set(there) - set(names)):
        raise CubeInvalid(
            f"following datasets exist but are not overwritten (partial overwrite), this is not allowed: {_list(left)}"
        )


def check_extend(spec: CubeSpec, names: Collection[str], there: Collection[str], *, overwrite: bool) -> None:
    """Raise CubeInvalid or DatasetExists unless a cube can be extended by these datasets."""
    check_names(names)
    if spec.seed_dataset in names:
        raise CubeInvalid(f"seed data ({spec.seed_dataset!r}) cannot be written during extension; rebuild the cube")
    if (again := sorted(set(names) & set(there))) and not overwrite:
        raise DatasetExists(
            f"cube {spec.uuid_prefix!r} has the datasets {_list(again)} already; append to them, or overwrite them"
        )


def check_known(spec: CubeSpec, names: Collection[str], there: Collection[str]) -> None:
    """Raise CubeInvalid unless all of these are datasets of the cube."""
    if unknown := sorted(set(names) - set(there)):
        raise CubeInvalid(
            f"unknown / non-existing datasets: {_list(unknown)}; those of cube {spec.uuid_prefix!r} are "
            f"{_list(sorted(there))}"
        )


def check_delete(spec: CubeSpec, names: Collection[str], there: Collection[str]) -> None:
    """Raise CubeInvalid if the seed is deleted while other datasets stay."""
    if spec.seed_dataset in names and (left := sorted(set(there) - set(names))):
        raise CubeInvalid(
            f"seed dataset {spec.seed_dataset!r} would be missing: {_list(left)} stay, which are no cube without it"
        )


def check_names(names: Collection[str]) -> None:
    """Raise CubeInvalid if there are no names, or if a member cannot have such a name."""
    if not names:
        raise CubeInvalid("no dataset is given: there is nothing to write")
    for name in names:
        check_member_name(name)


def check_metadata(names: Collection[str], metadata: Mapping[str, Any]) -> None:
    """Raise CubeInvalid unless it maps some of these datasets to mappings with keys that a user may set."""
    if not isinstance(metadata, Mapping):
        raise CubeInvalid(f"provided metadata should be a mapping but is {type(metadata).__name__}")
    if unknown := sorted(set(metadata) - set(names)):
        raise CubeInvalid(f"provided metadata for otherwise unspecified datasets: {_list(unknown)}")
    for name, each in metadata.items():
        if not isinstance(each, Mapping):
            raise CubeInvalid(
                f"provided metadata for dataset {name!r} should be a mapping but is {type(each).__name__}"
            )
        if own := sorted(str(key) for key in each if str(key).startswith(_RESERVED)):
            raise CubeInvalid(f"metadata key {own[0]!r} of dataset {name!r} is not yours to set; choose another name")


def partition_on(
    spec: CubeSpec, names: Collection[str], given: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    """Return the partition columns of each new dataset; default: those of the cube. Raises CubeInvalid."""
    if unknown := sorted(set(given) - set(names)):
        raise CubeInvalid(f"partition-on attribute of otherwise unspecified datasets: {_list(unknown)}")
    chosen = {name: tuple(given.get(name, spec.partition_columns)) for name in names}
    if chosen.get(spec.seed_dataset, spec.partition_columns) != spec.partition_columns:
        raise CubeInvalid(
            f"seed dataset {spec.seed_dataset!r} must have the following, fixed partition-on attribute: "
            f"{_list(spec.partition_columns)}"
        )
    for name, columns in chosen.items():
        if len(set(columns)) < len(columns):
            raise CubeInvalid(f"partition-on attribute of dataset {name!r} contains duplicates: {_list(columns)}")
    return chosen


def check_columns(spec: CubeSpec, name: str, schema: pa.Schema, partition_keys: Sequence[str]) -> Named:
    """Return the columns of a dataset that must not be NULL. Raises CubeInvalid if required columns are missing."""
    names = schema.names
    dimensions = tuple(column for column in spec.dimension_columns if column in names)
    if name == spec.seed_dataset and len(dimensions) < len(spec.dimension_columns):
        missing = [column for column in spec.dimension_columns if column not in names]
        raise CubeInvalid(f"missing dimension columns in seed data {name!r}: {_list(missing)}")
    if not dimensions:
        raise CubeInvalid(
            f"dataset {name!r} must have at least 1 of the following dimension columns: {_list(spec.dimension_columns)}"
        )
    if missing := [column for column in partition_keys if column not in names]:
        raise CubeInvalid(f"missing partition columns in dataset {name!r}: {_list(missing)}")
    if loose := [column for column in spec.partition_columns if column in names and column not in partition_keys]:
        raise CubeInvalid(
            f"unspecified but provided partition columns in dataset {name!r}: {_list(loose)}; name them in its "
            "partition-on attribute"
        )
    index = tuple(sorted(column for column in spec.index_columns if column in names))
    return Named(dimensions, tuple(partition_keys), index)


def check_dimensions(spec: CubeSpec, name: str, table: pa.Schema, rows: pa.Schema) -> None:
    """Raise CubeInvalid unless rows have exactly the dimensions of their dataset."""
    has, given = ({c for c in spec.dimension_columns if c in schema.names} for schema in (table, rows))
    if missing := sorted(has - given):
        raise CubeInvalid(f"missing dimension columns in dataset {name!r}: {_list(missing)}")
    if more := sorted(given - has):
        raise CubeInvalid(
            f"dataset {name!r} has no dimension columns {_list(more)}, which rows cannot add to it; overwrite it"
        )


def indexed(spec: CubeSpec, name: str, schema: pa.Schema, partition_keys: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that must have a kartothek index in a dataset (kartothek-cube, "Indices")."""
    dimensions = spec.indexed_dimensions if name == spec.seed_dataset else ()
    wanted = (*dimensions, *sorted(spec.index_columns))
    return tuple(column for column in wanted if column in schema.names and column not in partition_keys)


def check_payload(written: Mapping[str, Collection[str]], present: Mapping[str, Collection[str]]) -> None:
    """Raise CubeInvalid if a payload column written to one dataset exists in another."""
    for name, columns in written.items():
        for other, existing in present.items():
            if other != name and (shared := sorted(set(columns) & set(existing))):
                raise CubeInvalid(
                    f"payload written in {name!r} is already present in cube: {_list(shared)} (dataset {other!r})"
                )


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
