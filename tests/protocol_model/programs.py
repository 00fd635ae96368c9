"""The protocol as programs over the modelled store, step for step as docs/commit-protocol.md has it.

Each rule that the protocol depends on can be switched off in :class:`Rules`: the tests show that the exploration then
finds what the rule is for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any

from tests.protocol_model.engine import Op, Program, Task
from tests.protocol_model.world import (
    HALF_GRACE,
    HEAD,
    REF,
    File,
    Grant,
    Head,
    Marker,
    Record,
    RecordName,
    get,
    get_head,
    listing,
    marker_key,
    matching,
    put,
    put_if,
    put_record,
    put_ref,
    record_key,
    succeed,
    swap,
    write_file,
)

Steps = Generator[Op, Any, Any]


@dataclass(frozen=True)
class Rules:
    """What the protocol demands; all true is the protocol."""

    swap_is_conditional: bool = True
    asks_marker_first: bool = True
    asks_marker_after_a_lost_swap: bool = True
    marks_the_head_before_building_on_it: bool = True
    marks_after_the_swap: bool = True
    reports_after_the_marker: bool = True
    checks_labels: bool = True
    checks_reads: bool = True
    looks_for_keys_in_new_files: bool = True
    looks_for_lost_commits: bool = True
    marks_what_a_foreign_head_builds_on: bool = True
    voids_absent_markers: bool = True
    heeds_void_markers: bool = True
    looks_at_the_head_before_it_replaces_a_marker: bool = True
    confirms_in_new_bytes: bool = True
    confirms_while_the_head_is_there: bool = True
    voids_differ: bool = True
    numbers_above_all_records: bool = True
    fences_deleted_incarnations: bool = True
    fences_deletions: bool = True
    ignores_markers_of_deleted_incarnations: bool = True
    refuses_when_too_slow: bool = True
    keeps_young_files: bool = True
    keeps_files_of_young_records: bool = True
    keeps_files_that_were_current_lately: bool = True
    allows_for_the_time_between_record_and_swap: bool = True
    takes_the_time_before_it_looks: bool = True
    raises_the_horizon_first: bool = True
    rollback_heeds_the_horizon: bool = True
    restore_heeds_the_grace: bool = True
    tags_heed_the_horizon: bool = True
    keeps_tagged_versions: bool = True
    keeps_versions_that_had_a_tag_lately: bool = True
    merges_tags_again: bool = True
    serialises_moves: bool = True
    notes_drift: bool = True
    heeds_drift: bool = True
    merges_blocks_again_on_the_same_chain_only: bool = True
    takes_the_reference_forward_only: bool = True
    keeps_what_an_adoption_replaced: bool = True
    asks_the_grant_first: bool = True
    asks_the_grant_of_the_head_that_it_replaces: bool = True
    ends_with_the_incarnation_of_the_grant: bool = True
    only_a_creation_starts_on_a_tombstone: bool = True
    ends_with_the_dataset_it_began_on: bool = True
    restores_only_a_tombstone: bool = True
    merges_grants_again: bool = True


@dataclass(frozen=True)
class Me:
    """Who runs a program. Two with the same ``id`` are two attempts at one commit.

    ``lossy``   responses to its swaps can get lost
    ``timed``   it looks at the clock, as all do; without a clock in the scenario that only costs states
    ``prompt``  no request of it takes longer than half the grace period
    ``key``     of the row that a "merge" updates, or inserts
    ``partition``  where it writes; a "replace" also reads and removes what is there
    ``refs``    it takes the copy of where the chain is along
    ``guest``   it is not of the owner, who must permit it
    ``heir``    it is of a resource that was made again once the old one, and the dataset, were gone
    ``unowned`` it has no claim, and so no incarnation: it means the dataset that is there when it begins
    ``creates`` it creates the dataset, also on the tombstone of one without an owner
    """

    name: str
    id: str
    rules: Rules
    change: str = "append"
    incarnation: str = ""
    lossy: bool = False
    timed: bool = False
    heir: bool = False
    prompt: bool = True
    key: str = ""
    partition: str = "p"
    refs: bool = False
    guest: bool = False
    unowned: bool = False
    creates: bool = False

    def __hash__(self) -> int:
        return hash(self.name)


# --- commits ---


def settler(me: Me) -> Program:
    """Puts right what is to be put right, and does nothing else."""
    return settling(me, 0, _end, ())


def _end(me: Me, k: int, head: Head | None) -> Program:
    yield from ()
    return None


def writer(me: Me) -> Program:
    """One attempt at a commit."""
    return settling(me, 0, _begin, ())


def _begin(me: Me, k: int, head: Head | None) -> Program:
    if head and (_fenced(me, head) or (me.heir and not head.epoch)):
        return None
    if me.creates and head and not head.stone:
        return None  # there is a dataset of that name
    if me.unowned and head and head.stone and not me.creates and me.rules.only_a_creation_starts_on_a_tombstone:
        return None
    if me.guest and me.rules.asks_the_grant_first and not (head and me.id in head.grant.ids):
        return None
    if (yield from _applied(me, head, asks=me.rules.asks_marker_first)):
        yield succeed(me.id, me.incarnation)
        return None
    if me.change == "move" and head and head.drift and me.rules.heeds_drift:
        return None  # until the table is made anew from the chain
    own = File(f"{me.id}.{me.name}", _rows(me, head), me.partition)
    written = 0
    if me.change != "delete":
        written = yield write_file(own)
    return Task(_commit, (me, k, head, head, own, written))


def _commit(me: Me, k: int, base: Head | None, on: Head | None, own: File, written: int) -> Program:
    """``base`` is the head that the change was computed from, ``on`` the one that it shall replace."""
    based: frozenset[File] = frozenset() if base is None or base.stone else base.files
    present: frozenset[File] = frozenset() if on is None or on.stone else on.files
    moves = base.chain if me.change == "move" and base else None
    if moves is not None and on and me.rules.serialises_moves and on.chain != moves:
        return Task(settling, (me, k + 1, _begin, ()))  # never rebased: merged again, on what is there by now
    if moves is not None and on and on.drift and me.rules.heeds_drift:
        return None
    if me.guest and not _permitted(me, base, on):
        return None
    added: frozenset[File] = frozenset() if me.change == "delete" else frozenset({own})
    within = me.partition if me.change == "replace" else None
    removed = frozenset[File]() if me.change in ("append", "move") else matching(based, within)
    if me.change == "merge":
        removed = _with_key(based, me.key)
        if me.rules.looks_for_keys_in_new_files and _with_key(present, me.key) - removed:
            return None
    if me.rules.checks_labels and not removed <= present:
        return None
    reads = matching(based, within) if me.change in ("overwrite", "replace") else None
    if me.rules.checks_reads and reads is not None and reads != matching(present, within):
        return None
    name = new_name(me, k, on, 0)
    ground = on or Head(None)
    head = replace(
        ground,
        commit=name,
        files=(present - removed) | added,
        stone="",
        tags=frozenset() if ground.stone else ground.tags,
        since=ground.epoch,
        fenced=ground.fenced | ({ground.stone} if ground.stone else frozenset()),
        chain=ground.chain if moves is None else (*moves, me.id),
    )
    record = Record(
        name, ground.commit, added, removed, head, 0, reads, within, deletes=me.change == "delete", moves=moves
    )
    record = _with_ground(me, record, base)
    committed = yield from publish(me, on, record, oldest=written if me.rules.refuses_when_too_slow else None)
    if committed and me.rules.reports_after_the_marker:
        yield succeed(me.id, me.incarnation)
    if committed and me.refs and moves is not None:
        return Task(following, (me, head.chain))
    if committed is not False:
        return None
    return Task(settling, (me, k + 1, _again, (base, on, own, written)))


def _with_ground(me: Me, record: Record, base: Head | None) -> Record:
    """The record with what a commit without a claim, or of a guest, was begun on."""
    if me.unowned:
        record = replace(record, began=base.epoch if base else 0, creates=me.creates)
    return replace(record, under=base.grant if base else Grant()) if me.guest else record


def following(me: Me, chain: tuple[str, ...]) -> Program:
    """The copy of where the chain is follows a commit, only from a block that is below its own."""
    named = yield get(REF)
    if me.rules.takes_the_reference_forward_only and named != chain[: len(named)]:
        return None
    yield put_ref(named, chain, conditional=me.rules.takes_the_reference_forward_only)
    return None


def _permitted(me: Me, base: Head | None, on: Head | None) -> bool:
    """Whether the owner permits a commit that began on ``base``, in the very head that it replaces."""
    began, now = base.grant if base else Grant(), on.grant if on else Grant()
    if me.rules.asks_the_grant_of_the_head_that_it_replaces and me.id not in now.ids:
        return False
    return began.incarnation == now.incarnation or not me.rules.ends_with_the_incarnation_of_the_grant


def _again(
    me: Me, k: int, head: Head | None, base: Head | None, tried: Head | None, own: File, written: int
) -> Program:
    """After a lost swap, or a lost response: it may have happened."""
    if (yield from _applied(me, head, asks=me.rules.asks_marker_after_a_lost_swap)):
        yield succeed(me.id, me.incarnation)
        return None
    ends = me.rules.ends_with_the_dataset_it_began_on if me.unowned else me.rules.fences_deleted_incarnations
    if head and (_fenced(me, head) or (ends and tried and tried.epoch != head.epoch)):
        return None
    return Task(_commit, (me, k, base, head, own, written))


def _applied(me: Me, head: Head | None, *, asks: bool) -> Steps:
    """Whether this id was committed, in this incarnation."""
    if not asks:
        return head is not None and head.commit is not None and head.commit.id == me.id
    marker = yield get(marker_key(me.id))
    if marker is None or marker.record is None:
        return False
    outdated = head is not None and marker.record.version <= head.epoch
    return not (outdated and me.rules.ignores_markers_of_deleted_incarnations)


def _fenced(me: Me, head: Head) -> bool:
    if me.unowned:
        return False
    deleted = head.fenced | ({head.stone} if head.stone else set())
    return me.rules.fences_deleted_incarnations and me.incarnation in deleted


def _rows(me: Me, head: Head | None) -> frozenset[str]:
    """A rewrite has the rows of what it replaces, a merge those and its key's; others have one of their own."""
    if me.change == "merge":
        replaced = _with_key(frozenset() if head is None or head.stone else head.files, me.key)
        return frozenset({me.key}).union(*(file.rows for file in replaced))
    return frozenset(head.rows) if head and me.change == "rewrite" else frozenset({me.id})


def _with_key(files: frozenset[File], key: str) -> frozenset[File]:
    """The files that hold the row of this key."""
    return frozenset(file for file in files if key in file.rows)


def new_name(me: Me, k: int, on: Head | None, floor: int, commit_id: str = "") -> RecordName:
    version = max(on.version if on else 0, floor) + 1
    return RecordName(version, commit_id or me.id, f"{me.name}.{k}")


def publish(me: Me, on: Head | None, record: Record, *, oldest: int | None = None, limit: int = HALF_GRACE) -> Steps:
    """Record, swap, marker. True: committed. False: not, or nobody knows, so look again. None: given up.

    ``oldest`` is when what it depends on was written, or deleted: longer than ``limit`` ago, and it is given up.
    """
    record = replace(record, incarnation=me.incarnation)
    now = yield put_record(record)
    if me.timed and oldest is not None and now - oldest > limit:
        return None
    if not me.rules.marks_after_the_swap:
        yield put(marker_key(record.name.id), Marker(record.name))
    until = now + HALF_GRACE if me.timed and me.prompt else None
    conditional = me.rules.swap_is_conditional
    if not (yield swap(on, record, conditional=conditional, response_may_be_lost=me.lossy, until=until)):
        return False
    if not me.rules.reports_after_the_marker and record.name.id == me.id:
        yield succeed(me.id, me.incarnation)
    return (yield from _mark(me, record))


def _mark(me: Me, record: Record) -> Steps:
    """Put the marker of a commit that was the head; False if another is there and the head is not ours any more."""
    key = marker_key(record.name.id)
    ours = Marker(record.name)
    if (yield put_if(key, None, ours)):
        return True
    while True:
        found = yield get(key)
        if found and found.record == record.name:
            return True
        outdated = found is not None and found.record is not None and found.record.version <= record.head.since
        heeded = found is not None and (me.rules.heeds_void_markers or found.record is not None)
        if heeded and not outdated and me.rules.looks_at_the_head_before_it_replaces_a_marker:
            head = yield get(HEAD)
            if head is None or head.commit != record.name:
                return False
        if (yield put_if(key, found, ours)):
            return True


def marking(me: Me, record: Record) -> Program:
    """What is left of a commit after its swap, if that is long ago."""
    yield from _mark(me, record)
    return None


def _confirm(me: Me, k: int, base: Record, foreign: Head) -> Steps:
    """Mark what a foreign head builds on, while that is the head.

    In new bytes, so that whoever is about to replace the marker fails.
    """
    key = marker_key(base.name.id)
    while True:
        found = yield get(key)
        if found and found.record == base.name and not me.rules.confirms_in_new_bytes:
            return
        if me.rules.confirms_while_the_head_is_there and (yield get(HEAD)) != foreign:
            return
        nonce = f"{me.name}.{k}" if me.rules.confirms_in_new_bytes else ""
        if (yield put_if(key, found, Marker(base.name, nonce))):
            return


# --- settling: what everybody does before anything else ---


def settling(me: Me, k: int, then: Callable[..., Program], rest: tuple[Any, ...]) -> Program:
    """Go on as ``then(me, k, head, *rest)`` with a head of ours that is marked and lacks nothing."""
    head, record = yield get_head()
    if head is None:
        return Task(then, (me, k, None, *rest))
    if record is None or record.head != head:
        return Task(_adopt, (me, k, head, record, then, rest))
    if me.rules.marks_the_head_before_building_on_it and not (yield from _ensure_marked(me, record)):
        return Task(settling, (me, k, then, rest))
    if head.lost:
        return Task(_recover, (me, k, head, then, rest))
    return Task(then, (me, k, head, *rest))


def _ensure_marked(me: Me, record: Record) -> Steps:
    found = yield get(marker_key(record.name.id))
    if found and found.record == record.name:
        return True
    return (yield from _mark(me, record))


def _adopt(me: Me, k: int, foreign: Head, base: Record | None, then: Callable[..., Program], rest: Any) -> Program:
    """Make a commit of a foreign head, and note what it overwrote."""
    records = dict((yield listing("record")))
    if base is None:
        base = yield from _newest_known(records, foreign)
    if base and me.rules.marks_what_a_foreign_head_builds_on:
        yield from _confirm(me, k, base, foreign)
    before = base.head if base else Head(None)
    unknown = [name for name in records if name.version >= before.version and (not base or name.id != base.name.id)]
    lost = (yield from _lost(me, k, unknown, before.epoch)) if me.rules.looks_for_lost_commits else ()
    numbered = records if me.rules.numbers_above_all_records else unknown
    floor = max((name.version for name in numbered), default=0)
    name = new_name(me, k, before, floor, f"external.{me.name}.{k}")
    drifts = bool(before.chain) and foreign.files != before.files and me.rules.notes_drift
    head = replace(before, commit=name, files=foreign.files, lost=(*before.lost, *lost), foreign="")
    head = replace(head, drift=before.drift or drifts)
    record = Record(name, before.commit, foreign.files - before.files, before.files - foreign.files, head, 0)
    if foreign.index is not None:
        mended = File(f"index.{me.name}.{k}", frozenset())
        yield write_file(mended)
        replaced = frozenset({foreign.index}) if me.rules.keeps_what_an_adoption_replaced else frozenset[File]()
        record = replace(record, head=replace(head, index=mended), replaced=replaced)
    yield from publish(me, foreign, record)
    return Task(settling, (me, k + 1, then, rest))


def overtaken(me: Me, foreign: Head, base: Record) -> Program:
    """A settler that saw this head, built on this record, some time ago."""
    return _adopt(me, 0, foreign, base, _end, ())


def _newest_known(records: dict[RecordName, Record], foreign: Head) -> Steps:
    """What a head that names no commit was built on."""
    for name in sorted(records, reverse=True):
        marker = yield get(marker_key(name.id))
        if marker is None or marker.record is None:
            if records[name].added and records[name].added <= foreign.files:
                return records[name]
        elif marker.record == name:
            return records[name]
    return None


def _lost(me: Me, k: int, unknown: list[RecordName], epoch: int) -> Steps:
    """Those that were committed, as their markers tell. The others can be no more: their markers are made void.

    What stands is confirmed: somebody may be about to replace it for a record that is overwritten.
    """
    lost = []
    for commit_id in sorted({name.id for name in unknown}):
        found = yield get(marker_key(commit_id))
        while me.rules.voids_absent_markers and not _stands(found, epoch):
            void = Marker(None, f"{me.name}.{k}" if me.rules.voids_differ else "")
            if (yield put_if(marker_key(commit_id), found, void)):
                break
            found = yield get(marker_key(commit_id))
        while _stands(found, epoch) and me.rules.confirms_in_new_bytes:
            if (yield put_if(marker_key(commit_id), found, Marker(found.record, f"{me.name}.{k}"))):
                break
            found = yield get(marker_key(commit_id))
        if _stands(found, epoch):
            lost += [name for name in unknown if name == found.record]
    return tuple(lost)


def _stands(marker: Marker | None, epoch: int) -> bool:
    return marker is not None and marker.record is not None and marker.record.version > epoch


def _recover(me: Me, k: int, head: Head, then: Callable[..., Program], rest: tuple[Any, ...]) -> Program:
    """Merge the first lost commit again, or note that it cannot be."""
    first, *others = head.lost
    lost = yield get(record_key(first))
    settled = replace(head, lost=tuple(others))
    added, removed = lost.added - head.files, lost.removed
    if lost.added and not added:
        removed = frozenset()  # the foreign head was built on it after all
    reads_other = lost.reads is not None and lost.reads != matching(head.files, lost.within)
    elsewhere = lost.moves is not None and lost.moves != head.chain
    elsewhere = elsewhere and me.rules.merges_blocks_again_on_the_same_chain_only
    if not removed <= head.files or (added and reads_other) or elsewhere:
        name = new_name(me, k, head, 0, f"external.{me.name}.{k}")
        noted = replace(settled, commit=name, overwritten=head.overwritten | {first})
        record = Record(name, head.commit, frozenset(), frozenset(), noted, 0)
    else:
        name = new_name(me, k, head, 0, first.id)
        tags = lost.tags if me.rules.merges_tags_again else None
        merged = replace(settled, commit=name, files=(head.files - removed) | added)
        merged = merged if tags is None else replace(merged, tags=tags)
        grant = lost.grant if me.rules.merges_grants_again else None
        merged = merged if grant is None else replace(merged, grant=grant)
        merged = merged if lost.moves is None else replace(merged, chain=lost.head.chain)
        record = Record(name, head.commit, added, removed, merged, 0, recovers=first, deletes=lost.deletes, tags=tags)
        record = replace(record, grant=grant)
        record = replace(record, moves=lost.moves)
    yield from publish(me, head, record)
    return Task(settling, (me, k + 1, then, rest))
