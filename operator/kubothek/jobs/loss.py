"""Search for all lost files after a job found that one is missing."""

from __future__ import annotations

import logging

from kubothek.api.jobs import DatasetRef, JobResult
from kubothek.errors import LakeError
from kubothek.jobs import outcome, translate
from kubothek.storage import Store
from kubothek.table.maintenance.lost_files import look_thoroughly

log = logging.getLogger(__name__)


def looked_into(store: Store, dataset: DatasetRef, failed: JobResult) -> JobResult:
    """Return the failure, extended by all files that the current version has lost; later inspections report them too.

    It costs one listing of the table, and only for a job that has failed. If it fails itself, return ``failed`` as is.
    """
    try:
        own = translate.dataset_log(store, dataset, conditional_writes=True)  # nothing is committed
        lost = look_thoroughly(store, own, own.snapshot())
        if lost is None:
            return failed
        state = translate.dataset_state(own.inspect()).model_copy(update={"corrupt": str(lost)})
    except LakeError as error:
        log.warning("the search for lost files failed: %s", error)
        return failed
    message = outcome.shortened(f"{failed.message}; {lost}")
    return failed.model_copy(update={"message": message, "dataset": state})
