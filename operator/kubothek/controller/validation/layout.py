"""A Dataset beside the table that is in the store, as the last job saw it."""

from __future__ import annotations

from collections.abc import Iterator

from kubothek.api.dataset import Dataset, DatasetStatus
from kubothek.controller.context import Lookup
from kubothek.controller.finding import Finding


def other_partitions(dataset: Dataset, _: Lookup) -> Iterator[Finding]:
    """A table that lies there partitioned otherwise, as when a Dataset is created anew over data that was kept."""
    why = layout_mismatch(dataset, dataset.status)
    if why is not None:
        yield Finding("LayoutMismatch", "spec.table.partitionOn", why)


def layout_mismatch(dataset: Dataset, status: DatasetStatus) -> str | None:
    """Why rows that are written would be refused; None if the table has, or may get, the partitions of the spec.

    The tables of ledgers and cubes follow from their chains and Cubes, which say it themselves.
    """
    spec, there = dataset.spec, status.partition_on
    if there is None or status.deleted or spec.ledger is not None or dataset.cube is not None:
        return None
    if there == spec.table.partition_on or (spec.adopt and not spec.table.partition_on):
        return None
    return (
        f"the table in the store is partitioned on {', '.join(there) or 'nothing'}: create the Dataset anew with these "
        "columns, or with another uuid; or replace the table by a Commit with Overwrite and allowSchemaChange"
    )


def unknown_tags(dataset: Dataset, _: Lookup) -> Iterator[Finding]:
    """Tags for versions that are not there. Not denied: a Commit on its way may make them."""
    newest = dataset.status.version
    for index, tag in enumerate(dataset.spec.tags or ()):
        if newest is not None and tag.version > newest:
            message = f"version {tag.version} is not there, the newest is {newest}: correct it, or commit first"
            yield Finding("VersionNotFound", f"spec.tags[{index}].version", message, denies=False)
