"""Skipping metadata in a commit: from the current head and a change to the skipping metadata of the next head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from kubothek.table.log.journal import Journal
from kubothek.table.log.model.head import SKIPPING, Head
from kubothek.table.skipping.collect.collectors import entry_schema
from kubothek.table.skipping.entries import definitions_tag
from kubothek.table.skipping.model import NO_SKIPPING_CHANGE, NONE, SkippingChange, SkippingState
from kubothek.table.skipping.names import definitions_tag_of
from kubothek.table.skipping.refresh import tidied


def skipping_after(
    journal: Journal,
    head: Head,
    *,
    added: Mapping[str, str],
    removed: Mapping[str, str],
    schema: pa.Schema | None,
    partition_keys: Sequence[str],
    change: SkippingChange = NO_SKIPPING_CHANGE,
) -> SkippingState:
    """Return the skipping metadata after these files (key by label) were added and removed; stores merged parts.

    Describes no file: readers read a file without an entry, and maintenance describes it.
    """
    before = head.skipping
    begins = None if before.indices or head.partitions else change.begins
    definitions = change.wanted or begins or before
    definitions = replace(definitions, without=before.without if change.without is None else change.without)
    if not definitions.indices:
        return replace(definitions, parts=(), without=0)
    stays = len(removed) < len(head.partitions)
    kept = tuple(part for part in before.parts if stays and change.instead_of.isdisjoint(part.keys))
    if schema is None:
        return replace(definitions, parts=kept)
    entries = entry_schema(definitions, schema, partition_keys)
    tag, known = definitions_tag(entries, definitions.encryption), {part.keys for part in kept}
    # A writer that did not know the current definition described its files by another one.
    new = tuple(part for part in change.written if part.keys not in known and definitions_tag_of(part.keys[0]) == tag)
    state = replace(definitions, parts=kept + new)
    if not new:
        return state
    keys = _Keys(head, added, removed)
    parts = tidied(
        journal.store,
        head.uuid,
        head.table,
        entries,
        state.parts,
        keys.__contains__,
        encryption=state.encryption,
    )
    return replace(state, parts=tuple(parts))


def skipping_metadata(state: SkippingState) -> dict[str, Any]:
    """Return the head's metadata for it; None removes the key."""
    return {SKIPPING: None if state == NONE else state.to_json()}


class _Keys:
    """The keys of the table's files after a change, computed when a merge asks, which few commits do."""

    def __init__(self, head: Head, added: Mapping[str, str], removed: Mapping[str, str]) -> None:
        self._head = head
        self._added = added
        self._removed = removed
        self._known: set[str] | None = None

    def __contains__(self, key: str) -> bool:
        if self._known is None:
            self._known = (set(self._head.files().values()) - set(self._removed.values())) | set(self._added.values())
        return key in self._known

    def __len__(self) -> int:
        return len(self._head.partitions) - len(self._removed) + len(self._added)
