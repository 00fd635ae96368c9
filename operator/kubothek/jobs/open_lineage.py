"""Runs of jobs for an OpenLineage collector: one event when a run begins, and one when it ends.

The events follow specification 2-0-2. If a collector is unreachable or refuses an event, the run continues and the log
has a warning.
"""

from __future__ import annotations

import logging
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit
from uuid import UUID, uuid5

import orjson
import pyarrow as pa

from kubothek.api.jobs import OpenLineage
from kubothek.errors import LakeError
from kubothek.jobs.outcome import shortened
from kubothek.table.schema import type_name

if TYPE_CHECKING:
    from kubothek.sql.read import Read  # imports DuckDB, which most jobs do not need

ENDPOINT: Final = "/api/v1/lineage"
"""Path of the API, below the URL of the collector."""
_SECONDS: Final = 5.0
_SPEC: Final = "https://openlineage.io/spec"
_RUNS: Final = UUID("6f5f4a2e-9f0c-5d6e-8a55-0b4f5d1c7e21")
"""Namespace of run ids: a job that runs again reports the same run."""
_MESSAGE_LIMIT: Final = 1000
_FACETS: Final = {
    "sql": "1-0-1/SQLJobFacet",
    "jobType": "2-0-3/JobTypeJobFacet",
    "errorMessage": "1-0-1/ErrorMessageRunFacet",
    "schema": "1-1-1/SchemaDatasetFacet",
    "version": "1-0-1/DatasetVersionDatasetFacet",
    "outputStatistics": "1-0-2/OutputStatisticsOutputDatasetFacet",
}
"""Where each facet is specified."""

EventType = Literal["START", "COMPLETE", "FAIL"]
Json = dict[str, Any]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LineageDataset:
    """A dataset that a run reads or writes.

    ``url``      of its store
    ``name``     its name there
    ``version``  None if it is not known yet
    ``schema``   the columns of a written one
    ``rows``     number of written rows
    """

    url: str
    name: str
    version: str | None = None
    schema: pa.Schema | None = None
    rows: int | None = None


@dataclass(slots=True)
class Run:
    """A run, as far as it is known: jobs add inputs and outputs when they know them.

    ``id``   permanent name of the run
    ``job``  name of the job, the same for all runs that do the same
    """

    id: str
    job: str
    type: Literal["TRANSFORM", "COMMIT", "QUERY"]
    sql: str | None
    output: LineageDataset
    inputs: tuple[LineageDataset, ...] = ()

    def note_reads(self, url: str, reads: Iterable[Read]) -> None:
        """Note what a statement reads of a store. Plain files have no version."""
        versions = {read.name: str(read.version) if read.version else None for read in reads}
        self.inputs = tuple(LineageDataset(url, name, version) for name, version in versions.items())


@contextmanager
def reporting(to: OpenLineage | None, describe: Callable[[], Run]) -> Iterator[None]:
    """Report the run inside the context; ``describe`` returns its present description, and may raise LakeError."""
    if to is None:
        yield
        return
    _send(to, describe, "START")
    try:
        yield
    except Exception as error:
        _send(to, describe, "FAIL", error=str(error))
        raise
    _send(to, describe, "COMPLETE")


def _send(to: OpenLineage, describe: Callable[[], Run], what: EventType, *, error: str | None = None) -> None:
    try:
        _post(to.url, event_of(to.namespace, describe(), what, error=error))
    except (OSError, ValueError, LakeError) as why:
        _log.warning("cannot report the run to %s: %s", to.url, why)


def _post(url: str, event: Json) -> None:
    """Send the event. Raises OSError if it is not accepted, ValueError for a URL that is not HTTP."""
    where = f"{url.rstrip('/')}{ENDPOINT}"
    if urlsplit(where).scheme not in ("http", "https"):
        raise ValueError("the url of an OpenLineage collector begins with http:// or https://")
    headers = {"Content-Type": "application/json", "User-Agent": f"kubothek/{version('kubothek')}"}
    request = urllib.request.Request(where, data=orjson.dumps(event), method="POST", headers=headers)  # noqa: S310
    with urllib.request.urlopen(request, timeout=_SECONDS):  # noqa: S310 - of these two schemes
        pass


def event_of(namespace: str, run: Run, what: EventType, *, error: str | None = None) -> Json:
    """Return a RunEvent."""
    failed = {} if error is None else {"errorMessage": _error(error)}
    facets = {"jobType": _facet("jobType", processingType="BATCH", integration="KUBOTHEK", jobType=run.type)}
    if run.sql is not None:
        facets["sql"] = _facet("sql", query=run.sql)
    return {
        "eventType": what,
        "eventTime": datetime.now(UTC).isoformat(),
        "run": {"runId": str(uuid5(_RUNS, run.id)), "facets": failed},
        "job": {"namespace": namespace, "name": run.job, "facets": facets},
        "inputs": [_dataset(each) for each in run.inputs],
        "outputs": [_dataset(run.output)],
        "producer": _producer(),
        "schemaURL": f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent",
    }


def _dataset(dataset: LineageDataset) -> Json:
    """Return a dataset by its location: bucket and path in it, as the naming rules of OpenLineage ask."""
    parts = urlsplit(dataset.url)
    namespace = f"{parts.scheme}://{parts.netloc}" if parts.netloc else parts.scheme
    place = "/".join(part for part in (parts.path.strip("/"), dataset.name) if part)
    facets: Json = {}
    if dataset.version is not None:
        facets["version"] = _facet("version", datasetVersion=dataset.version)
    if dataset.schema is not None:
        fields = [{"name": each.name, "type": type_name(each.type)} for each in dataset.schema]
        facets["schema"] = _facet("schema", fields=fields)
    found: Json = {"namespace": namespace, "name": place if parts.netloc else f"/{place}", "facets": facets}
    if dataset.rows is not None:
        found["outputFacets"] = {"outputStatistics": _facet("outputStatistics", rowCount=dataset.rows)}
    return found


def _error(error: str) -> Json:
    return _facet("errorMessage", message=shortened(error, _MESSAGE_LIMIT), programmingLanguage="SQL")


def _facet(name: str, **fields: Any) -> Json:
    place = _FACETS[name]
    return {
        "_producer": _producer(),
        "_schemaURL": f"{_SPEC}/facets/{place}.json#/$defs/{place.partition('/')[2]}",
        **fields,
    }


def _producer() -> str:
    return f"https://kubothek.io/releases/{version('kubothek')}"
