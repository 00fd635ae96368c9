"""The result of an export; importable without pyiceberg."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IcebergExport:
    """The result of an export as Iceberg metadata.

    ``version``            of the dataset; also the id of the current snapshot
    ``metadata_location``  of the table metadata, absolute
    ``table_location``     of the directory with ``metadata/version-hint.text``, for readers of Hadoop tables
    ``snapshots``          number of versions that readers can request
    ``manifests_written``  number of manifests that this export wrote; 0 if nothing had changed
    """

    version: int
    metadata_location: str
    table_location: str
    snapshots: int
    manifests_written: int
