"""The programs around the writers: foreign writers, readers, deletion and restore, rollback, and the collector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.protocol_model.engine import Program, Task, Violation
from tests.protocol_model.programs import Me, new_name, publish, settling
from tests.protocol_model.world import (
    GRACE,
    GRANT,
    HALF_GRACE,
    HEAD,
    TAGS,
    File,
    Grant,
    Head,
    Record,
    RecordName,
    clock,
    delete,
    file_key,
    foreign_swap,
    get,
    get_head,
    get_now,
    listing,
    put,
    record_key,
    succeed,
)


def foreign_writer(name: str, keeps_metadata: bool, in_time: bool = True) -> Program:
    """Plateau, or kartothek's index build, which erases the metadata: a blind read and a blind write.

    ``in_time``: it takes no longer than the grace period.
    """
    head, now = yield get_now(HEAD)
    if head is None or head.stone:
        return None
    return Task(foreign_write, (name, head, keeps_metadata, now + GRACE if in_time else None))


def foreign_write(name: str, read: Head, keeps_metadata: bool, until: int | None = None) -> Program:
    """The second half, after it read this head."""
    file = File(name, frozenset({name}))
    kept = read if keeps_metadata else Head(None)
    yield foreign_swap(replace(kept, files=read.files | {file}, foreign=name), file, until)
    return None


def reader() -> Program:
    """Plans from the head, and reads the files within the grace period."""
    head, now = yield get_now(HEAD)
    for file in sorted(head.named if head else ()):
        found, _ = yield get_now(file_key(file), now + GRACE)
        if found is None:
            raise Violation(f"a reader of {head} does not find {file.name}")
    return None


def reader_of_a_tag(version: Record) -> Program:
    """Reads a version that has a tag, within the grace period after it saw that."""
    head, now = yield get_now(HEAD)
    if version.name not in head.tags:
        return None
    for file in sorted(version.head.files):
        found, _ = yield get_now(file_key(file), now + GRACE)
        if found is None:
            raise Violation(f"a reader by the tag of {version.name} does not find {file.name}")
    return None


# --- tags ---


def tagger(me: Me) -> Program:
    """Gives version 1 a tag."""
    return settling(me, 0, _tag, ())


def _tag(me: Me, k: int, head: Head | None) -> Program:
    records = dict((yield listing("record")))
    target = next(name for name in records if name.version == 1)
    if head is None or (me.rules.tags_heed_the_horizon and target.version < head.horizon and target not in head.tags):
        return None
    return (yield from _retag(me, k, head, head.tags | {target}, _tag))


def untagger(me: Me) -> Program:
    """Takes all tags away."""
    return settling(me, 0, _untag, ())


def _untag(me: Me, k: int, head: Head | None) -> Program:
    return None if head is None else (yield from _retag(me, k, head, frozenset(), _untag))


def _retag(me: Me, k: int, head: Head, tags: frozenset[RecordName], again: Callable[..., Program]) -> Program:
    if head.tags == tags:
        return None
    name = new_name(me, k, head, 0, f"tag.{me.name}.{k}")
    record = Record(name, head.commit, frozenset(), frozenset(), replace(head, commit=name, tags=tags), 0, tags=tags)
    if (yield from publish(me, head, record)) is False:
        return Task(settling, (me, k + 1, again, ()))
    yield put(TAGS, tags)
    return None


# --- the grant ---


def granter(me: Me, grant: Grant) -> Program:
    """Sets what the owner permits others."""
    return settling(me, 0, _grant, (grant,))


def _grant(me: Me, k: int, head: Head | None, grant: Grant) -> Program:
    if head is None or head.grant == grant:
        return None
    name = new_name(me, k, head, 0, f"grant.{me.name}.{k}")
    after = replace(head, commit=name, grant=grant)
    record = Record(name, head.commit, frozenset(), frozenset(), after, 0, grant=grant)
    if (yield from publish(me, head, record)) is False:
        return Task(settling, (me, k + 1, _grant, (grant,)))
    yield put(GRANT, grant)
    return None


# --- deletion ---


def dropper(me: Me) -> Program:
    """Deletes the dataset of an incarnation."""
    return settling(me, 0, _drop, ())


def _drop(me: Me, k: int, head: Head | None) -> Program:
    if head is None or head.stone or (me.rules.fences_deletions and me.incarnation in head.fenced):
        return None
    name = new_name(me, k, head, 0, f"drop.{me.name}.{k}")
    stone = replace(head, commit=name, files=frozenset(), stone=me.incarnation, lost=(), overwritten=frozenset())
    record = Record(name, head.commit, frozenset(), head.files, stone, 0)
    if (yield from publish(me, head, record)) is False:
        return Task(settling, (me, k + 1, _drop, ()))
    return None


def restorer(me: Me) -> Program:
    """Takes a deletion back."""
    return settling(me, 0, _restore, ())


def _restore(me: Me, k: int, head: Head | None) -> Program:
    if head is None or head.commit is None or (not head.stone and (me.rules.restores_only_a_tombstone or not k)):
        return None
    stone = yield get(record_key(head.commit))
    deleted = yield get(record_key(stone.parent))
    name = new_name(me, k, head, 0, f"restore.{me.name}.{k}")
    back = replace(deleted.head, commit=name)
    record = Record(name, head.commit, deleted.head.files, frozenset(), back, 0, restores=True)
    oldest = stone.time if me.rules.restore_heeds_the_grace else None
    if (yield from publish(me, head, record, oldest=oldest, limit=GRACE)) is False:
        return Task(settling, (me, k + 1, _restore, ()))
    return None


# --- rollback and collection ---


def rollback(me: Me) -> Program:
    """Goes back to version 1."""
    return settling(me, 0, _roll_back, ())


def _roll_back(me: Me, k: int, head: Head | None) -> Program:
    records = dict((yield listing("record")))
    target = next(record for name, record in records.items() if name.version == 1)
    if head is None or (me.rules.rollback_heeds_the_horizon and target.name.version < head.horizon):
        return None
    name = new_name(me, k, head, 0)
    files = target.head.files
    after = replace(head, commit=name, files=files)
    record = Record(name, head.commit, files - head.files, head.files - files, after, 0, reads=head.files)
    committed = yield from publish(me, head, record)
    if committed is False:
        return Task(settling, (me, k + 1, _roll_back, ()))
    if committed:
        yield succeed(me.id, me.incarnation)
    return None


def collector(me: Me) -> Program:
    """Expires all versions but the present one, and deletes what nobody needs any more."""
    now = yield clock()
    return Task(settling, (me, 0, _expire, (now,)))


def _expire(me: Me, k: int, head: Head | None, now: int) -> Program:
    if head is None:
        return None
    expired = head.commit and head.commit.id.startswith("expire")
    if head.stone or expired or not me.rules.raises_the_horizon_first:
        return Task(_sweep, (me, k, head, now))
    name = new_name(me, k, head, 0, f"expire.{me.name}.{k}")
    raised = replace(head, commit=name, horizon=head.version)
    if (yield from publish(me, head, Record(name, head.commit, frozenset(), frozenset(), raised, 0))):
        return Task(_sweep, (me, k + 1, raised, now))
    return Task(settling, (me, k + 1, _expire, (now,)))


def _sweep(me: Me, k: int, head: Head, now: int) -> Program:
    """Ages are counted up to ``now``, which is before the head was read: what is newer than the mark is young."""
    records = dict((yield listing("record")))
    files = yield listing("file")
    if not me.rules.takes_the_time_before_it_looks:
        now = yield clock()
    kept = _referenced(me, head, records, now)
    old = [file for file, written in files if not me.rules.keeps_young_files or now - written > GRACE]
    garbage = [file for file in old if file not in kept]
    if not garbage:
        return None
    current, record = yield get_head()
    if current and (record is None or record.head != current):
        return Task(settling, (me, k + 1, _expire, (now,)))
    for file in garbage:
        yield delete(file_key(file))
    return None


def _referenced(me: Me, head: Head, records: dict[RecordName, Record], now: int) -> frozenset[File]:
    """What the head, retained versions, recent versions and commits under way need."""
    rules = me.rules
    chain = _chain(head, records)
    found = set(head.named)
    if rules.keeps_tagged_versions:
        found |= _of_versions(head.tags, records)
    for record in records.values():
        if record.name not in chain:
            if rules.keeps_files_of_young_records and now - record.time <= GRACE:
                found |= record.head.named
            continue
        retained = record.name.version >= head.horizon if rules.raises_the_horizon_first else record.name == head.commit
        if retained and not head.stone:
            found |= record.head.named
        # The record is written before the swap, which is when its predecessor stops being current.
        swapped = record.time + (HALF_GRACE if rules.allows_for_the_time_between_record_and_swap else 0)
        if rules.keeps_files_that_were_current_lately and now - swapped <= GRACE:
            found |= record.removed | record.replaced
        before = records[record.parent].head.tags if record.tags is not None and record.parent else frozenset()
        if rules.keeps_versions_that_had_a_tag_lately and now - swapped <= GRACE:
            found |= _of_versions(before, records)
    return frozenset(found)


def _of_versions(names: frozenset[RecordName], records: dict[RecordName, Record]) -> set[File]:
    return {file for name in names for file in records[name].head.files}


def _chain(head: Head, records: dict[RecordName, Record]) -> set[RecordName]:
    found = set()
    name = head.commit
    while name in records:
        found.add(name)
        name = records[name].parent
    return found
