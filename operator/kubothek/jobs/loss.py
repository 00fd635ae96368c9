"""What a job does that met a file which is not there: find out what else is lost, and leave word of it."""

from __future__ import annotations

import logging

from kubothek.api.jobs import DatasetRef, JobResult
from kubothek.errors import LakeError
from kubothek.jobs import outcome, translate
from kubothek.storage import Store
from kubothek.table.maintenance.lost_files import look_thoroughly

log = logging.getLogger(__name__)


def looked_into(store: Store, dataset: DatasetRef, failed: JobResult) -> JobResult:
    """The failure, with all that the present version has lost, if it is that; inspections tell of it from now on.

    One listing of the table, which only a job pays for that cannot go on. That this fails is no other failure.
    """
    try:
        own = translate.dataset_log(store, dataset, conditional_writes=True)  # nothing is committed
        lost = look_thoroughly(store, own, own.snapshot())
        if lost is None:
            return failed
        state = translate.dataset_state(own.inspect()).model_copy(update={"corrupt": str(lost)})
    except LakeError as error:
        log.warning("what is lost was not looked for: %s", error)
        return failed
    message = outcome.shortened(f"{failed.message}; {lost}")
    return failed.model_copy(update={"message": message, "dataset": state})
