"""Rebuild of missing or outdated objects that derive from a table's data, and a report of lost data files."""

from __future__ import annotations

from kubothek.api.jobs import HealJob, HealOutcome, JobResult
from kubothek.jobs import outcome, translate
from kubothek.jobs.progress import Reporter
from kubothek.jobs.state import state_of
from kubothek.storage import Store
from kubothek.table.maintenance import Healed, heal
from kubothek.verify import known_damage

MOST_REPAIRS = 32
_LONGEST_REPAIR = 80


def run(job: HealJob, store: Store, reporter: Reporter) -> JobResult:
    """List the table, and rebuild derived objects that are missing or outdated. Idempotent. Raises LakeError.

    Lost data files are a result, not a failure of the job: a retry would find the same.
    """
    reporter.report("Starting")
    log = translate.dataset_log(store, job.dataset, conditional_writes=job.store.conditional_writes)
    reporter.report("Healing")
    healed = heal(store, log, by=job.dataset.claim.owner)
    corrupt = healed.corrupt
    if corrupt is None and (damage := known_damage(store, log.uuid, log.snapshot())) is not None:
        corrupt = str(damage)  # healing does not look for this
    state = state_of(store, log, job.dataset).model_copy(update={"corrupt": corrupt})
    repaired = tuple(outcome.shortened(each, _LONGEST_REPAIR) for each in healed.repaired[:MOST_REPAIRS])
    return JobResult(
        outcome="Succeeded",
        reason="Succeeded",
        message=outcome.shortened(_message(healed)),
        heal=HealOutcome(repaired=repaired),
        dataset=state,
    )


def _message(healed: Healed) -> str:
    shown = ", ".join(healed.repaired[:MOST_REPAIRS])
    more = len(healed.repaired) - MOST_REPAIRS
    repaired = f"repaired: {shown}{f' and {more} more' if more > 0 else ''}" if shown else "nothing to repair"
    return f"{healed.corrupt}; {repaired}" if healed.corrupt else repaired
