"""Export after a commit: Iceberg metadata, if the head of the dataset asks for it.

The exporter is in a layer above the commit protocol, and needs an extra that not every writer has installed. So the
protocol imports it by the name of its module.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from importlib import import_module
from typing import Final, Protocol

import orjson

from kubothek.errors import LakeError, ObjectNotFound, StoreError
from kubothek.storage import ObjectInfo, Store
from kubothek.table.log.model import keys
from kubothek.table.log.model.head import Head

_EXPORTER: Final = "kubothek.table.iceberg.export"
_MISSING_EXTRA: Final = (
    "MissingExtra: pyiceberg is not installed; pip install 'kubothek[iceberg]', or use an image that has it"
)
_INTERRUPTED: Final = (
    "Interrupted: the commit was retried, and the export after it did not end; give the process more memory or time, "
    "and run kubothek heal"
)
_LONGEST: Final = 500
_logger = logging.getLogger(__name__)


class Log(Protocol):
    """The attributes of a :class:`~kubothek.table.log.dataset_log.DatasetLog` that this module reads."""

    uuid: str


def export_commit(
    store: Store, log: Log, head: Head, *, heals: bool = False, rebuild: bool = False, retries: bool = False
) -> bool:
    """Write the Iceberg metadata of a dataset, if the head that a commit made asks for it; return whether it did.

    ``heals``    verify the last export, and note in the store also that the extra ``iceberg`` is missing; else a writer
                 without it leaves the export to the next one
    ``rebuild``  write all of it again, not only what changed
    ``retries``  the commit is a retry of one that was applied: its process may have ended before the export. Export
                 only what lags, and once: an export for which a process lacks memory must not end each retry

    Raises nothing, because the commit has happened. A failure is logged, and noted in the store for inspections; the
    export lags until the next commit, or until it is healed.
    """
    if head.iceberg == "Off" or head.tombstone:
        return False
    try:
        exporter = import_module(_EXPORTER)
        if retries:
            exported = exported_version(store, log.uuid, head.version)
            if exported >= head.version or export_problem(store, log.uuid, exported) is not None:
                return False
            _note(store, log.uuid, head.version, _INTERRUPTED)
        committed = None if heals else head.commit
        exporter.export(store, log, omit_unsupported=head.iceberg == "Omit", rebuild=rebuild, committed=committed)
    except ModuleNotFoundError:
        if heals:
            _note(store, log.uuid, head.version, _MISSING_EXTRA)
        return False
    except Exception as error:  # noqa: BLE001 - the commit has happened, whatever the exporter raises
        problem = f"{error.reason}: {error}" if isinstance(error, LakeError) else repr(error)
        _logger.warning("version %s of %s was committed, and not exported: %s", head.version, log.uuid, problem)
        _note(store, log.uuid, head.version, problem)
        return False
    return True


def exported_version(store: Store, uuid: str, newest: int) -> int:
    """Return the version of the last export; 0 if there is none. One request, and two more without a version hint.

    ``newest``  of the dataset. Without a version hint, table metadata of a later version is not its own
    """
    try:
        return int(store.get(keys.iceberg_hint(uuid)))
    except ValueError:
        return 0
    except ObjectNotFound:
        pass
    try:
        store.stat(keys.iceberg_table(uuid, newest))
    except ObjectNotFound:
        return max((version for version in exported_versions(store, uuid) if version <= newest), default=0)
    return newest


def exported_versions(store: Store, uuid: str) -> dict[int, ObjectInfo]:
    """Return the objects of table metadata by version; lists them."""
    listed = store.list(f"{keys.iceberg_metadata(uuid)}v")
    return {version: info for info in listed if (version := keys.iceberg_version(info.key)) is not None}


def export_problem(store: Store, uuid: str, exported: int) -> str | None:
    """Return why the last export failed; None if a later one succeeded, whose version is ``exported``."""
    try:
        found = orjson.loads(store.get(keys.iceberg_problem(uuid)))
        return str(found["problem"]) if int(found["version"]) > exported else None
    except (ObjectNotFound, KeyError, TypeError, ValueError):
        return None


def _note(store: Store, uuid: str, version: int, problem: str) -> None:
    with suppress(StoreError):
        note = {"version": version, "problem": problem[:_LONGEST].encode(errors="replace").decode()}
        store.put(keys.iceberg_problem(uuid), orjson.dumps(note))
