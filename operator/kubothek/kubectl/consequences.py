"""Consequences of a manifest change for the data: what is rewritten, rebuilt, deleted. Pure functions.

They depend only on the spec and on the table in the status. They never read the store, so that planning needs no
credentials for it. Sizes are as of the last inspection.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from kubothek.api.commit import Commit
from kubothek.api.compaction import Compaction
from kubothek.api.cube import Cube
from kubothek.api.dataset import Dataset
from kubothek.api.gcpolicy import GCPolicy
from kubothek.api.ledger import Ledger
from kubothek.api.meta import Resource
from kubothek.api.objectstore import ObjectStore
from kubothek.api.query import Query
from kubothek.api.values import render_bytes
from kubothek.controller.context import Lookup
from kubothek.controller.kinds.targets import matcher
from kubothek.words import count


class Effect(StrEnum):
    """Effect on data, worst first."""

    DELETE = "delete"
    REWRITE = "rewrite"
    REBUILD = "rebuild"
    RUN = "run"
    NOTE = "note"

    @property
    def costly(self) -> bool:
        """Whether a user should review it: data is deleted, rewritten or rebuilt."""
        return self in (Effect.DELETE, Effect.REWRITE, Effect.REBUILD)


@dataclass(frozen=True, slots=True)
class Consequence:
    """One effect, with its message."""

    effect: Effect
    told: str


_LAYOUT = ("sort_by", "bucket_by", "num_buckets", "target_file_size", "row_group_rows", "compression")


def of_change(old: Resource | None, new: Resource, there: Lookup) -> Iterator[Consequence]:
    """Yield the consequences of creating a resource, or of changing ``old``, which has the status, into ``new``."""
    if isinstance(new, Dataset):
        yield from _of_dataset(old if isinstance(old, Dataset) else None, new)
    elif isinstance(new, GCPolicy):
        yield from _of_policy(old if isinstance(old, GCPolicy) else None, new, there)
    elif old is None and isinstance(new, Commit):
        yield from _of_commit(new, there)
    elif old is None and isinstance(new, Compaction) and not new.spec.dry_run:
        target = there.get(Dataset, new.namespace, new.spec.dataset_ref.name)
        yield Consequence(Effect.REWRITE, f"small files of Dataset {new.spec.dataset_ref.name!r}{_size(target)}")
    elif old is None and isinstance(new, Query):
        replaced = new.spec.result.dataset_ref is not None
        yield Consequence(Effect.REWRITE if replaced else Effect.RUN, new.spec.result.effect)


def of_deletion(old: Resource, there: Lookup) -> Iterator[Consequence]:
    """Yield the consequences of deleting a resource."""
    if isinstance(old, Dataset):
        if old.spec.deletion_policy == "Delete" and not old.spec.suspend:
            told = f"its data{_size(old)}; within the grace period a new Dataset with spec.restore restores it"
            yield Consequence(Effect.DELETE, told)
        else:
            yield Consequence(Effect.NOTE, f"its data stays in the store{_size(old)}")
    elif isinstance(old, Cube):
        yield Consequence(Effect.NOTE, "the data of its Datasets stays in the store")
    elif isinstance(old, GCPolicy):
        yield Consequence(Effect.NOTE, "what it kept is kept no more, if another policy selects the same Datasets")
    elif isinstance(old, ObjectStore):
        users = [each.name for each in there.list(Dataset, old.namespace) if each.spec.store_ref.name == old.name]
        if users:
            yield Consequence(Effect.NOTE, f"{count(len(users), 'Dataset')} can be written no more: {', '.join(users)}")


def _of_dataset(old: Dataset | None, new: Dataset) -> Iterator[Consequence]:
    if old is None:
        return
    yield from _of_table(old, new)
    size = _size(old)
    compaction = new.spec.maintenance.compaction
    if compaction is not None and compaction != old.spec.maintenance.compaction:
        ordered = bool(compaction.sort_by or compaction.z_order_by)
        which = "all files are put in order" if ordered else "partitions with enough small files"
        yield Consequence(Effect.REWRITE, f"{which}{size}")
    removed = {tag.name for tag in old.spec.tags or ()} - {tag.name for tag in new.spec.tags or ()}
    if new.spec.tags is not None and removed:
        yield Consequence(Effect.DELETE, f"the tags {', '.join(sorted(removed))}: a GCPolicy may expire their versions")
    if (old.spec.deletion_policy, new.spec.deletion_policy) == ("Retain", "Delete"):
        yield Consequence(Effect.NOTE, f"from now on, deleting this Dataset deletes its data{size}")
    if old.spec.ledger is not None and new.spec.ledger is not None:
        yield from _of_chain(old.spec.ledger, new.spec.ledger)
    if new.spec.restore and not old.spec.restore and old.status.deleted:
        yield Consequence(Effect.RUN, "its data, which was deleted, is restored")


def _of_chain(old: Ledger, new: Ledger) -> Iterator[Consequence]:
    if old.metadata == new.metadata:
        return
    before, after = ([event for event in each.metadata if event["kind"] == "SetTransform"] for each in (old, new))
    if before == after:
        yield Consequence(Effect.RUN, "events are added to its chain")
    elif new.following.on_change == "Reset":
        yield Consequence(Effect.REWRITE, "another transformation: all its data is rebuilt under the same identity")
    elif new.following.on_change == "Continue":
        yield Consequence(Effect.RUN, "another transformation, from now on; existing data does not change")
    else:
        told = "another transformation: it stops, with TransformChanged, until ledger.transform.onChange says more"
        yield Consequence(Effect.NOTE, told)


def _of_table(old: Dataset, new: Dataset) -> Iterator[Consequence]:
    before, after, size = old.spec.table, new.spec.table, _size(old)
    if after.indices is not None:
        had = {index.column: index.kind for index in before.indices or old.status.indices}
        wanted = {index.column: index.kind for index in after.indices}
        for column in sorted(column for column in wanted if wanted[column] != had.get(column)):
            yield Consequence(Effect.REBUILD, f"the index on {column} is built from every file{size}")
        for column in sorted(had.keys() - wanted.keys()):
            yield Consequence(Effect.DELETE, f"the index on {column}; no rows")
    if after.skipping is not None and after.skipping != before.skipping:
        yield Consequence(Effect.REBUILD, f"the skipping metadata is rebuilt from every file{size}")
    if after.dialect is not None and after.dialect != old.status.dialect:
        yield Consequence(Effect.REBUILD, f"the Kartothek indices are written in the dialect of {after.dialect}")
    changed = [name for name in _LAYOUT if getattr(after, name) != getattr(before, name)]
    if changed and old.status.files:
        yield Consequence(Effect.NOTE, f"files that are there{size} do not change until a compaction rewrites them")


def _of_policy(old: GCPolicy | None, new: GCPolicy, there: Lookup) -> Iterator[Consequence]:
    """Yield what would be collected, according to the last inspections."""
    asked = None if old is None else (old.spec.selector, old.spec.retention, old.spec.grace_period, old.spec.mode)
    if asked == (new.spec.selector, new.spec.retention, new.spec.grace_period, new.spec.mode) or new.spec.suspend:
        return
    selects = matcher(new.spec.selector)
    for dataset in sorted(filter(selects, there.list(Dataset, new.namespace)), key=lambda each: each.name):
        health = dataset.status.health
        if health is None:
            told = f"of Dataset {dataset.name!r}: it was not inspected yet"
        else:
            expires = new.spec.retention.versions is not None or new.spec.retention.age is not None
            free = health.garbage_bytes + (health.history_bytes if expires else 0)
            files = health.garbage_files + (health.history_files if expires else 0)
            told = f"of Dataset {dataset.name!r}: at most {count(files, 'file')}, {render_bytes(free)}"
            if expires:
                told += f", of {count(health.versions, 'version')}"
        enforced = new.spec.mode == "Enforce"
        yield Consequence(Effect.DELETE if enforced else Effect.NOTE, told if enforced else f"DryRun; {told}")


def _of_commit(commit: Commit, there: Lookup) -> Iterator[Consequence]:
    spec, subject = commit.spec, commit.subject
    dataset = there.get(Dataset, commit.namespace, subject.name) if subject.kind == "Dataset" else None
    operation = spec.cube.operation if spec.cube is not None else spec.operation
    where = f" where {spec.where}" if spec.where is not None else ""
    told = f"{operation} of {subject}{where}{_size(dataset)}"
    if operation in ("Delete", "RemovePartitions", "Cleanup"):
        expiry = "; all versions before it expire" if spec.purge else ""
        yield Consequence(Effect.DELETE, told + expiry)
    elif operation in ("Overwrite", "Replace", "Update", "Rollback"):
        yield Consequence(Effect.REWRITE, told)
    else:
        yield Consequence(Effect.RUN, told)


def _size(dataset: Dataset | None) -> str:
    if dataset is None or not dataset.status.files:
        return ""
    table = dataset.status
    return f" ({count(table.files, 'file')}, {render_bytes(table.bytes)})"
