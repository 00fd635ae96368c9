"""Whether a change that was made for one head may go on top of another. Pure functions.

The heads are compared, not the commits between them: the question is whether the change would be the same, had it
been made for the newer head. Two commits that cancel each other out are no conflict, and foreign changes take part
like any other (commit-protocol, "Conflict").
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kubothek.table.log.model.changes import Nothing, ReadPredicate, depends_on
from kubothek.table.log.model.head import Head
from kubothek.table.log.model.paths import partition_path
from kubothek.table.log.model.record import Delta

_SHOWN = 10


def conflicts(base: Head, now: Head, *, removed: Mapping[str, str], reads: ReadPredicate) -> tuple[str, ...]:
    """Return what prevents the change on top of ``now``, as messages; empty if nothing does.

    ``removed`` maps label to key. The rules:

    a. every removed label is still there, with the same file;
    b. since ``base``, no file that matches the read predicate was added or removed.

    Indices never conflict: every commit brings those of the head below it up to date (:mod:`kubothek.table.indexes`).
    """
    if base is now:
        return ()
    found = [f"file {key} is no longer in the table" for label, key in removed.items() if not now.holds(label, key)]
    if not isinstance(reads, Nothing):
        changed = _changed_paths(base, now)
        found += [_describe(path) for path in sorted(changed) if depends_on(reads, path)]
    return tuple(dict.fromkeys(found))


def touches(delta: Delta, removed: Mapping[str, str], reads: ReadPredicate) -> bool:
    """Return whether one commit removed a file that a change removes, or changed files that match what it reads."""
    if any(removed.get(label) == key for label, key in delta.removed):
        return True
    paths = {partition_path(key) for _, key in delta.files}
    return any(depends_on(reads, path) for path in paths)


def summary(found: Collection[str]) -> str:
    """Return the first few of a list of conflicts, and how many more there are."""
    shown = "; ".join(list(found)[:_SHOWN])
    return shown if len(found) <= _SHOWN else f"{shown}; and {len(found) - _SHOWN} more"


def _changed_paths(base: Head, now: Head) -> set[str]:
    """Return the partition paths in which files were added or removed."""
    if base.partitions is now.partitions:
        return set()
    paths = {partition_path(base.file(k)) for k, v in base.partitions.items() if now.partitions.get(k) != v}
    return paths | {partition_path(now.file(k)) for k, v in now.partitions.items() if base.partitions.get(k) != v}


def _describe(path: str) -> str:
    return f"partition {path} changed" if path else "the table changed"
