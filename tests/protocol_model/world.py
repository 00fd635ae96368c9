"""What is in the modelled store, the requests on it, and what must always be true of it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tests.protocol_model.engine import CLOCK, Op, Outcome, Store, Violation

HEAD = "head"
TAGS = "tags"
"""The tags that were reported last."""
GRANT = "grant"
"""The grant that was reported last."""
REF = "refs/head"
"""Of a ledger: a copy of where its chain is, for others."""
HALF_GRACE = 1
GRACE = 2
LONG_AGO = -10


class File(NamedTuple):
    """A data file: who wrote it, which rows are in it, and where it lies. A rewritten row keeps its name."""

    name: str
    rows: frozenset[str]
    partition: str = "p"


class Grant(NamedTuple):
    """Which commits of others the owner permits, by id, and the incarnation of the owner's resource."""

    incarnation: str = ""
    ids: frozenset[str] = frozenset()


NO_GRANT = Grant()


class RecordName(NamedTuple):
    """What the key of a record says; ``nonce`` is the program and the number of its attempt."""

    version: int
    id: str
    nonce: str

    def __repr__(self) -> str:
        return f"{self.version}-{self.id}-{self.nonce}"


@dataclass(frozen=True)
class Head:
    """The head's content, which is its ETag too: what S3 does.

    ``commit``    the record that it names; a foreign writer keeps it (plateau) or drops it (kartothek)
    ``foreign``   name of the foreign write that made it
    ``lost``, ``overwritten``   noted records: to be merged again, and those that cannot be
    ``stone``     incarnation that deleted the dataset
    ``since``     version of the last tombstone that was built upon; ``fenced`` are the incarnations below it
    ``horizon``   oldest version that has not expired
    ``tags``      records of the versions that have tags
    ``chain``     of a ledger: its blocks, each named by the rows that it brought; empty if it is none
    ``drift``     a foreign writer has changed the table of a ledger
    ``grant``     what the owner permits others
    ``index``     an index file, if it names one: an adoption replaces that of a foreign writer
    """

    commit: RecordName | None
    files: frozenset[File] = frozenset()
    foreign: str = ""
    lost: tuple[RecordName, ...] = ()
    overwritten: frozenset[RecordName] = frozenset()
    stone: str = ""
    since: int = 0
    fenced: frozenset[str] = frozenset()
    horizon: int = 0
    tags: frozenset[RecordName] = frozenset()
    chain: tuple[str, ...] = ()
    drift: bool = False
    grant: Grant = NO_GRANT
    index: File | None = None

    # Hashing is what the exploration spends its time on; what differs nearly always is enough.
    def __hash__(self) -> int:
        return hash((self.commit, self.files, self.foreign))

    @property
    def version(self) -> int:
        return self.commit.version if self.commit else 0

    @property
    def epoch(self) -> int:
        """Markers up to this version are of an incarnation that was deleted."""
        return self.version if self.stone else self.since

    @property
    def named(self) -> frozenset[File]:
        """All files that a reader of it needs."""
        return self.files if self.index is None else self.files | {self.index}

    @property
    def rows(self) -> list[str]:
        return [row for file in self.files for row in file.rows]

    def __repr__(self) -> str:
        notes = [f"lost={self.lost}"] if self.lost else []
        notes += [f"deleted by {self.stone}"] if self.stone else []
        notes += [f"by {self.foreign}"] if self.foreign else []
        return f"<{self.commit} {sorted(file.name for file in self.files)} {' '.join(notes)}>"


@dataclass(frozen=True)
class Record:
    """``head`` is the one it makes (the real record has its digest); ``time`` of its writing."""

    name: RecordName
    parent: RecordName | None
    added: frozenset[File]
    removed: frozenset[File]
    head: Head
    time: int
    reads: frozenset[File] | None = None
    """The files of the head that the change was computed from, if it depends on them: see ``within``."""
    within: str | None = None
    """The partition whose files ``reads`` are; None: it depends on all there are."""
    recovers: RecordName | None = None
    restores: bool = False
    incarnation: str = ""
    deletes: bool = False
    """Whether rows of the removed files that are not in the added ones shall never come back."""
    tags: frozenset[RecordName] | None = None
    """The tags after it, if it changes them."""
    grant: Grant | None = None
    """The grant after it, if it changes that."""
    under: Grant | None = None
    """The grant under which another than the owner began it."""
    began: int | None = None
    """Without a claim: the epoch of the dataset that it was begun on."""
    creates: bool = False
    moves: tuple[str, ...] | None = None
    """The chain that it goes on from, if it moves that."""
    replaced: frozenset[File] = frozenset()
    """What the adopted head of a foreign writer named, and this one does not."""

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"record {self.name}"


class Marker(NamedTuple):
    """``record`` None: void, with a nonce that makes its bytes differ."""

    record: RecordName | None
    nonce: str = ""

    def __repr__(self) -> str:
        return f"marker({self.record or 'void'})"


def record_key(name: RecordName) -> Hashable:
    return ("record", name)


def marker_key(commit_id: str) -> Hashable:
    return ("marker", commit_id)


def file_key(file: File) -> Hashable:
    """Its value is the time it was written."""
    return ("file", file)


def success_key(commit_id: str, incarnation: str) -> Hashable:
    """Present once success of this commit was reported to its caller."""
    return ("success", commit_id, incarnation)


def matching(files: frozenset[File], partition: str | None) -> frozenset[File]:
    """The files that a change depends on which reads this partition; None = everything."""
    return files if partition is None else frozenset(file for file in files if file.partition == partition)


# --- requests ---


def get(key: Hashable) -> Op:
    return Op(f"GET {_name(key)}", lambda store: iter([(store.get(key), store)]))


def put(key: Hashable, value: Any, until: int | None = None) -> Op:
    return Op(f"PUT {_name(key)}", lambda store: iter([(None, {**store, key: value})]), until)


def put_if(key: Hashable, expected: Any, value: Any) -> Op:
    """A conditional PUT; ``expected`` None: the key must be free. True if it won."""

    def act(store: Store) -> Iterator[Outcome]:
        if store.get(key) == expected:
            yield True, {**store, key: value}
        else:
            yield False, store

    return Op(f"PUT {_name(key)} if {'absent' if expected is None else 'unchanged'}", act)


def delete(key: Hashable) -> Op:
    return Op(f"DELETE {_name(key)}", lambda store: iter([(None, {k: v for k, v in store.items() if k != key})]))


def listing(kind: str) -> Op:
    """The values of all keys of this kind, as pairs of name and value, sorted by name."""

    def act(store: Store) -> Iterator[Outcome]:
        found = [(key[1], value) for key, value in store.items() if isinstance(key, tuple) and key[0] == kind]
        yield tuple(sorted(found, key=lambda pair: repr(pair[0]))), store

    return Op(f"LIST {kind}s", act)


def put_record(record: Record) -> Op:
    """Write a record, at the time that is the result."""

    def act(store: Store) -> Iterator[Outcome]:
        now = store.get(CLOCK, 0)
        yield now, {**store, record_key(record.name): replace(record, time=now)}

    return Op(f"PUT {record}", act)


def write_file(file: File) -> Op:
    """The result is the time it was written."""

    def act(store: Store) -> Iterator[Outcome]:
        if ("stranger", file.name.partition(".")[0]) in store:
            raise Violation(f"file {file.name} is of a writer whom nobody permitted")
        now = store.get(CLOCK, 0)
        yield now, {**store, file_key(file): now}

    return Op(f"PUT file {file.name}", act)


def clock() -> Op:
    return Op("what time is it", lambda store: iter([(store.get(CLOCK, 0), store)]))


def succeed(commit_id: str, incarnation: str) -> Op:
    done = {success_key(commit_id, incarnation): True}
    return Op(f"report success of {commit_id}", lambda store: iter([(None, {**store, **done})]))


def get_now(key: Hashable, until: int | None = None) -> Op:
    """The value, and when it was read."""
    return Op(f"GET {_name(key)}", lambda store: iter([((store.get(key), store.get(CLOCK, 0)), store)]), until)


def swap(on: Head | None, record: Record, *, conditional: bool, response_may_be_lost: bool, until: int | None) -> Op:
    """Our PUT of the head: the commit. True if it won; False if not, or if its response is lost."""

    def act(store: Store) -> Iterator[Outcome]:
        current = store.get(HEAD)
        if conditional and current != on:
            yield False, store
            return
        _check_swap(store, current, record)
        after = {**store, HEAD: record.head, "newest": record.name.version}
        if record.head.stone:
            after["tombstone", record.head.stone] = True
        elif record.restores:
            after = {key: value for key, value in after.items() if key != ("tombstone", record.incarnation)}
        elif record.deletes:
            after |= {("deleted", row): True for row in _rows(record.removed) - _rows(record.added)}
        yield True, after
        if response_may_be_lost:
            yield False, after

    return Op(f"PUT head {record.head}{' if unchanged' if conditional else ''}", act, until)


def foreign_swap(head: Head, file: File, until: int | None) -> Op:
    """A foreign writer's PUT of its file and of the head. Between the two, the file is young in any case."""

    def act(store: Store) -> Iterator[Outcome]:
        yield None, {**store, file_key(file): store.get(CLOCK, 0), HEAD: head}

    return Op(f"PUT file {file.name}, PUT head {head} blindly", act, until)


def get_head() -> Op:
    """The head, and the record that it names: records never change, so two requests see what one would."""

    def act(store: Store) -> Iterator[Outcome]:
        head: Head | None = store.get(HEAD)
        record = store.get(record_key(head.commit)) if head and head.commit else None
        yield (head, record), store

    return Op("GET head and its record", act)


def _name(key: Hashable) -> str:
    return " ".join(str(part) for part in key) if isinstance(key, tuple) else str(key)


def _rows(files: frozenset[File]) -> frozenset[str]:
    return frozenset(row for file in files for row in file.rows)


def put_ref(expected: tuple[str, ...], chain: tuple[str, ...], *, conditional: bool) -> Op:
    """Move the copy of where the chain is. True if it won."""

    def act(store: Store) -> Iterator[Outcome]:
        there = store[REF]
        if conditional and there != expected:
            yield False, store
            return
        if there != chain and there[: len(chain)] == chain:
            raise Violation(f"refs/head is taken back from {there} to {chain}")
        yield True, {**store, REF: chain}

    return Op(f"PUT refs/head {chain}", act)


# --- what must always be true ---


def _check_move(current: Head, record: Record) -> None:
    """Blocks go on from where the chain is, and what they say was computed with a table that is its view."""
    if record.moves != current.chain:
        raise Violation(f"{record} forks the chain: it goes on from {record.moves}, which is at {current.chain}")
    if current.drift and record.recovers is None:
        raise Violation(f"{record} was merged with a table that is not the view of the chain")


def _check_grant(store: Store, current: Head, record: Record, under: Grant) -> None:
    """The commit of another is on a head whose owner permits it, as it was told and as it was when that began."""
    if record.name.id not in current.grant.ids or under.incarnation != current.grant.incarnation:
        raise Violation(f"{record} of another replaces a head that does not permit it: {current.grant}")
    if GRANT in store and record.name.id not in store[GRANT].ids:
        raise Violation(f"{record} of another comes after its permission was withdrawn")


def _check_began(current: Head | None, record: Record) -> None:
    """A commit without a claim is of the dataset that was there when it began, and does not undo a deletion."""
    if record.began != (current.epoch if current else 0):
        raise Violation(f"{record} was begun on another dataset of that name")
    if current and current.stone and not record.creates:
        raise Violation(f"{record} brings back a dataset that was deleted")


def _check_swap(store: Store, current: Head | None, record: Record) -> None:
    """A swap takes nothing away that its record does not say, and builds on what it was computed from."""
    before = current.files if current else frozenset()
    if not before - record.removed <= record.head.files:
        raise Violation(
            f"{record} drops {sorted(f.name for f in before - record.removed - record.head.files)} silently"
        )
    if record.began is None and ("tombstone", record.incarnation) in store and not record.restores:
        raise Violation(f"{record} is of an incarnation that was deleted")
    if record.reads is not None and record.reads != matching(before, record.within):
        raise Violation(f"{record} was computed from other files than those it replaces")
    if record.began is not None:
        _check_began(current, record)
    if record.restores and current and not current.stone:
        raise Violation(f"{record} restores a dataset over {current}, which is not deleted")
    if record.under is not None:
        _check_grant(store, current or Head(None), record, record.under)
    if record.moves is not None:
        _check_move(current or Head(None), record)
    if record.name.version <= store.get("newest", 0):
        raise Violation(f"{record} is not newer than version {store['newest']}, which was committed before")


def check(store: Store) -> None:
    """The invariants of every reachable store."""
    head: Head | None = store.get(HEAD)
    if head is None:
        return
    _check_rows(store, head)
    for file in head.named:
        if file_key(file) not in store:
            raise Violation(f"the head references {file.name}, which does not exist")
    if not head.stone:
        _check_tags(store, head)
    if _is_settled(store, head):
        _check_settled(store, head)


def _check_tags(store: Store, head: Head) -> None:
    for name in head.tags:
        for file in store[record_key(name)].head.files:
            if file_key(file) not in store:
                raise Violation(f"version {name.version} has a tag, and its file {file.name} does not exist")


def _check_rows(store: Store, head: Head) -> None:
    rows = head.rows
    for row in set(rows):
        if rows.count(row) > 1:
            raise Violation(f"rows {row!r} are in the head twice: {head}")
        if ("deleted", row) in store:
            raise Violation(f"rows {row!r} were deleted, and are back: {head}")


def _is_settled(store: Store, head: Head) -> bool:
    """Made by us, marked, and nothing left to merge: no writer sees anything to put right."""
    if head.commit is None or head.lost:
        return False
    record = store.get(record_key(head.commit))
    marker = store.get(marker_key(head.commit.id))
    return record is not None and record.head == head and marker is not None and marker.record == head.commit


def _check_settled(store: Store, head: Head) -> None:
    _check_ledger(store, head)
    chain = _chain(store, head)
    live = {name.id for name in chain if name.version > head.epoch} | {name.id for name in head.overwritten}
    ever = chain | head.overwritten
    if store.get(TAGS, head.tags) != head.tags:
        raise Violation(f"tags were reported, and are lost: {head}")
    for key in store:
        if not isinstance(key, tuple):
            continue
        if key[0] == "success" and key[1] not in live and ("tombstone", key[2]) not in store:
            raise Violation(f"success of {key[1]} was reported, and it is lost without a word: {head}")
        if key[0] == "marker" and store[key].record and store[key].record not in ever:
            raise Violation(f"{store[key].record} has a marker, and is neither in the history nor noted: {head}")


def _check_ledger(store: Store, head: Head) -> None:
    """A ledger has no block twice, loses none, and its table is what its chain says, or it is noted that it is not."""
    if len(set(head.chain)) < len(head.chain):
        raise Violation(f"the chain has a block twice: {head.chain}")
    if head.chain and not head.drift and sorted(head.chain) != sorted(head.rows):
        raise Violation(f"the table is not the view of the chain {head.chain}, without a word: {head}")
    name = head.commit
    while name is not None and (record := store.get(record_key(name))) is not None:
        parent = store.get(record_key(record.parent)) if record.parent is not None else None
        if parent is not None and record.moves is None and record.head.chain != parent.head.chain:
            raise Violation(f"{record} takes the chain from {parent.head.chain} to {record.head.chain} without a move")
        name = record.parent


def _chain(store: Store, head: Head) -> set[RecordName]:
    """The records on the way from the head to the first."""
    found: set[RecordName] = set()
    name = head.commit
    while name is not None and (record := store.get(record_key(name))) is not None:
        found.add(name)
        name = record.parent
    return found


def started(
    *,
    rewritten: int | None = None,
    expired: bool = False,
    deleted: bool = False,
    overwritten: bool = False,
    merged_again: bool = False,
    covered: bool = False,
    tagged: bool = False,
    ledger: bool = False,
) -> dict[Hashable, Any]:
    """A dataset with one file from long ago.

    ``rewritten``     at this time: its first version has another file, of the same rows
    ``expired``       all versions but the present one, by an earlier collection
    ``deleted``       by incarnation 1, at time 0
    ``overwritten``   a commit ``a`` was made and reported since (``b`` of a ledger), and plateau has just put a head
                      over it
    ``merged_again``  in addition, that was adopted and the commit merged again, but not marked anew
    ``covered``       in addition, there was another commit ``b`` on top of it (``a`` of a ledger)
    ``ledger``        it has a chain of one block, of which its table is the view
    ``tagged``        after it was rewritten, the first version got a tag, and expired but for that
    """
    current = File("f", frozenset({"r"}))
    commits = [_commit(1, "init", None, current if rewritten is None else File("o", current.rows), replaces=True)]
    if rewritten is not None:
        commits.append(replace(_commit(2, "rewrite", commits[-1], current, replaces=True), time=rewritten))
    if expired:
        raised = _commit(2, "expire.0", commits[-1], current, replaces=True)
        commits.append(replace(raised, added=frozenset(), removed=frozenset(), head=replace(raised.head, horizon=1)))
    if deleted:
        stone = _commit(2, "drop", commits[-1], current, replaces=True)
        gone = Head(stone.name, stone="1")
        commits.append(replace(stone, added=frozenset(), head=gone, time=0, incarnation="1"))
    first, second = ("b", "a") if ledger else ("a", "b")
    if overwritten or merged_again:
        file = File(f"{first}.{first.upper()}", frozenset({first}))
        commits.append(_commit(2, first, commits[-1], file, replaces=False))
    if covered:
        file = File(f"{second}.{second.upper()}", frozenset({second}))
        commits.append(_commit(3, second, commits[-1], file, replaces=False))
    if tagged:
        tag, tags = _commit(3, "tag.0", commits[-1], current, replaces=True), frozenset({commits[0].name})
        after = replace(tag.head, tags=tags, horizon=2)
        commits.append(replace(tag, added=frozenset(), removed=frozenset(), tags=tags, head=after))
    store: dict[Hashable, Any] = {CLOCK: 0}
    if ledger:
        chain = ("r", *(record.name.id for record in commits[1:]))
        commits = [
            replace(record, head=replace(record.head, chain=chain[:length]), moves=chain[: length - 1] or None)
            for length, record in enumerate(commits, 1)
        ]
        store[REF] = chain
    for record in commits:
        store |= {record_key(record.name): record, marker_key(record.name.id): Marker(record.name)}
        store |= {file_key(file): record.time for file in record.added}
        store |= {HEAD: record.head, "newest": record.name.version}
    if deleted:
        store["tombstone", "1"] = True
    if overwritten or merged_again:
        theirs = File("x", frozenset({"x"}))
        store |= {HEAD: replace(commits[0].head, files=frozenset({current, theirs}), foreign="x")}
        store |= {file_key(theirs): LONG_AGO, success_key(first, ""): True}
    if merged_again:
        lost = tuple(record.name for record in commits[1:])
        adopted = _commit(lost[-1].version + 1, "external.0", commits[0], theirs, replaces=False)
        adopted = replace(adopted, head=replace(adopted.head, lost=lost))
        merged = _commit(adopted.name.version + 1, "a", adopted, File("a.A", frozenset({"a"})), replaces=False)
        merged = replace(merged, head=replace(merged.head, lost=lost[1:]), recovers=lost[0])
        store |= {record_key(record.name): record for record in (adopted, merged)}
        store |= {marker_key("external.0"): Marker(adopted.name)}
        store |= {HEAD: merged.head, "newest": merged.name.version}
    return store


def _commit(version: int, commit_id: str, parent: Record | None, file: File, *, replaces: bool) -> Record:
    before: frozenset[File] = parent.head.files if parent else frozenset()
    removed = before if replaces else frozenset()
    name = RecordName(version, commit_id, "0")
    head = Head(name, (before - removed) | {file})
    return Record(name, parent.name if parent else None, frozenset({file}), removed, head, LONG_AGO)
