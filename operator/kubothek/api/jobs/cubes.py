"""The job that changes a cube, and a question to one."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kubothek.api.jobs.parts import BaseJob, DatasetRef, Plain, SourceSpec, SparkSettings, StoreRef


class CubeMemberRef(Plain):
    """A dataset of a cube as a job needs it. ``partition_on`` None: as the cube is partitioned, or as it is."""

    name: str
    dataset: DatasetRef
    partition_on: tuple[str, ...] | None = None


class CubeRef(Plain):
    """A cube as a job needs it. Without ``dimension_columns`` it is what the store has."""

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
    """Where a cube is copied to; ``rename`` is new names of datasets by the old ones."""

    store: StoreRef
    prefix: str
    rename: dict[str, str] = Field(default_factory=dict)
    overwrite: bool = False


class CubeJob(BaseJob):
    """Commit one change to one cube: to all of its datasets, or to none."""

    verb: Literal["cube"] = "cube"
    cube: CubeRef
    by: str
    """Who makes the change: ``<clusterId>/<namespace>/<name>`` of the Cube."""
    commit_id: str
    digest: str
    operation: Literal["Build", "Extend", "Append", "Update", "RemovePartitions", "Delete", "Copy", "Index", "Cleanup"]
    rows: tuple[CubeRows, ...] = ()
    """Of Build, Extend, Append and Update."""
    members: tuple[str, ...] | None = None
    """Of the others: which datasets; None: all."""
    where: str | None = None
    """Of Update and RemovePartitions: which partitions go."""
    columns: tuple[str, ...] = ()
    """Of Index."""
    target: CubeTarget | None = None
    """Of Copy."""
    overwrite: bool = False
    dry_run: bool = False
    spark: SparkSettings = SparkSettings()


class CubeQuestion(Plain):
    """Which cells of a cube, and which columns of them; see ``resources.cube_changes.CubeQuestion``."""

    prefix: str
    conditions: str | None = None
    dimension_columns: tuple[str, ...] | None = None
    partition_by: tuple[str, ...] = ()
    payload_columns: tuple[str, ...] | None = None
    datasets: tuple[str, ...] | None = None
    newest_only: bool = False
    explain: bool = False
