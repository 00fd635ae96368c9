"""Runs of derivatives for an OpenLineage collector: SQL, columns, and blocks read and written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kubothek.api.jobs import OpenLineage
from kubothek.errors import LakeError
from kubothek.jobs import open_lineage
from kubothek.jobs.deriving import Derived
from kubothek.jobs.open_lineage import LineageDataset, Run
from kubothek.odf.derived import Derivative, Inputs
from kubothek.odf.derived.inputs import located
from kubothek.odf.spec.events import SetTransform, TransformInput
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.sources import TransformSql


@contextmanager
def reporting(
    to: OpenLineage | None, derivative: Derivative, inputs: Inputs, *, run: str
) -> Iterator[Callable[[Derived], Derived]]:
    """Report the run inside the context; pass its result to the function that the context yields.

    ``run``  permanent name of the run
    """
    found: list[Derived] = []

    def end(done: Derived) -> Derived:
        found.append(done)
        return done

    with open_lineage.reporting(to, lambda: _run(derivative, inputs, run, found[-1] if found else None)):
        yield end


def _run(derivative: Derivative, inputs: Inputs, run: str, done: Derived | None) -> Run:
    """Return the run. Its job is named after the dataset that it writes."""
    state, url = derivative.state, derivative.store.url
    transform = state.transform
    assert transform is not None, "a derivative begins with one"
    return Run(
        id=run,
        job=derivative.uuid,
        type="TRANSFORM",
        sql=_sql(transform),
        output=LineageDataset(
            url, derivative.uuid, str(state.head), state.schema, None if done is None else done.records
        ),
        inputs=tuple(
            LineageDataset(url, _uuid(inputs, each), _block_read(derivative, each.dataset_ref))
            for each in transform.inputs
        ),
    )


def _uuid(inputs: Inputs, named: TransformInput) -> str:
    try:
        return located(inputs, named).uuid
    except LakeError:  # the run itself reports the error
        return named.alias or named.dataset_ref


def _block_read(derivative: Derivative, identity: str) -> str | None:
    read = derivative.state.consumed.get(DatasetId.parse(identity))
    return None if read is None or read.block is None else str(read.block)


def _sql(transform: SetTransform) -> str:
    sql = transform.transform
    if not isinstance(sql, TransformSql):
        return ""
    steps = [step for step in sql.queries or () if step.alias is not None]
    last = next((step.query for step in sql.queries or () if step.alias is None), "")
    named = ", ".join(f"{step.alias} AS ({step.query})" for step in steps)
    return f"WITH {named} {last}" if named else last
