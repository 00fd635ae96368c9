"""Mark everything that stays: the kept versions, and what they and concurrent commits name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, islice
from pathlib import Path
from typing import Final, TypeVar

from kubothek.errors import (
    ChainCorrupt,
    FormatInvalid,
    IndexStale,
    ObjectNotFound,
    UnsupportedVersion,
    VersionIncomplete,
)
from kubothek.gc import references
from kubothek.gc.areas import Area, Kind, notes
from kubothek.gc.plan import NO_OBJECTS, Count
from kubothek.gc.retention import Retention, is_retained, may_be_read
from kubothek.gc.sorted_keys import SortedKeys, unreferenced
from kubothek.ingest.watch.ledger import Page
from kubothek.odf.chain import read_chain
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.object_links import links_objects
from kubothek.storage import ObjectInfo, Store
from kubothek.table.indexes.native import read_manifest
from kubothek.table.log import Head, Operation, Record
from kubothek.table.log.history.rebuild import rebuild
from kubothek.table.log.journal import Journal, Observed
from kubothek.table.log.model import keys
from kubothek.table.log.model.head import HORIZON, OWN_PREFIX, TAGS, tags_in
from kubothek.table.log.records import Stored, parallel, stored, stored_chain

_AT_ONCE: Final = 256
_KEYS_AT_ONCE: Final = 1024
_NO_VERSIONS: Final = (Operation.EXPIRE, Operation.TAG)
"""Commits that do not count as versions: they neither use up a policy's number nor age older versions."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Moment:
    """The store's time before a collection read the head; unreferenced objects stay up to the age ``grace``."""

    now: datetime
    grace: timedelta

    def is_young(self, written: datetime) -> bool:
        """Return whether an object written then may belong to a concurrent commit."""
        return self.now - written <= self.grace


@dataclass(frozen=True, slots=True)
class Kept:
    """The versions that stay, ``versions`` of them: ``oldest``, all above it on the chain, and tagged ones.

    ``anchors``  versions that cannot be rebuilt from the kept records alone: each needs a checkpoint
    ``tagged``   the records of versions that have tags, or that a cube needs
    """

    oldest: int
    versions: int
    anchors: tuple[Record, ...]
    tagged: frozenset[str]


class References:
    """The referenced keys, by area; keys outside of all areas are ignored."""

    def __init__(self, store: Store, areas: Sequence[Area], directory: Path) -> None:
        self._store = store
        self._by_prefix = {area.prefix: SortedKeys(directory) for area in reversed(areas)}
        self._data = areas[-1].prefix
        self._lists = SortedKeys(directory)
        self._manifests = next(area.prefix for area in areas if area.kind is Kind.INDEX)
        self._pages = next(area.prefix for area in areas if area.kind is Kind.INTAKE)

    def add(self, found: Iterable[str]) -> None:
        """Add those of these keys that are in an area."""
        remaining = iter(found)
        while batch := list(islice(remaining, _KEYS_AT_ONCE)):
            self._by_prefix[self._data].update([key for key in batch if key.startswith(self._data)])
            for key in (key for key in batch if not key.startswith(self._data)):
                for prefix, kept in self._by_prefix.items():
                    if key.startswith(prefix):
                        kept.update((key,))
                        break
                if key.startswith((self._manifests, self._pages)):
                    self._lists.update((key,))

    def resolve(self) -> None:
        """Read the added manifests and pages, and add the files that they name. A missing one names none.

        Raises IndexStale or VersionIncomplete for one that cannot be parsed, as its files are then unknown.
        """
        for names in each_of(self._named_in, self._lists):
            self.add(names)

    def everything(self) -> Iterator[str]:
        """Return all referenced keys."""
        return chain.from_iterable(self._by_prefix.values())

    def of(self, area: Area) -> SortedKeys:
        """Return the referenced keys of an area."""
        return self._by_prefix[area.prefix]

    def _named_in(self, key: str) -> list[str]:
        try:
            if key.startswith(self._manifests):
                return list(references.of_manifest(read_manifest(self._store, key)))
            return list(references.of_page(Page.parse(key, self._store.get(key))))
        except ObjectNotFound:
            return []
        except IndexStale as error:
            if isinstance(error.__cause__, ObjectNotFound):
                return []
            raise


def kept_versions(journal: Journal, seen: Observed, policies: Sequence[Retention], moment: Moment) -> Iterator[Stored]:
    """Yield the commits whose versions stay, newest first: those that policies retain, or that may be in use.

    Of a deleted dataset all versions stay while the deletion can be undone, afterwards only the tombstone. A foreign
    head, which a dry run does not adopt, counts as if its adoption had just replaced the version below it.
    """
    start = seen.marker.record if seen.marker else seen.base.key if seen.base else None
    if start is None:
        return
    accessible = max(seen.head.horizon, seen.head.since + 1)
    restorable: bool | None = None
    newer, stopped = (0, None) if seen.marker else (1, moment.now)
    commits = stored_chain(journal, start)
    parent: keys.RecordKey | None = None
    while True:
        try:
            found = next(commits)
        except VersionIncomplete:
            if parent is not None and parent.version < accessible:
                return  # a collector with a shorter grace period deleted it
            raise
        yield found
        parent = keys.parse_record(journal.uuid, found.record.parent)
        if parent is None:
            return
        if found.record.operation not in _NO_VERSIONS:
            newer, stopped = newer + 1, found.written
        recent = _is_recent(found, moment)
        if seen.head.tombstone:
            restorable = recent if restorable is None else restorable
            retained = restorable
        else:
            retained = is_retained(policies, newer=newer, stopped=stopped, now=moment.now)
        if not recent and not (retained and parent.version >= accessible):
            return


def mark_versions(
    journal: Journal,
    seen: Observed,
    policies: Sequence[Retention],
    moment: Moment,
    into: References,
    pinned: frozenset[str] = frozenset(),
) -> Kept:
    """Mark what the kept versions name, and commits that a user has to decide about. Memory: one head, not a history.

    ``pinned``  the records of versions that stay whatever the policies say
    """
    if seen.head.tombstone and not pinned and (final := _mark_tombstone(journal, seen, moment, into)) is not None:
        return final
    restored: list[Record] = []
    tags = TaggedVersions(seen.head, lambda successor: _is_recent(successor, moment), pinned)
    count, last, grown = (0, None, True) if seen.marker else (1, None, False)
    if seen.marker is None:
        into.add((*references.of_head(seen.head), *notes(journal.uuid)))
    for found in kept_versions(journal, seen, policies, moment):
        grown = grown and (last is None or (not seen.head.tombstone and _only_adds(last)))
        last = found.record
        into.add((last.key, *references.of_record(last)))
        if _is_recent(found, moment):
            into.add(last.replaced)
        if last.restores is not None:
            restored.append(last)
        tags.meet(found)
        count += 1
    if count > 1 or not seen.head.tombstone:
        into.add(notes(journal.uuid))
    for key in (*seen.head.lost, *seen.head.overwritten):
        record = _record_at(journal, key)
        into.add((key, *(_named(record) if record else ())))
    if last is None:  # a foreign head without a commit of ours below
        return Kept(0, count, (), tags.present)
    # If all commits since the oldest version only added files, it need not be rebuilt: the head names all its files.
    oldest = _mark_complete(journal, last, into, seen.head if grown else None)
    anchors = [record for record in restored if record is not last and _restores_below(record, last.version)]
    apart = [key for key in tags.apart() if key not in pinned]
    anchors += [journal.record(key) for key in apart]
    for record in anchors:
        _mark_complete(journal, record, into)
    # A version that a cube needed, but that expired before a policy kept it, stays expired.
    for key in (*(pinned & set(tags.apart())), *tags.lost_lately(oldest)):
        with suppress(VersionIncomplete):  # a collector with a shorter grace period deleted it
            record = journal.record(key)
            _mark_complete(journal, record, into)
            anchors.append(record)
    return Kept(last.version, count + len(tags.apart()), (last, *anchors), tags.present)


def _mark_tombstone(journal: Journal, seen: Observed, moment: Moment, into: References) -> Kept | None:
    """Mark the one thing that stays of a deletion which cannot be taken back; None if it still can.

    Nothing below the tombstone is read: what is lost or damaged there keeps nothing from being collected. If its own
    record is, the head's time tells, which is later.
    """
    if (marker := seen.marker) is None:
        return None
    stone: Stored | None = None
    with suppress(VersionIncomplete):
        stone = stored(journal, marker.record)
    replaced = seen.modified if stone is None else stone.written
    if may_be_read(replaced=replaced, now=moment.now, grace=moment.grace):
        return None
    into.add((marker.record, keys.checkpoint(journal.uuid, marker.version)))
    return Kept(marker.version, 1, () if stone is None else (stone.record,), frozenset())


def _mark_complete(journal: Journal, record: Record, into: References, known: Head | None = None) -> Head:
    """Mark all that a version names, and return its head. ``known``: it, or one with its tags that names no less."""
    head = known or rebuild(journal, record)
    into.add((record.key, keys.checkpoint(journal.uuid, record.version), *references.of_head(head)))
    if head.chain is not None and not head.tombstone:
        into.add(_of_chain(journal, head.chain.head))
    return head


def _of_chain(journal: Journal, head: str) -> Iterator[str]:
    """Yield what the chain of a version names, from this block down to its seed. Reads every block.

    If not only blocks name objects, but records too (RFC-017) or parts that this version does not know, all objects of
    the chain are named. Raises VersionIncomplete if the chain cannot be read, as its names are then unknown.
    """
    layout, names_more = Layout(keys.chain(journal.uuid)), False
    try:
        for stored_block in read_chain(journal.store, layout, Multihash.parse(head)):
            block = stored_block.decode()
            yield from references.of_chain(journal.uuid, block)
            names_more = names_more or bool(block.unknown) or links_objects(block.content.event)
    except (ChainCorrupt, FormatInvalid, UnsupportedVersion) as error:
        raise VersionIncomplete(f"the chain of the ledger {journal.uuid!r} cannot be followed: {error}") from error
    for directory in (layout.slices, layout.checkpoints) if names_more else ():
        yield from (info.key for info in journal.store.list(directory))


def _only_adds(record: Record) -> bool:
    """Return whether the commit's version names all that the version below names, and has the same tags.

    Of the protocol's own metadata only the horizon may change: some of it names objects, and more may in the future.
    """
    delta = record.delta
    owned = any(name.startswith(OWN_PREFIX) and name != HORIZON for name in (*delta.metadata, *delta.dropped))
    return not (owned or delta.removed or delta.indices or record.restores)


class YoungFiles:
    """Uncommitted records within the grace period, and the objects that only they name.

    ``count``  number of these objects without those that a kept version names; bytes of records and data files
    """

    def __init__(self) -> None:
        self._records = NO_OBJECTS
        self._files: dict[str, int] = {}
        self._kept: set[str] = set()

    def add(self, size: int, record: Record) -> None:
        """Add a record, with its size in bytes."""
        self._records = self._records.plus(size)
        self._files |= dict.fromkeys(_named(record), 0) | {file.key: file.bytes for file in record.delta.added}

    def meet(self, kept: Iterable[str]) -> None:
        """Note the keys that kept versions name."""
        self._kept.update(key for key in kept if key in self._files)

    @property
    def count(self) -> Count:
        sizes = [size for key, size in self._files.items() if key not in self._kept]
        return self._records + Count(len(sizes), sum(sizes))


def mark_young_records(
    journal: Journal,
    listing: Iterable[ObjectInfo],
    records: Area,
    moment: Moment,
    into: References,
    young: YoungFiles,
) -> Iterator[ObjectInfo]:
    """Mark young records that no kept version has, with all that they name; yield the old ones."""
    named: list[str] = []

    def is_old(info: ObjectInfo) -> bool:
        return not moment.is_young(info.modified)

    for infos in _batches(unreferenced(listing, into.of(records))):
        recent = [info for info in infos if not is_old(info) and records.owns(info.key)]
        found = parallel(lambda info: _record_at(journal, info.key), recent)
        for info, record in zip(recent, found, strict=True):
            if record is not None:
                young.add(info.size, record)
                named += _named(record)
        yield from filter(is_old, infos)
    if named:
        young.meet(into.everything())
        into.add(named)


def each_of(act: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield ``act`` of each item, run in threads."""
    for batch in _batches(items):
        yield from parallel(act, batch)


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    remaining = iter(items)
    while batch := list(islice(remaining, _AT_ONCE)):
        yield batch


def _record_at(journal: Journal, key: str) -> Record | None:
    """Return a record; None if it is gone by now."""
    try:
        return stored(journal, key).record
    except VersionIncomplete as error:
        if isinstance(error.__cause__, ObjectNotFound):
            return None
        raise


def _named(record: Record) -> list[str]:
    return [*references.of_record(record), *record.replaced]


def _is_recent(successor: Stored, moment: Moment) -> bool:
    """Return whether readers may still use what this commit replaced."""
    return may_be_read(replaced=successor.written, now=moment.now, grace=moment.grace)


def _restores_below(record: Record, oldest: int) -> bool:
    target = keys.parse_record(record.key.split("/")[1], record.restores)
    return target is None or target.version < oldest


# Versions that stay because they have a tag, or lost it so recently that they may still be in use.


class TaggedVersions:
    """The tagged versions of a head. It gets the kept commits, newest first, to tell which ones are not among them.

    ``present``  the records of the versions that have tags; those of a deleted dataset count while the deletion can be
                 undone
    ``recent``   whether what a commit replaced may still be in use
    ``pinned``   the records of versions that are needed as if they had tags
    """

    def __init__(self, head: Head, recent: Callable[[Stored], bool], pinned: frozenset[str] = frozenset()) -> None:
        self.present = frozenset(tag.record for tag in head.tags.values()) | pinned
        self._pinned = pinned
        self._head = head
        self._recent = recent
        self._newest = True
        self._met: set[str] = set()
        self._turns: list[Stored] = []

    def meet(self, found: Stored) -> None:
        """Note a kept commit."""
        record = found.record
        if self._newest and self._head.tombstone and not self._recent(found):
            self.present = self._pinned
        self._newest = False
        if record.key in self.present:
            self._met.add(record.key)
        if (TAGS in record.delta.metadata or TAGS in record.delta.dropped) and all(map(self._recent, self._turns[-1:])):
            self._turns.append(found)

    def apart(self) -> list[str]:
        """Return the records of tagged versions that are not among the noted commits."""
        return sorted(self.present - self._met)

    def lost_lately(self, oldest: Head) -> list[str]:
        """Return the records of versions that recently lost their last tag.

        The tags before a commit that changed them are those of the next lower commit that did so too, or of the
        ``oldest`` kept version.
        """
        before = (*(turn.record.delta.metadata for turn in self._turns[1:]), oldest.metadata)
        lately = (there for turn, there in zip(self._turns, before, strict=False) if self._recent(turn))
        names = {tag.record for metadata in lately for tag in tags_in(self._head.uuid, metadata).values()}
        return sorted(names - self.present)
