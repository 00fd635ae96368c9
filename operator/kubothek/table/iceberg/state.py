"""The result of an export, and the state of the exports that follow commits; importable without pyiceberg."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from kubothek.errors import ObjectNotFound
from kubothek.storage import Store
from kubothek.table.iceberg.locations import Locations
from kubothek.table.log import DatasetLog, Snapshot
from kubothek.table.log.exports import export_problem, exported_version
from kubothek.table.log.model import keys

_NAMED_BY_CONTENT: Final = re.compile(r".*?([0-9a-f]{32})(-m)?\.avro")


@dataclass(frozen=True, slots=True)
class IcebergExport:
    """The result of an export as Iceberg metadata.

    ``version``            of the dataset; also the id of the current snapshot
    ``metadata_location``  of the table metadata, absolute
    ``table_location``     of the table: of the directory with ``metadata/``
    ``version_hint``       whether ``metadata/version-hint.text`` names the version: readers of Hadoop tables can then
                           take the location of the table, else they need that of the metadata
    ``snapshots``          number of versions that readers can request
    ``manifests_written``  number of manifests that this export wrote; 0 if nothing had changed
    """

    version: int
    metadata_location: str
    table_location: str
    snapshots: int
    manifests_written: int
    version_hint: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergState:
    """The export of a dataset whose commits export.

    ``version``            the exported version of the dataset, which is also the id of the snapshot; 0 if there is none
    ``lag``                by how many versions it is behind the dataset
    ``metadata_location``  of the table metadata, absolute; None if there is none
    ``problem``            why the last export failed; None if it did not, or a later one succeeded
    """

    version: int
    lag: int
    metadata_location: str | None = None
    problem: str | None = None


def iceberg_state(store: Store, log: DatasetLog, snapshot: Snapshot) -> IcebergState | None:
    """Return the state of the export at the current version; None if commits do not export. Writes nothing.

    Costs one small request, and some more without a version hint, or if the export lags.
    """
    if snapshot.head.iceberg == "Off":
        return None
    newest, version = snapshot.version, exported_version(store, log.uuid, snapshot.version)
    if version != newest and (seen := log.journal.observe()) and seen.version != newest:  # a commit since
        newest, version = seen.version, exported_version(store, log.uuid, seen.version)
    version = version if version <= newest else 0  # that of no commit
    lag = newest - version
    return IcebergState(
        version=version,
        lag=lag,
        metadata_location=Locations(store, log.uuid).of(keys.iceberg_table(log.uuid, version)) if version else None,
        problem=export_problem(store, log.uuid, version) if lag else None,
    )


def is_complete(store: Store, log: DatasetLog, exported: IcebergState) -> bool:
    """Return whether all files of an export exist that readers of its current version need; reads and lists.

    True also without pyiceberg, which is needed to read them.
    """
    try:
        from kubothek.table.iceberg.objects import StoreFiles
        from kubothek.table.iceberg.published import Publications
    except ModuleNotFoundError:
        return True
    locations = Locations(store, log.uuid)
    publications = Publications(log.journal, locations, StoreFiles(store, locations))
    return publications.read(publications.find(), exported.version, verify=True).metadata is not None


def damaged_files(store: Store, uuid: str) -> list[str]:
    """Return the keys of manifests and manifest lists whose content is not that of their name; reads all of them."""
    found = []
    for info in store.list(keys.iceberg_metadata(uuid)):
        named = _NAMED_BY_CONTENT.fullmatch(info.key)
        try:
            if named and sha256(store.get(info.key)).hexdigest()[:32] != named[1]:
                found.append(info.key)
        except ObjectNotFound:
            continue
    return found
