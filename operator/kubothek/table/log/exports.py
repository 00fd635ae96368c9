"""Export after a commit: Iceberg metadata, if the head of the dataset asks for it.

The exporter is in a layer above the commit protocol, and needs an extra that not every writer has installed. So the
protocol knows only the name of its module.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from importlib import import_module
from typing import Final, Protocol

import orjson

from kubothek.errors import LakeError, ObjectNotFound, StoreError
from kubothek.storage import Store
from kubothek.table.log.model import keys
from kubothek.table.log.model.head import Head

_EXPORTER: Final = "kubothek.table.iceberg.export"
_MISSING_EXTRA: Final = (
    "MissingExtra: pyiceberg is not installed; pip install 'kubothek[iceberg]', or use an image that has it"
)
_LONGEST: Final = 500
_logger = logging.getLogger(__name__)


class Log(Protocol):
    """What is read here of the :class:`~kubothek.table.log.dataset_log.DatasetLog` that the exporter gets."""

    uuid: str


def export_commit(store: Store, log: Log, head: Head, *, heals: bool = False, rebuild: bool = False) -> bool:
    """Write the Iceberg metadata of a dataset, if the head that a commit made asks for it; return whether it did.

    ``heals``    verify the last export, and note in the store also that the extra ``iceberg`` is missing; else a writer
                 without it leaves the export to the next one
    ``rebuild``  write all of it again, not only what changed

    Raises nothing, because the commit has happened. A failure is logged, and noted in the store for inspections; the
    export lags until the next commit, or until it is healed.
    """
    if head.iceberg == "Off" or head.tombstone:
        return False
    try:
        exporter = import_module(_EXPORTER)
    except ModuleNotFoundError:
        if heals:
            _note(store, log.uuid, head.version, _MISSING_EXTRA)
        return False
    committed = None if heals else head.commit
    try:
        exporter.export(store, log, omit_unsupported=head.iceberg == "Omit", rebuild=rebuild, committed=committed)
    except Exception as error:  # noqa: BLE001 - the commit has happened, whatever the exporter raises
        problem = f"{error.reason}: {error}" if isinstance(error, LakeError) else repr(error)
        _logger.warning("version %s of %s was committed, and not exported: %s", head.version, log.uuid, problem)
        _note(store, log.uuid, head.version, problem)
        return False
    return True


def export_problem(store: Store, uuid: str, exported: int) -> str | None:
    """Return why the last export failed; None if a later one succeeded, whose version is ``exported``."""
    try:
        found = orjson.loads(store.get(keys.iceberg_problem(uuid)))
        return str(found["problem"]) if int(found["version"]) > exported else None
    except (ObjectNotFound, KeyError, TypeError, ValueError):
        return None


def _note(store: Store, uuid: str, version: int, problem: str) -> None:
    with suppress(StoreError):
        note = {"version": version, "problem": problem[:_LONGEST]}
        store.put(keys.iceberg_problem(uuid), orjson.dumps(note))
