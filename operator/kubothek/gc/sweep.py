"""Deletion of what a plan lists, while the plan holds."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from kubothek.errors import ObjectNotFound
from kubothek.gc.areas import Kind
from kubothek.gc.plan import Count, Counts, Doomed, Part, objects_of
from kubothek.storage import Store
from kubothek.table.log import DatasetLog, StoreSettings, read_settings
from kubothek.table.log.model import keys
from kubothek.table.log.records import parallel

BATCH: Final = 4000
"""Keys between two reads of the head: as many as the store deletes in one batch."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What of a part was deleted; ``moved``: the plan no longer held, and the rest was not deleted."""

    deleted: Counts
    moved: bool


@dataclass(frozen=True, slots=True)
class Sweep:
    """Deletes what a part lists; plain data, which can be sent to other machines.

    ``etag``      of the head on which the plan holds; it also holds on later heads of ours
    ``final``     whether the head must not change: a tombstone's age decides whether a deletion can be undone
    ``settings``  of the store: a longer grace period protects objects that the plan counts as old
    ``spared``    keys that the plan lists, but that must stay
    """

    uuid: str
    etag: str
    final: bool
    settings: StoreSettings
    spared: frozenset[str]

    def __call__(self, store: Store, part: Part) -> Swept:
        """Delete the objects of a part; check before each batch whether the plan still holds."""
        deleted: dict[Kind, Count] = defaultdict(Count)
        etag = self.etag
        for batch in objects_of(store, self.uuid, part, BATCH):
            seen = self._look(store, etag)
            if seen is None:
                return Swept(dict(deleted), moved=True)
            etag = seen
            doomed = [each for each in batch if each.key not in self.spared]
            if not self.final:
                doomed = self._without_rewritten(store, doomed)
            store.delete([each.key for each in doomed])
            for each in doomed:
                deleted[each.kind] = deleted[each.kind].plus(each.size)
        return Swept(dict(deleted), moved=False)

    def _without_rewritten(self, store: Store, doomed: list[Doomed]) -> list[Doomed]:
        """Remove objects of a chain that were written again: they are named by content, so the key is the same."""
        named = [each for each in doomed if each.kind is Kind.CHAIN]

        def is_rewritten(each: Doomed) -> bool:
            try:
                return store.stat(each.key).modified > each.modified
            except ObjectNotFound:
                return False

        rewritten = {each.key for each, is_new in zip(named, parallel(is_rewritten, named), strict=True) if is_new}
        return [each for each in doomed if each.key not in rewritten]

    def _look(self, store: Store, etag: str) -> str | None:
        """Return the head's ETag; None if the plan no longer holds: a foreign head may build on unknown objects."""
        try:
            if store.get_if_changed(keys.head(self.uuid), etag) is not None:
                seen = None if self.final else DatasetLog(store, self.uuid).journal.observe()
                if seen is None or seen.marker is None or seen.etag is None:
                    return None
                etag = seen.etag
        except ObjectNotFound:
            return None
        return etag if read_settings(store) == self.settings else None
