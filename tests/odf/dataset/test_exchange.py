"""LY-02, SH-01, SH-02: a dataset as a directory, out and in."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubothek.errors import ChainCorrupt, DatasetExists, DatasetNotFound, Diverged
from kubothek.odf import Layout, verify
from kubothek.odf.dataset import Root, Table, export, import_chain
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.layout import Layout as TableLayout
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys
from tests.faultstore import Crash, FaultStore, every_crash
from tests.odf.dataset.planes import UUID, made, opened, planes, push, sound, table
from tests.s3server import S3Server

pytestmark = pytest.mark.slow


def exported(store: Store, other: Store) -> None:
    made(store)
    push(store, {1: "A", 2: "B"})
    push(store, {1: "A", 2: "C"})
    export(opened(store), other, "ds/")


@pytest.mark.requirement("LY-02", "SH-01", "SH-02")
def test_exported_chain_is_complete_and_written_in_dependency_order(store: Store, other: Store) -> None:
    made(store)
    push(store, {1: "A"})
    recorded = FaultStore(other)
    done = export(opened(store), recorded, "ds/")
    assert (done.blocks, done.objects) == (5, 1)
    kinds = [call.key.split("/")[1] for call in recorded.calls if call.name in ("put", "upload")]
    assert kinds == sorted(kinds, key=["data", "checkpoints", "blocks", "refs"].index)
    verdict = verify(other, Layout("ds/"))
    assert (verdict.head, verdict.problems) == (done.head, ())
    push(store, {1: "B"})
    assert export(opened(store), other, "ds/").blocks == 1
    assert export(opened(store), other, "ds/").blocks == 0


@pytest.mark.requirement("SH-03")
def test_export_over_diverged_chain_is_refused(store: Store, other: Store) -> None:
    exported(store, other)
    opened(store).reset(next(iter(opened(store).blocks())).content.prev_block_hash)  # type: ignore[arg-type]
    with pytest.raises(Diverged):
        export(opened(store), other, "ds/")


@pytest.mark.parametrize("partitioned", [False, True])
def test_imported_chain_has_identical_blocks_and_rebuilt_table(
    store: Store, other: Store, *, partitioned: bool
) -> None:
    exported(store, other)
    laid = Table(layout=TableLayout(partition_on=("model",) if partitioned else ()))
    log = DatasetLog(other, UUID)
    root = import_chain(other, log, other, "ds/", table=laid, commit_id="import")
    assert [b.data for b in root.blocks()] == [b.data for b in opened(store).blocks()]
    assert root.state == opened(store).state
    assert table(other) == table(store) == {1: "A", 2: "C"}
    assert other.get(keys.chain_ref(UUID)) == store.get(keys.chain_ref(UUID))
    assert import_chain(other, log, other, "ds/", table=laid, commit_id="import").state == root.state
    with pytest.raises(DatasetExists):
        import_chain(other, log, other, "ds/", table=laid)
    Root(other, log).push(planes({1: "A", 3: "D"}))
    assert table(other) == {1: "A", 3: "D"}
    sound(other)


def test_chain_import_without_table_succeeds(store: Store, other: Store) -> None:
    exported(store, other)
    root = import_chain(other, DatasetLog(other, UUID), other, "ds/")
    assert Root(other, DatasetLog(other, UUID)).push(planes({1: "A", 2: "C"})).up_to_date
    assert not root.snapshot.head.partitions


@pytest.mark.parametrize("part", ["blocks/", "data/"])
def test_import_of_damaged_chain_is_refused(store: Store, other: Store, part: str) -> None:
    exported(store, other)
    key = next(iter(other.list(f"ds/{part}"))).key
    data = other.get(key)
    other.put(key, data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(ChainCorrupt):
        import_chain(store, DatasetLog(store, "copy"), other, "ds/", table=Table())
    with pytest.raises(DatasetNotFound):
        Root(store, DatasetLog(store, "copy"))
    other.delete([key])
    with pytest.raises(ChainCorrupt):
        import_chain(store, DatasetLog(store, "copy"), other, "ds/", table=Table())


def test_import_after_crash_succeeds_on_retry(store: Store, other: Store) -> None:
    exported(store, other)
    counting = FaultStore(store)
    import_chain(counting, DatasetLog(counting, "copy"), other, "ds/", commit_id="import")
    for number, fault in enumerate(every_crash(counting.calls)):
        if number % 5 == 0:
            uuid = f"copy{number}"
            faulty = FaultStore(store, fault)
            with pytest.raises(Crash):
                import_chain(faulty, DatasetLog(faulty, uuid), other, "ds/", commit_id="import")
            root = import_chain(store, DatasetLog(store, uuid), other, "ds/", commit_id="import")
            verdict = verify(store, Layout(keys.chain(uuid)))
            assert (verdict.problems, verdict.head) == ((), root.state.head)


def test_ledger_in_s3_bucket_supports_push_compact_and_export(
    s3: S3Server, secret: Path, bucket: str, other: Store
) -> None:
    """Conditional writes, listings and ranges of a real server."""
    store = open_store(StoreConfig(f"s3://{bucket}/lake", endpoint=s3.endpoint, credentials_dir=str(secret)))
    made(store)
    push(store, {1: "A", 2: "B"}, "first")
    push(store, {1: "A2"}, "second")
    assert opened(store).push(planes({9: "x"}), commit_id="second").repeated
    assert table(store) == {1: "A2"}
    assert store.get(keys.chain_ref(UUID)).decode() == str(sound(store).head)
    opened(store).compact()
    sound(store)
    export(opened(store), other, "ds/")
    assert verify(other, Layout("ds/")).problems == ()
