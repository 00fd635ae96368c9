"""The job that changes a cube, and a query of one."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kubothek.api.jobs.parts import BaseJob, DatasetRef, Plain, SourceSpec, SparkSettings, StoreRef


class CubeMemberRef(Plain):
    """A dataset of a cube. ``partition_on`` None: the partition columns of the cube, or those of the dataset."""

    name: str
    dataset: DatasetRef
    partition_on: tuple[str, ...] | None = None


class CubeRef(Plain):
    """A cube. Without ``dimension_columns`` its columns are those in the store."""

    prefix: str
    seed: str = "seed"
    dimension_columns: tuple[str, ...] = ()
    partition_columns: tuple[str, ...] = ()
    index_columns: tuple[str, ...] = ()
    suppress_index_on: tuple[str, ...] = ()
    members: tuple[CubeMemberRef, ...] = ()


class CubeRows(Plain):
    """The new rows of one dataset of a cube."""

    name: str
    source: SourceSpec


class CubeTarget(Plain):
    """The target of a copy of a cube; ``rename``: new names of datasets by the old ones."""

    store: StoreRef
    prefix: str
    rename: dict[str, str] = Field(default_factory=dict)
    overwrite: bool = False


class CubeJob(BaseJob):
    """Commit one change to one cube, atomically over its datasets."""

    verb: Literal["cube"] = "cube"
    cube: CubeRef
    by: str
    """The author of the change: ``<clusterId>/<namespace>/<name>`` of the Cube."""
    commit_id: str
    digest: str
    operation: Literal["Build", "Extend", "Append", "Update", "RemovePartitions", "Delete", "Copy", "Index", "Cleanup"]
    rows: tuple[CubeRows, ...] = ()
    """For Build, Extend, Append and Update."""
    members: tuple[str, ...] | None = None
    """For the other operations: the datasets to change; None: all."""
    where: str | None = None
    """For Update and RemovePartitions: the partitions to remove."""
    columns: tuple[str, ...] = ()
    """For Index."""
    target: CubeTarget | None = None
    """For Copy."""
    overwrite: bool = False
    dry_run: bool = False
    spark: SparkSettings = SparkSettings()


class CubeQuestion(Plain):
    """A query of cells of a cube; see :class:`kubothek.api.cube_changes.CubeQuestion`."""

    prefix: str
    conditions: str | None = None
    dimension_columns: tuple[str, ...] | None = None
    partition_by: tuple[str, ...] = ()
    payload_columns: tuple[str, ...] | None = None
    datasets: tuple[str, ...] | None = None
    newest_only: bool = False
    explain: bool = False
