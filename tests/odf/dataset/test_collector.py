"""What a collection takes of a ledger: what lost attempts left, and nothing that a version needs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from kubothek.errors import VersionIncomplete
from kubothek.gc import Collection, Mode, Retention, collect
from kubothek.gc.areas import Kind
from kubothek.odf import Multihash
from kubothek.odf.dataset import Root, Table, create
from kubothek.odf.spec.events import SetInfo
from kubothek.storage import Store
from kubothek.table.log import Claim, DatasetLog, StoreSettings, write_settings
from kubothek.table.log.model import keys
from tests.faultstore import Crash, Fault, FaultStore
from tests.gc.aging import GRACE, AgingStore
from tests.odf.dataset.planes import APPEND, LAYOUT, OWNER, UUID, begun, planes, sound, source

pytestmark = pytest.mark.slow

KEEP_ONE = Retention(versions=1)


def log_of(store: Store, incarnation: str = "first") -> DatasetLog:
    aging = store.inner if isinstance(store, FaultStore) else store
    assert isinstance(aging, AgingStore)
    return DatasetLog(store, UUID, claim=Claim("cluster/ns/planes", incarnation), clock=lambda: aging.now)


def root_of(store: Store) -> Root:
    return Root(store, log_of(store))


def started(table: Table | None = None) -> AgingStore:
    store = AgingStore()
    write_settings(store, StoreSettings(grace=GRACE))
    create(store, log_of(store), begun(source(APPEND)), OWNER, table=table)
    root_of(store).push(planes({1: "A"}))
    return store


def swept(store: Store) -> Collection:
    return collect(store, log_of(store), [KEEP_ONE], mode=Mode.ENFORCE)


def chain_keys(store: Store) -> set[str]:
    return {info.key for info in store.list(LAYOUT.root)}


def test_chain_with_expired_versions_stays_complete() -> None:
    store = started()
    for number in range(2, 6):
        store.pass_by(2 * GRACE)
        root_of(store).push(planes({number: "x"}))
    store.pass_by(2 * GRACE)
    before = chain_keys(store)
    assert swept(store).deleted.keys() & {Kind.RECORDS}
    assert chain_keys(store) == before
    assert sound(store).records == 5
    assert len([*store.list(keys.definitions(UUID))]) == 1, "those of before the first data are needed by nobody"


def test_objects_of_crashed_push_are_collected_after_grace_period() -> None:
    store = started()
    before = chain_keys(store)
    faulty = FaultStore(store, Fault(("put_if_match",), key=keys.head(UUID)))
    with pytest.raises(Crash):
        Root(faulty, log_of(faulty)).push(planes({2: "B"}))
    left = chain_keys(store) - before
    assert {key.split("/")[3] for key in left} == {"blocks", "data"}
    store.pass_by(GRACE / 2)
    swept(store)
    assert chain_keys(store) == before | left
    store.pass_by(2 * GRACE)
    assert Kind.CHAIN in swept(store).deleted
    assert chain_keys(store) == before
    sound(store)


def test_tagged_version_keeps_referenced_chain_blocks() -> None:
    store = started()
    log_of(store).tag("before")
    tagged = root_of(store).state.head
    store.pass_by(2 * GRACE)
    root_of(store).push(planes({2: "B"}))
    for _ in range(2):
        store.pass_by(2 * GRACE)
        root_of(store).compact()
        store.pass_by(2 * GRACE)
        swept(store)
    note = log_of(store).snapshot("before").head.chain
    assert note is not None
    assert note.head == str(tagged)
    assert root_of(store).layout.block(Multihash.parse(note.head)) in chain_keys(store)
    log_of(store).untag("before")
    store.pass_by(2 * GRACE)
    swept(store)
    store.pass_by(2 * GRACE)
    swept(store)
    assert root_of(store).layout.block(Multihash.parse(note.head)) not in chain_keys(store)
    sound(store)


@pytest.mark.parametrize("policy", [Retention(), Retention(versions=2), KEEP_ONE], ids=["all", "two", "one"])
@pytest.mark.parametrize("moved", ["compacted", "reset", "taken in"])
def test_chain_moved_by_reset_compaction_or_push_keeps_referenced_objects(policy: Retention, moved: str) -> None:
    """Of versions between the oldest and the present one, the records alone tell what they brought."""
    store = started()
    early = root_of(store).push(planes({2: "B"})).head
    root_of(store).push(planes({3: "C"}))
    store.pass_by(2 * GRACE)
    if moved == "compacted":
        root_of(store).compact()
    elif moved == "reset":
        root_of(store).reset(early)
    else:
        elsewhere = store.copy()
        root_of(elsewhere).push(planes({4: "D"}))
        for key in chain_keys(elsewhere):
            store.put(key, elsewhere.get(key))
        root_of(store).append_events([SetInfo(description="on top")])
    store.pass_by(2 * GRACE)
    root_of(store).push(planes({5: "E"}))
    store.pass_by(2 * GRACE)
    for _ in range(2):
        collect(store, log_of(store), [policy], mode=Mode.ENFORCE)
        sound(store)
        for record in log_of(store).history():
            if record.ledger is not None:
                assert set(record.ledger.keys(UUID)) <= chain_keys(store)
        store.pass_by(2 * GRACE)


def test_object_rewritten_during_collection_is_kept() -> None:
    """Names are contents here: a leftover of before can become part of the chain."""
    store = started()
    store.put(LAYOUT.block(stray := Multihash.sha3(b"stray")), b"stray")
    store.pass_by(2 * GRACE)
    faulty, once = FaultStore(store), iter([True])

    def before_call(name: str, key: str) -> None:
        if name == "stat" and key == LAYOUT.block(stray) and next(once, False):
            store.pass_by(timedelta(seconds=1))
            store.put(key, b"stray")

    faulty.before_call = before_call
    collect(faulty, log_of(faulty), [KEEP_ONE], mode=Mode.ENFORCE)
    assert LAYOUT.block(stray) in chain_keys(store)


def test_unknown_objects_in_chain_directory_are_kept() -> None:
    store = started()
    for name in ("info/summary", "refs/other", "blocks/.tmp", "data/sub/x"):
        store.put(f"{LAYOUT.root}{name}", b"somebody's")
    store.pass_by(2 * GRACE)
    assert swept(store).unknown.objects == 2
    assert {f"{LAYOUT.root}info/summary", f"{LAYOUT.root}refs/other", f"{LAYOUT.root}blocks/.tmp"} <= chain_keys(store)


def test_chain_with_missing_block_is_not_collected() -> None:
    store = started()
    root_of(store).append_events([SetInfo(description="new")])
    block = next(b for b in root_of(store).blocks() if b.content.sequence_number == 1)
    store.delete([LAYOUT.block(block.hash)])
    store.pass_by(2 * GRACE)
    before = chain_keys(store)
    with pytest.raises(VersionIncomplete, match="cannot be followed"):
        swept(store)
    assert chain_keys(store) == before


@pytest.mark.parametrize("after", [lambda store: None, lambda store: log_of(store).restore()], ids=["gone", "restored"])
def test_deleted_ledger_is_collected_after_grace_period_unless_restored(after: Callable[[Store], object]) -> None:
    store = started()
    log_of(store).delete()
    store.pass_by(GRACE / 2)
    swept(store)
    after(store)
    restored = log_of(store).journal.observe().head.tombstone is None  # type: ignore[union-attr]
    store.pass_by(3 * GRACE)
    swept(store)
    if restored:
        assert sound(store).records == 1
    else:
        assert chain_keys(store) == {keys.chain_ref(UUID)}
