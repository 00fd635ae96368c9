"""Kubothek keeps versioned Parquet datasets in object storage.

    import kubothek

    lake = kubothek.open("s3://lake/warehouse")
    flights = lake.create_dataset("flights", partition_on="month")

The public API is what ``dir(kubothek)`` names; docs/python.md is its reference. Importing this package imports nothing
heavy: the operator shares it, and each name is loaded when it is first used.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kubothek import errors
    from kubothek.catalog import Lake
    from kubothek.cube.handle import Cube, CubeCommitResult
    from kubothek.cube.transaction import CubeAlreadyApplied, CubeCommitted
    from kubothek.dataset import CommitResult, Dataset
    from kubothek.gc.collection import Collection
    from kubothek.sql.rows import QueryResult
    from kubothek.table.expressions.computed import Expression
    from kubothek.table.iceberg.state import IcebergExport
    from kubothek.table.indexes import Dialect, IndexKind
    from kubothek.table.layout import Layout
    from kubothek.table.log.compare import Comparison
    from kubothek.table.log.model.record import Record
    from kubothek.table.log.multi.spec import CubeSpec
    from kubothek.table.log.transaction import AlreadyApplied, Committed
    from kubothek.table.log.update_indexes import Reindexed
    from kubothek.table.maintenance.compaction import Compaction, CompactionPlan
    from kubothek.table.maintenance.heal import Healed
    from kubothek.table.maintenance.health import Health
    from kubothek.table.operations.merging.model import MergeClause
    from kubothek.table.skipping.model import Encryption, IndexDefinition
    from kubothek.verify.datasets import DatasetVerdict

    __version__: str

__all__ = [
    "AlreadyApplied",
    "Collection",
    "CommitResult",
    "Committed",
    "Compaction",
    "CompactionPlan",
    "Comparison",
    "Cube",
    "CubeAlreadyApplied",
    "CubeCommitResult",
    "CubeCommitted",
    "CubeSpec",
    "Dataset",
    "DatasetVerdict",
    "Dialect",
    "Encryption",
    "Expression",
    "Healed",
    "Health",
    "IcebergExport",
    "IndexDefinition",
    "IndexKind",
    "Lake",
    "Layout",
    "MergeClause",
    "QueryResult",
    "Record",
    "Reindexed",
    "__version__",
    "errors",
    "open",
]

_MODULES: Final = {
    "AlreadyApplied": "kubothek.table.log.transaction",
    "Collection": "kubothek.gc.collection",
    "CommitResult": "kubothek.dataset",
    "Committed": "kubothek.table.log.transaction",
    "Compaction": "kubothek.table.maintenance.compaction",
    "CompactionPlan": "kubothek.table.maintenance.compaction",
    "Comparison": "kubothek.table.log.compare",
    "Cube": "kubothek.cube.handle",
    "CubeAlreadyApplied": "kubothek.cube.transaction",
    "CubeCommitResult": "kubothek.cube.handle",
    "CubeCommitted": "kubothek.cube.transaction",
    "CubeSpec": "kubothek.table.log.multi.spec",
    "Dataset": "kubothek.dataset",
    "DatasetVerdict": "kubothek.verify.datasets",
    "Dialect": "kubothek.table.indexes",
    "Encryption": "kubothek.table.skipping.model",
    "Expression": "kubothek.table.expressions.computed",
    "Healed": "kubothek.table.maintenance.heal",
    "Health": "kubothek.table.maintenance.health",
    "IcebergExport": "kubothek.table.iceberg.state",
    "IndexDefinition": "kubothek.table.skipping.model",
    "IndexKind": "kubothek.table.indexes",
    "Lake": "kubothek.catalog",
    "Layout": "kubothek.table.layout",
    "MergeClause": "kubothek.table.operations.merging.model",
    "QueryResult": "kubothek.sql.rows",
    "Record": "kubothek.table.log.model.record",
    "Reindexed": "kubothek.table.log.update_indexes",
}


def open(  # noqa: A001 - the natural name of the entry point
    url: str | os.PathLike[str],
    *,
    endpoint: str | None = None,
    region: str | None = None,
    credentials_dir: str | None = None,
    keys_dir: str | None = None,
    writer: str | None = None,
) -> Lake:
    """Return the lake at ``s3://bucket[/prefix]``, ``file:///absolute/path`` or a path. It contacts no store.

    ``url``              as on the command line: relative paths and ``file:rel`` are relative to the working directory.
                         The directory of a local lake is created with its first dataset
    ``endpoint``         of an S3 server other than AWS: ``http://host:port``
    ``region``           of the bucket; None = what the AWS SDK finds
    ``credentials_dir``  directory with the files AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and optionally
                         AWS_SESSION_TOKEN; None = what the AWS SDK finds (environment, profile, web identity)
    ``keys_dir``         directory with the keys of encrypted skipping metadata, one file each
    ``writer``           name under which to write to datasets whose manifest lists it in ``spec.writers``; None =
                         KUBOTHEK_WRITER, else the pod's service account, ``system:serviceaccount:NAMESPACE:NAME``

    Raises InputError for an invalid store or name.
    """
    from pathlib import Path

    from kubothek.catalog import Lake
    from kubothek.storage import StoreConfig, open_store
    from kubothek.urls import absolute_url

    place = absolute_url(os.fspath(url), Path.cwd())
    return Lake(open_store(StoreConfig(place, endpoint, region, credentials_dir, keys_dir)), writer)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        found = getattr(import_module(_MODULES[name]), name)
    elif name == "errors":
        found = import_module("kubothek.errors")
    elif name == "__version__":
        found = import_module("importlib.metadata").version("kubothek")
    else:
        raise AttributeError(f"module 'kubothek' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
