"""The writers of a Dataset beside its manifests: what the head of its table permits them."""

from __future__ import annotations

from dataclasses import replace

from kubothek.api.jobs import DatasetRef
from kubothek.jobs import translate
from kubothek.storage import Store
from kubothek.table.indexes import IndexChange, check_indexable
from kubothek.table.layout import Layout
from kubothek.table.log import Change, DatasetLog, Operation, Snapshot
from kubothek.table.partitioning import check_new_table, check_without_time_zones
from kubothek.table.schema import normalise, without_time_zones
from kubothek.table.skipping.model import SkippingChange
from kubothek.table.skipping.refresh import beginning
from kubothek.table.time_zones import zones_in


def admit_writers(store: Store, log: DatasetLog, dataset: DatasetRef) -> bool:
    """Let the head permit exactly the writers of the Dataset; return whether that took a commit. Idempotent.

    With writers, the commit also sets the layout of the Dataset, and creates a table if there is none: a writer needs
    both. No commit of a writer under the former grant succeeds afterwards.

    Raises LayoutInvalid, SchemaMismatch, PartitionInvalid and IndexInvalid for an invalid spec.table, and what
    :meth:`DatasetLog.begin_new` raises.
    """
    wanted = translate.grant(dataset)
    started = log.begin_new("writers")
    snapshot = started.snapshot
    if not snapshot.exists:
        if not wanted.writers:
            return False
        change = _created(store, snapshot, dataset)
    elif (granted := _granted(snapshot, dataset)) is not None:
        change = granted
    else:
        return False
    started.commit(replace(change, grant=wanted, by=dataset.claim.owner))
    return True


def _granted(snapshot: Snapshot, dataset: DatasetRef) -> Change | None:
    """Return the change of layout and grant of an existing table; None if it has both."""
    wanted, present = translate.grant(dataset), snapshot.head.grant
    layout = None
    if wanted.writers:
        asked = Layout.of(snapshot.head, translate.layout(dataset, snapshot.head))
        if snapshot.schema is not None:
            asked.check(snapshot.schema)
        layout = None if asked == Layout.of(snapshot.head) else asked.to_json()
    same = present == wanted if wanted.writers else present is None
    return None if same and layout is None else Change(operation=Operation.LAYOUT, layout=layout)


def _created(store: Store, snapshot: Snapshot, dataset: DatasetRef) -> Change:
    """Return the creation of an empty table with the columns, indices and layout of the Dataset."""
    layout, indices = translate.layout(dataset, snapshot.head), translate.indices(dataset.table) or {}
    declared = translate.schema(dataset.table.columns)
    stored, skipping = None, None
    if declared is not None:
        check_without_time_zones(declared, layout.partition_on)
        stored = normalise(without_time_zones(declared), layout.partition_on)
        check_new_table(stored, layout.partition_on)
        layout.check(stored)
        check_indexable(stored, layout.partition_on, indices.items())
        if dataset.table.skipping is not None:
            skipping = beginning(store, translate.skipping(dataset.table.skipping), stored, layout.partition_on)
    return Change(
        operation=Operation.CREATE,
        schema=stored,
        partition_keys=layout.partition_on,
        layout=layout.to_json(),
        zones={} if declared is None else zones_in(declared),
        index=IndexChange(wanted=indices, dialect=translate.dialect(dataset.table)),
        skipping=SkippingChange(wanted=skipping),
    )
