"""Preparation of a source's container before it runs: ``python -m kubothek.jobs.fetch job.json``.

The poll of the same job then reads what the container left. If this step fails, the container does not run, and the
result of this step is that of the poll.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from kubothek.api.jobs import ExitCode, PollJob
from kubothek.errors import InputError, SourceChanged
from kubothek.jobs import outcome, translate
from kubothek.jobs.chains import opened, variables
from kubothek.jobs.main import read
from kubothek.odf.sources.fetch import SOURCE_NAME
from kubothek.odf.sources.fetch.containers import container_run
from kubothek.odf.sources.fetch.prepared_containers import lay_out
from kubothek.odf.sources.fetch.templates import Templates
from kubothek.odf.spec.sources import FetchStepContainer
from kubothek.storage import Store, open_store


def main(arguments: Sequence[str]) -> int:
    """Prepare the container of the job in the file that the one argument names; return the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        job = read(arguments)
        if not isinstance(job, PollJob):
            raise InputError(f"a job {job.verb!r} has no container to prepare")
        prepare(job, open_store(translate.store_config(job.store)))
    except Exception as error:  # noqa: BLE001 - the last resort of a process
        result, code = outcome.failure(error)
        outcome.leave(result)
        logging.getLogger("kubothek.jobs").error("%s %s: %s", result.outcome, result.reason, result.message)
        return code
    return ExitCode.DONE


def prepare(job: PollJob, store: Store) -> None:
    """Write the launcher of the container, with the state of its last run from the chain.

    Raises SourceChanged if the chain's source is not the container of the pod, and whatever reading a chain raises.
    """
    container = job.container
    if container is None:
        raise InputError("the job's source is no container")
    log = translate.dataset_log(store, job.dataset, conditional_writes=job.store.conditional_writes)
    state = opened(store, log, job.dataset).state
    step = state.polling_source.fetch if state.polling_source is not None else None
    if not isinstance(step, FetchStepContainer) or step.image != container.image:
        raise SourceChanged(f"the chain's source is not, or not any more, a container of image {container.image!r}")
    templates = Templates(variables(job.env_dir))
    with templates.hidden():
        asked = container_run(step, state.source_states.get(SOURCE_NAME), templates)
        lay_out(asked, Path(container.launcher_dir), Path(container.output_dir))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
