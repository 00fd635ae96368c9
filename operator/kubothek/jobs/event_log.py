"""Upload of Spark's event log from the driver's disk to the store, where Spark's history server reads it.

Spark would write it through Hadoop's file systems, which need their own credentials and settings; the job has a store.
The prefix ``.kubothek/++spark-events/`` holds the directories that Spark made (rolling logs, ``eventlog_v2_<app>``), so
it can serve as ``spark.history.fs.logDirectory``. No dataset can have that name: see ``keys.check_uuid``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kubothek.errors import LakeError
from kubothek.storage import Store

log = logging.getLogger(__name__)

PREFIX: Final = ".kubothek/++spark-events/"
_DIRECTORY: Final = "spark.eventLog.dir"
_LIMIT: Final = "spark.kubothek.eventLogLimit"
_EVENTS: Final = re.compile(r"events_(\d+)_")


def keep(store: Store, conf: Mapping[str, str]) -> None:
    """Upload the event log if the job's ``conf`` asks for it. Call this after the session has ended, however it ended.

    A failure is logged and does not fail the job.
    """
    if _LIMIT not in conf:
        return
    directory = Path(urlsplit(conf[_DIRECTORY]).path)
    for application in sorted(directory.glob("eventlog_v2_*")):
        try:
            _keep(store, application, int(conf[_LIMIT]))
        except (LakeError, OSError) as error:
            log.warning("the event log of Spark was not kept in the store: %s", error)


def _keep(store: Store, application: Path, limit: int) -> None:
    left = limit
    for path in _in_order(application):
        left -= path.stat().st_size
        if left < 0:
            # The history server reads files in order, and shows an application without an end as incomplete.
            log.warning("the event log of Spark is larger than eventLog.maxSize: %s and what follows is left out", path)
            break
        _put(store, path)
    # The history server ignores the directory until this file exists.
    for path in application.glob("appstatus_*"):
        if not path.name.startswith("."):
            _put(store, path)
    log.info("the event log of Spark is at %s%s%s", store.url, f"/{PREFIX}", application.name)


def _in_order(application: Path) -> Iterator[Path]:
    numbered = ((int(match[1]), path) for path in application.iterdir() if (match := _EVENTS.match(path.name)))
    for _, path in sorted(numbered):
        yield path


def _put(store: Store, path: Path) -> None:
    with path.open("rb") as source:
        store.upload(f"{PREFIX}{path.parent.name}/{path.name}", source)
