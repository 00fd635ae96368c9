"""Lineage of a derivative for an OpenLineage collector: one event when a run begins, and one when it ends.

The events follow specification 2-0-2. Their facets hold what the ledger knows: the SQL, the columns, and the blocks
read and written. If a collector is unreachable or refuses an event, the run continues and the log has a warning.
"""

from __future__ import annotations

import logging
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final, Literal
from urllib.parse import urlsplit
from uuid import UUID, uuid5

import orjson

from kubothek.api.jobs import OpenLineage
from kubothek.errors import LakeError
from kubothek.jobs.deriving import Derived
from kubothek.jobs.outcome import shortened
from kubothek.odf.derived import Derivative, Inputs
from kubothek.odf.derived.inputs import located
from kubothek.odf.spec.events import SetTransform, TransformInput
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.sources import TransformSql
from kubothek.storage import Store
from kubothek.table.schema import type_name

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

Json = dict[str, Any]
_log = logging.getLogger(__name__)


@contextmanager
def reporting(
    to: OpenLineage | None, derivative: Derivative, inputs: Inputs, *, run: str
) -> Iterator[Callable[[Derived], Derived]]:
    """Report the run inside the context; pass its result to the function that the context yields.

    ``run``  permanent name of the run
    """
    if to is None:
        yield lambda done: done
        return
    found: list[Derived] = []

    def end(done: Derived) -> Derived:
        found.append(done)
        return done

    _send(to, derivative, inputs, run, "START")
    try:
        yield end
    except Exception as error:
        _send(to, derivative, inputs, run, "FAIL", error=str(error))
        raise
    _send(to, derivative, inputs, run, "COMPLETE", done=found[-1] if found else None)


def _send(
    to: OpenLineage,
    derivative: Derivative,
    inputs: Inputs,
    run: str,
    what: Literal["START", "COMPLETE", "FAIL"],
    *,
    done: Derived | None = None,
    error: str | None = None,
) -> None:
    try:
        _post(to.url, event_of(to.namespace, derivative, inputs, run, what, done=done, error=error))
    except (OSError, ValueError, LakeError) as why:
        _log.warning("cannot report the run of %s to %s: %s", derivative.uuid, to.url, why)


def _post(url: str, event: Json) -> None:
    """Send the event. Raises OSError if it is not accepted, ValueError for a URL that is not HTTP."""
    where = f"{url.rstrip('/')}{ENDPOINT}"
    if urlsplit(where).scheme not in ("http", "https"):
        raise ValueError("the url of an OpenLineage collector begins with http:// or https://")
    headers = {"Content-Type": "application/json", "User-Agent": f"kubothek/{version('kubothek')}"}
    request = urllib.request.Request(where, data=orjson.dumps(event), method="POST", headers=headers)  # noqa: S310
    with urllib.request.urlopen(request, timeout=_SECONDS):  # noqa: S310 - of these two schemes
        pass


def event_of(
    namespace: str,
    derivative: Derivative,
    inputs: Inputs,
    run: str,
    what: Literal["START", "COMPLETE", "FAIL"],
    *,
    done: Derived | None = None,
    error: str | None = None,
) -> Json:
    """Return a RunEvent. Its job is named after the dataset that the run writes."""
    state = derivative.state
    transform = state.transform
    assert transform is not None, "a derivative begins with one"
    failed = {"errorMessage": _facet("errorMessage", message=_short(error), programmingLanguage="SQL")} if error else {}
    return {
        "eventType": what,
        "eventTime": datetime.now(UTC).isoformat(),
        "run": {"runId": str(uuid5(_RUNS, run)), "facets": failed},
        "job": {
            "namespace": namespace,
            "name": derivative.uuid,
            "facets": {
                "jobType": _facet("jobType", processingType="BATCH", integration="KUBOTHEK", jobType="TRANSFORM"),
                "sql": _facet("sql", query=_sql(transform)),
            },
        },
        "inputs": [
            _dataset(derivative.store, _uuid(inputs, each), _block_read(derivative, each.dataset_ref))
            for each in transform.inputs
        ],
        "outputs": [_output(derivative, done)],
        "producer": _producer(),
        "schemaURL": f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent",
    }


def _uuid(inputs: Inputs, named: TransformInput) -> str:
    try:
        return located(inputs, named).uuid
    except LakeError:  # the run itself reports the error
        return named.alias or named.dataset_ref


def _block_read(derivative: Derivative, identity: str) -> str | None:
    read = derivative.state.consumed.get(DatasetId.parse(identity))
    return None if read is None or read.block is None else str(read.block)


def _output(derivative: Derivative, done: Derived | None) -> Json:
    found = _dataset(derivative.store, derivative.uuid, str(derivative.state.head))
    if derivative.state.schema is not None:
        fields = [{"name": each.name, "type": type_name(each.type)} for each in derivative.state.schema]
        found["facets"]["schema"] = _facet("schema", fields=fields)
    if done is not None:
        found["outputFacets"] = {"outputStatistics": _facet("outputStatistics", rowCount=done.records)}
    return found


def _dataset(store: Store, name: str, block: str | None) -> Json:
    """Return a dataset by its location: bucket and path in it, as the naming rules of OpenLineage ask."""
    parts = urlsplit(store.url)
    namespace = f"{parts.scheme}://{parts.netloc}" if parts.netloc else parts.scheme
    place = "/".join(part for part in (parts.path.strip("/"), name) if part)
    facets = {} if block is None else {"version": _facet("version", datasetVersion=block)}
    return {"namespace": namespace, "name": place if parts.netloc else f"/{place}", "facets": facets}


def _sql(transform: SetTransform) -> str:
    sql = transform.transform
    if not isinstance(sql, TransformSql):
        return ""
    steps = [step for step in sql.queries or () if step.alias is not None]
    last = next((step.query for step in sql.queries or () if step.alias is None), "")
    named = ", ".join(f"{step.alias} AS ({step.query})" for step in steps)
    return f"WITH {named} {last}" if named else last


def _facet(name: str, **fields: Any) -> Json:
    place = _FACETS[name]
    return {
        "_producer": _producer(),
        "_schemaURL": f"{_SPEC}/facets/{place}.json#/$defs/{place.partition('/')[2]}",
        **fields,
    }


def _producer() -> str:
    return f"https://kubothek.io/releases/{version('kubothek')}"


def _short(text: str) -> str:
    return shortened(text, _MESSAGE_LIMIT)
