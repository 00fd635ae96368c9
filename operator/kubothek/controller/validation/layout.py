"""Rules about a Dataset and the table in the store, as the last job observed it."""

from __future__ import annotations

from collections.abc import Iterator

from kubothek.api.dataset import Dataset, DatasetStatus
from kubothek.controller.context import Lookup
from kubothek.controller.finding import Finding


def other_partitions(dataset: Dataset, _: Lookup) -> Iterator[Finding]:
    """Yield a finding if the existing table has other partitions, for example after a Dataset was created again."""
    why = layout_mismatch(dataset, dataset.status)
    if why is not None:
        yield Finding("LayoutMismatch", "spec.table.partitionOn", why)


def layout_mismatch(dataset: Dataset, status: DatasetStatus) -> str | None:
    """Return why the store would refuse rows; None if the table has, or may get, the partitions of the spec.

    The tables of ledgers and cubes are skipped: their chains and Cubes determine the layout and check it themselves.
    """
    spec, there = dataset.spec, status.partition_on
    if there is None or status.deleted or spec.ledger is not None or dataset.cube is not None:
        return None
    if there == spec.table.partition_on or (spec.adopt and not spec.table.partition_on):
        return None
    return (
        f"the table in the store is partitioned on {', '.join(there) or 'nothing'}: create the Dataset again with "
        "these columns, or with another uuid; or replace the table by a Commit with Overwrite and allowSchemaChange"
    )


def unknown_tags(dataset: Dataset, _: Lookup) -> Iterator[Finding]:
    """Yield a finding for each tag of a missing version. Not denied: a Commit that runs may create the version."""
    newest = dataset.status.version
    for index, tag in enumerate(dataset.spec.tags or ()):
        if newest is not None and tag.version > newest:
            message = f"version {tag.version} is not there, the newest is {newest}: correct it, or commit first"
            yield Finding("VersionNotFound", f"spec.tags[{index}].version", message, denies=False)
