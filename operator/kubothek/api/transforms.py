"""The transformation of a derivative ledger in a manifest, and when it runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from kubothek.api.meta import NAME_LIMIT, Lenient, Strict
from kubothek.api.values import NAME_PATTERN, Duration

_ID: Final = re.compile(r"did:odf:[a-zA-Z0-9+/=]+")
_NAME: Final = re.compile(NAME_PATTERN)
MOST_INPUTS: Final = 16


class Transform(Strict):
    """When a derivative runs, and what happens when its inputs or its SQL change."""

    min_records: Annotated[int, Field(ge=1, le=10**12)] = 1
    """Takes effect at once. Minimum number of new records in all inputs together for a run, unless `maxWait` is over.
    It affects when runs start, never their result."""
    max_wait: Duration = "10m"
    """Takes effect at once. Maximum time for which new data waits: for `minRecords`, and for other inputs that have yet
    to process the same state of a shared ancestor."""
    suspend: bool = False
    """Takes effect at once. True: start no runs; everything else continues. `status.ledger.inputs` shows how far it is
    behind."""
    on_change: Literal["Stop", "Continue", "Reset"] = "Stop"
    """Takes effect at once. What to do when spec.ledger has another transformation, or an input has another schema or
    another history. Stop: run nothing, and report the change in a condition. Continue: keep existing data and continue
    with the change. Reset: rebuild all data under the same identity."""


class LedgerInput(Lenient):
    """The read position of a derivative in one of its inputs."""

    name: str
    """The Dataset; if none with that identity is known, the name in the SQL."""
    id: str
    """Its identity."""
    block: str | None = None
    """The hash of the last block that was read; absent before the first run."""
    offset: int | None = None
    """The offset of the last record that was read."""
    behind: int | None = None
    """Number of records of the input that were not read yet, as far as known."""


class Lineage(Lenient):
    """The lineage of a ledger, among the Datasets of this namespace."""

    roots: Annotated[tuple[str, ...], Field(max_length=64)] = ()
    """The root Datasets of its data."""
    depth: int = 0
    """Number of transformations from the farthest root to this one; 0 for a root."""
    consumers: Annotated[tuple[str, ...], Field(max_length=64)] = ()
    """The Datasets that derive directly from this one."""


def checked_transform(event: Mapping[str, Any]) -> None:
    """Check a SetTransform whose fields are valid. Raises ValueError with the path.

    Inputs are Datasets of the namespace or identities, each once; all queries but the last have names (ST-01 … ST-05).
    """
    inputs: Sequence[Mapping[str, Any]] = event["inputs"]
    if not 1 <= len(inputs) <= MOST_INPUTS:
        raise ValueError(f"inputs: there must be 1 to {MOST_INPUTS}")
    aliases = [each.get("alias") or each["datasetRef"] for each in inputs]
    for number, each in enumerate(inputs):
        if not is_input(each["datasetRef"]):
            raise ValueError(
                f"inputs[{number}].datasetRef: {each['datasetRef']!r:.80} is neither the name of a Dataset of this "
                "namespace nor an identity: did:odf:…"
            )
        if each["datasetRef"] in (other["datasetRef"] for other in inputs[:number]):
            raise ValueError(f"inputs[{number}].datasetRef: {each['datasetRef']!r} is an input already")
        if aliases[number] in aliases[:number]:
            raise ValueError(f"inputs[{number}].alias: {aliases[number]!r} names another input already")
    for where, why in _query_problems(event["transform"], aliases):
        raise ValueError(f"transform.{where}: {why}")


def _query_problems(sql: Mapping[str, Any], aliases: Sequence[str]) -> Iterator[tuple[str, str]]:
    if ("query" in sql) == ("queries" in sql):
        yield "query", "give either query, or queries"
        return
    steps = sql.get("queries", [{"query": sql.get("query")}])
    if not steps:
        yield "queries", "there must be one at least"
        return
    seen = list(aliases)
    for number, step in enumerate(steps):
        name, last = step.get("alias"), number == len(steps) - 1
        if name is None and not last:
            yield f"queries[{number}].alias", "is required, as only the last query is the result"
        elif name is not None and last:
            yield f"queries[{number}].alias", "goes without, as the last query is the result"
        elif name in seen:
            yield f"queries[{number}].alias", f"{name!r} names an input or another query already"
        elif name is not None:
            seen.append(name)
    for number, table in enumerate(sql.get("temporalTables", ())):
        if table["name"] not in seen:
            yield f"temporalTables[{number}].name", f"{table['name']!r} is neither an input nor a query"
        elif not table["primaryKey"]:
            yield f"temporalTables[{number}].primaryKey", "there must be one column at least"


def is_input(reference: str) -> bool:
    """Return whether the text can be the ``datasetRef`` of an input: a name of a resource, or an identity."""
    return is_identity(reference) or (len(reference) <= NAME_LIMIT and _NAME.fullmatch(reference) is not None)


def is_identity(reference: str) -> bool:
    """Return whether the text is an identity: ``did:odf:…``."""
    return _ID.fullmatch(reference) is not None
