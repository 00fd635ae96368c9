"""Who meets whom: small casts that between them bring out every rule of the protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.protocol_model import maintenance, programs
from tests.protocol_model.engine import CLOCK, Explored, Explorer, Store, Task, Violation
from tests.protocol_model.programs import Me, Rules
from tests.protocol_model.world import (
    GRACE,
    HEAD,
    LONG_AGO,
    File,
    Grant,
    Marker,
    RecordName,
    check,
    file_key,
    marker_key,
    record_key,
    started,
    success_key,
)

UNOWNED = "-"
"""In a tombstone: deleted without a claim."""


@dataclass(frozen=True)
class Scenario:
    """A store to start from, and the programs on it; ``all_succeed`` are commits that nothing here may stop."""

    store: Store
    cast: Mapping[str, Task]
    ticks: int = 0
    all_succeed: tuple[str, ...] = field(default=())

    def explore(self) -> Explored:
        return Explorer(self.store, self.cast, check, check_end=self._check_end, ticks=self.ticks).run()

    def _check_end(self, store: Store) -> None:
        for commit_id in self.all_succeed:
            if success_key(commit_id, "") not in store:
                raise Violation(f"{commit_id} ended without success, and nothing was in its way")


def _write(name: str, commit_id: str, rules: Rules, **options: Any) -> Task:
    return Task(programs.writer, (Me(name, commit_id, rules, **options),))


def _run(program: Callable[..., Any], name: str, rules: Rules, **options: Any) -> Task:
    return Task(program, (Me(name, name.lower(), rules, **options),))


def _foreign(name: str, *, keeps_metadata: bool) -> Task:
    return Task(maintenance.foreign_writer, (name, keeps_metadata))


def two_attempts_and_a_writer(rules: Rules) -> Scenario:
    """A re-run beside a first attempt whose responses get lost, and another commit."""
    cast = {
        "A": _write("A", "a", rules, lossy=True),
        "A2": _write("A2", "a", rules),
        "B": _write("B", "b", rules),
    }
    return Scenario(started(), cast, all_succeed=("a", "b"))


def creation(rules: Rules) -> Scenario:
    """The same where there is no dataset yet."""
    return Scenario({CLOCK: 0}, two_attempts_and_a_writer(rules).cast, all_succeed=("a", "b"))


def rewrites(rules: Rules) -> Scenario:
    """A compaction, a deletion and an overwrite of one file."""
    cast = {
        "A": _write("A", "a", rules, change="rewrite"),
        "B": _write("B", "b", rules, change="delete"),
        "C": _write("C", "c", rules, change="overwrite"),
    }
    return Scenario(started(), cast)


def two_compactions_and_an_append(rules: Rules) -> Scenario:
    """Two compactions of the same file; the append is in nobody's way."""
    cast = {
        "A": _write("A", "a", rules, change="rewrite"),
        "B": _write("B", "b", rules, change="rewrite"),
        "C": _write("C", "c", rules),
    }
    return Scenario(started(), cast, all_succeed=("c",))


def replaces(rules: Rules) -> Scenario:
    """Two replacements and an append in one partition, of which only the append is in nobody's way; one in another."""
    cast = {
        "A": _write("A", "a", rules, change="replace"),
        "B": _write("B", "b", rules),
        "C": _write("C", "c", rules, change="replace", partition="q"),
    }
    return Scenario(started(), cast, all_succeed=("b", "c"))


def merges(rules: Rules) -> Scenario:
    """Two merges insert a row of the same key, while an append adds another row."""
    cast = {
        "A": _write("A", "a", rules, change="merge", key="k"),
        "B": _write("B", "b", rules, change="merge", key="k"),
        "C": _write("C", "c", rules),
    }
    return Scenario(started(), cast, all_succeed=("c",))


def merge_beside_a_compaction(rules: Rules) -> Scenario:
    """A merge updates a row of a file that a compaction replaces, while an append adds another row."""
    cast = {
        "A": _write("A", "a", rules, change="merge", key="r"),
        "B": _write("B", "b", rules, change="rewrite"),
        "C": _write("C", "c", rules),
    }
    return Scenario(started(), cast, all_succeed=("c",))


def replace_beside_plateau(rules: Rules) -> Scenario:
    """Plateau overwrites a replacement, from a head that was there before it, or adds to its partition."""
    cast = {"A": _write("A", "a", rules, change="replace"), "X": _foreign("x", keeps_metadata=True)}
    return Scenario(started(), cast)


def plateau_beside_two_writers(rules: Rules) -> Scenario:
    cast = {"A": _write("A", "a", rules), "B": _write("B", "b", rules), "X": _foreign("x", keeps_metadata=True)}
    return Scenario(started(), cast, all_succeed=("a", "b"))


def plateau_beside_two_attempts(rules: Rules) -> Scenario:
    cast = {
        "A": _write("A", "a", rules, lossy=True),
        "A2": _write("A2", "a", rules),
        "X": _foreign("x", keeps_metadata=True),
    }
    return Scenario(started(), cast, all_succeed=("a",))


def kartothek_beside_two_writers(rules: Rules) -> Scenario:
    """Its head names no commit."""
    cast = {"A": _write("A", "a", rules), "B": _write("B", "b", rules), "K": _foreign("x", keeps_metadata=False)}
    return Scenario(started(), cast, all_succeed=("a", "b"))


def kartothek_beside_two_attempts(rules: Rules) -> Scenario:
    cast = {"A": _write("A", "a", rules), "A2": _write("A2", "a", rules), "K": _foreign("x", keeps_metadata=False)}
    return Scenario(started(), cast, all_succeed=("a",))


def plateau_a_second_time(rules: Rules) -> Scenario:
    """A commit that was declared void once is made again, and overwritten again."""
    store = {**started(), marker_key("a"): Marker(None, "")}
    cast = {
        "A": _write("A", "a", rules),
        "S": _run(programs.settler, "S", rules),
        "X": _foreign("x", keeps_metadata=True),
    }
    return Scenario(store, cast, all_succeed=("a",))


def two_settle_an_overwritten_commit(rules: Rules) -> Scenario:
    cast = {"S": _run(programs.settler, "S", rules), "A": _write("A", "a", rules)}
    return Scenario(started(overwritten=True), cast, all_succeed=("a",))


def overwritten_by_two_more(rules: Rules) -> Scenario:
    """While an overwritten commit is merged again, plateau overwrites that: once from a head that had the commit."""
    store = started(overwritten=True)
    with_commit = store[record_key(RecordName(2, "a", "0"))].head
    cast = {
        "S": _run(programs.settler, "S", rules),
        "X": _foreign("x2", keeps_metadata=True),
        "Y": Task(maintenance.foreign_write, ("y", with_commit, True)),
    }
    return Scenario(store, cast)


def overwritten_while_it_is_marked_again(rules: Rules) -> Scenario:
    """An overwritten commit was merged again, but not marked anew, and plateau writes from a head that had it."""
    store = started(merged_again=True)
    cast = {
        "S": _run(programs.settler, "S", rules),
        "T": _run(programs.settler, "T", rules),
        "Y": Task(maintenance.foreign_write, ("y", store[record_key(RecordName(2, "a", "0"))].head, True)),
    }
    return Scenario(store, cast)


def overwritten_from_further_up_while_it_is_marked_again(rules: Rules) -> Scenario:
    """The same from a head that had another commit on top."""
    store = started(merged_again=True, covered=True)
    again = store[record_key(RecordName(5, "a", "0"))]
    cast = {
        "S": Task(programs.marking, (Me("S", "s", rules), again)),
        "T": _run(programs.settler, "T", rules),
        "Y": Task(maintenance.foreign_write, ("y", store[record_key(RecordName(3, "b", "0"))].head, True)),
    }
    return Scenario(store, cast)


def overtaken_while_it_confirms(rules: Rules) -> Scenario:
    """One is about to adopt a head that had an overwritten commit; by then plateau wrote from the one merged again."""
    store = started(merged_again=True)
    first = store[record_key(RecordName(2, "a", "0"))]
    again = store[record_key(RecordName(4, "a", "0"))]
    store |= {marker_key("a"): Marker(again.name), HEAD: replace(again.head, foreign="z")}
    cast = {
        "S": Task(programs.overtaken, (Me("S", "s", rules), replace(first.head, foreign="y"), first)),
        "T": _run(programs.settler, "T", rules),
    }
    return Scenario(store, cast)


def deleted_and_made_again(rules: Rules) -> Scenario:
    """A job of the old resource, its deletion, and a job of the new resource that has the same commit id."""
    cast = {
        "A": _write("A", "a", rules, incarnation="1"),
        "D": _run(maintenance.dropper, "D", rules, incarnation="1"),
        "A2": _write("A2", "a", rules, incarnation="2", heir=True),
    }
    return Scenario(started(), cast)


def two_deletions_and_an_heir(rules: Rules) -> Scenario:
    """The second attempt at a deletion is still under way when the dataset is made again."""
    cast = {
        "D": _run(maintenance.dropper, "D", rules, incarnation="1"),
        "D2": _run(maintenance.dropper, "D2", rules, incarnation="1"),
        "A2": _write("A2", "a", rules, incarnation="2", heir=True),
    }
    return Scenario(started(), cast)


def unowned_dataset_dropped_and_made_again(rules: Rules) -> Scenario:
    """A writer without a claim, a deletion, and a new dataset of that name."""
    cast = {
        "A": _write("A", "a", rules, unowned=True, incarnation=UNOWNED),
        "D": _run(maintenance.dropper, "D", rules, incarnation=UNOWNED),
        "C": _write("C", "create", rules, unowned=True, creates=True),
    }
    return Scenario(started(), cast)


def creations_beside_a_restore(rules: Rules) -> Scenario:
    """Two new datasets of a name whose dataset was deleted, of which one wins, beside a restore of the old one."""
    cast = {
        "B": _write("B", "b", rules, unowned=True, creates=True),
        "C": _write("C", "c", rules, unowned=True, creates=True),
        "S": _run(maintenance.restorer, "S", rules, incarnation="1"),
    }
    return Scenario(started(deleted=True), cast)


def collector_beside_a_writer(rules: Rules) -> Scenario:
    cast = {
        "A": _write("A", "a", rules, timed=True),
        "G": _run(maintenance.collector, "G", rules, timed=True),
    }
    return Scenario(started(rewritten=LONG_AGO), cast, ticks=4)


def collector_with_nothing_to_expire(rules: Rules, *, prompt: bool = True) -> Scenario:
    """It sweeps without a commit of its own, which would make every swap under way fail."""
    cast = {
        "A": _write("A", "a", rules, timed=True, prompt=prompt),
        "G": _run(maintenance.collector, "G", rules, timed=True),
    }
    return Scenario(started(expired=True), cast, ticks=4)


def collector_beside_a_rollback(rules: Rules) -> Scenario:
    """A rollback to the version that expires."""
    cast = {
        "A": _run(maintenance.rollback, "A", rules, timed=True),
        "G": _run(maintenance.collector, "G", rules, timed=True),
    }
    return Scenario(started(rewritten=LONG_AGO), cast, ticks=1)


def collector_beside_a_reader(rules: Rules) -> Scenario:
    """The file that a reader is about to read is replaced."""
    cast = {
        "A": _write("A", "a", rules, timed=True, change="rewrite"),
        "G": _run(maintenance.collector, "G", rules, timed=True),
        "R": Task(maintenance.reader, ()),
    }
    return Scenario(started(), cast, ticks=4)


def collector_beside_plateau(rules: Rules, *, in_time: bool = True) -> Scenario:
    """Plateau read a head whose file was replaced just after."""
    store = started(rewritten=0)
    before = store[record_key(RecordName(1, "init", "0"))].head
    cast = {
        "G": _run(maintenance.collector, "G", rules, timed=True),
        "X": Task(maintenance.foreign_write, ("x", before, True, GRACE if in_time else None)),
    }
    return Scenario(store, cast, ticks=4)


def collector_beside_a_reader_of_a_foreign_head(rules: Rules) -> Scenario:
    """The foreign head names an index that was written long ago, and that its adoption replaces."""
    store = started()
    index = File("i", frozenset())
    foreign = replace(store[HEAD], foreign="x", index=index)
    cast = {
        "G": _run(maintenance.collector, "G", rules, timed=True),
        "R": Task(maintenance.reader, ()),
    }
    return Scenario({**store, HEAD: foreign, file_key(index): LONG_AGO}, cast, ticks=2)


def collector_beside_a_restore(rules: Rules) -> Scenario:
    cast = {
        "S": _run(maintenance.restorer, "S", rules, timed=True, incarnation="1"),
        "G": _run(maintenance.collector, "G", rules, timed=True),
    }
    return Scenario(started(deleted=True), cast, ticks=5)


def collector_beside_a_tagger(rules: Rules) -> Scenario:
    """The version that gets a tag is the one that expires."""
    cast = {
        "A": _run(maintenance.tagger, "A", rules, timed=True),
        "G": _run(maintenance.collector, "G", rules, timed=True),
    }
    return Scenario(started(rewritten=LONG_AGO), cast, ticks=1)


def collector_beside_an_untagger(rules: Rules) -> Scenario:
    """A version that has only its tag, which goes while somebody reads by it."""
    store = started(rewritten=LONG_AGO, tagged=True)
    cast = {
        "A": _run(maintenance.untagger, "A", rules, timed=True),
        "G": _run(maintenance.collector, "G", rules, timed=True),
        "R": Task(maintenance.reader_of_a_tag, (store[record_key(RecordName(1, "init", "0"))],)),
    }
    return Scenario(store, cast, ticks=4)


def plateau_beside_a_tagger(rules: Rules) -> Scenario:
    """It overwrites the head that has the tag."""
    cast = {
        "A": _run(maintenance.tagger, "A", rules),
        "S": _run(programs.settler, "S", rules),
        "X": _foreign("x", keeps_metadata=True),
    }
    return Scenario(started(rewritten=LONG_AGO), cast)


def two_moves_and_a_compaction(rules: Rules) -> Scenario:
    """Two ingests of a ledger, one of them twice, beside a compaction of its table; the reference follows."""
    cast = {
        "A": _write("A", "a", rules, change="move", refs=True),
        "B": _write("B", "b", rules, change="move", refs=True, lossy=True),
        "C": _write("C", "c", rules, change="rewrite"),
    }
    return Scenario(started(ledger=True), cast, all_succeed=("a", "b"))


def one_ingest_twice(rules: Rules) -> Scenario:
    """A re-run of an ingest whose responses get lost, beside another ingest."""
    cast = {
        "A": _write("A", "a", rules, change="move", lossy=True),
        "A2": _write("A2", "a", rules, change="move"),
        "B": _write("B", "b", rules, change="move"),
    }
    return Scenario(started(ledger=True), cast, all_succeed=("a", "b"))


def plateau_beside_two_moves(rules: Rules) -> Scenario:
    """Its change of the table is adopted and noted; nothing moves the chain then."""
    cast = {
        "A": _write("A", "a", rules, change="move"),
        "B": _write("B", "b", rules, change="move"),
        "X": _foreign("x", keeps_metadata=True),
    }
    return Scenario(started(ledger=True), cast)


def two_settle_overwritten_moves(rules: Rules) -> Scenario:
    """The later one comes first to be merged again, and cannot be: what it goes on from is not there."""
    cast = {"S": _run(programs.settler, "S", rules), "B": _write("B", "b", rules, change="move")}
    return Scenario(started(ledger=True, overwritten=True, covered=True), cast, all_succeed=("b",))


def kartothek_beside_a_move(rules: Rules) -> Scenario:
    """Its head does not say where the chain is."""
    cast = {
        "A": _write("A", "a", rules, change="move"),
        "S": _run(programs.settler, "S", rules),
        "K": _foreign("x", keeps_metadata=False),
    }
    return Scenario(started(ledger=True), cast)


def _granted(*, stranger: bool = False) -> Store:
    """A dataset whose owner permits the commit ``a`` of another; ``c`` is nobody's."""
    store = started()
    first = store[record_key(RecordName(1, "init", "0"))]
    head = replace(first.head, grant=PERMITS_A)
    store |= {record_key(first.name): replace(first, head=head), HEAD: head}
    return store | {("stranger", "c"): True} if stranger else store


def _grants(name: str, rules: Rules, grant: Grant) -> Task:
    return Task(maintenance.granter, (Me(name, name.lower(), rules), grant))


PERMITS_A = Grant("1", frozenset({"a"}))


def writer_whose_permission_is_withdrawn(rules: Rules) -> Scenario:
    """Beside a commit of the owner, and one whom nobody permitted."""
    cast = {
        "A": _write("A", "a", rules, guest=True),
        "B": _write("B", "b", rules),
        "C": _write("C", "c", rules, guest=True),
        "O": _grants("O", rules, Grant("1")),
    }
    return Scenario(_granted(stranger=True), cast, all_succeed=("b",))


def two_attempts_of_a_writer(rules: Rules) -> Scenario:
    """The responses of the first get lost; the owner commits, and permits a third."""
    cast = {
        "A": _write("A", "a", rules, guest=True, lossy=True),
        "A2": _write("A2", "a", rules, guest=True),
        "O": _grants("O", rules, Grant("1", frozenset({"a", "d"}))),
    }
    return Scenario(_granted(), cast, all_succeed=("a",))


def writer_whose_owner_is_made_again(rules: Rules) -> Scenario:
    """The new resource permits the same writer."""
    cast = {
        "A": _write("A", "a", rules, guest=True),
        "O": _grants("O", rules, Grant("2", frozenset({"a"}))),
    }
    return Scenario(_granted(), cast)


def plateau_beside_a_withdrawal(rules: Rules) -> Scenario:
    """It overwrites the head that no longer permits the writer."""
    cast = {
        "A": _write("A", "a", rules, guest=True),
        "O": _grants("O", rules, Grant("1")),
        "X": _foreign("x", keeps_metadata=True),
    }
    return Scenario(_granted(), cast)


ALL: tuple[Callable[[Rules], Scenario], ...] = (
    two_attempts_and_a_writer,
    creation,
    rewrites,
    replaces,
    merges,
    merge_beside_a_compaction,
    replace_beside_plateau,
    two_compactions_and_an_append,
    plateau_beside_two_writers,
    plateau_beside_two_attempts,
    kartothek_beside_two_writers,
    kartothek_beside_two_attempts,
    plateau_a_second_time,
    two_settle_an_overwritten_commit,
    overwritten_by_two_more,
    overwritten_while_it_is_marked_again,
    overwritten_from_further_up_while_it_is_marked_again,
    overtaken_while_it_confirms,
    deleted_and_made_again,
    two_deletions_and_an_heir,
    unowned_dataset_dropped_and_made_again,
    creations_beside_a_restore,
    collector_beside_a_writer,
    collector_with_nothing_to_expire,
    collector_beside_a_rollback,
    collector_beside_a_reader,
    collector_beside_plateau,
    collector_beside_a_reader_of_a_foreign_head,
    collector_beside_a_restore,
    collector_beside_a_tagger,
    collector_beside_an_untagger,
    plateau_beside_a_tagger,
    two_moves_and_a_compaction,
    one_ingest_twice,
    plateau_beside_two_moves,
    writer_whose_permission_is_withdrawn,
    two_attempts_of_a_writer,
    writer_whose_owner_is_made_again,
    plateau_beside_a_withdrawal,
    two_settle_overwritten_moves,
    kartothek_beside_a_move,
)
