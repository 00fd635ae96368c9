"""File stores and symbolic links: nothing below the root leads out of it, whichever call it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kubothek
from kubothek.errors import AccessDenied, ObjectNotFound
from kubothek.storage import Store, StoreConfig, open_store

CALLS: dict[str, Callable[[Store, str], object]] = {
    "get": lambda store, key: store.get(key),
    "get_with_info": lambda store, key: store.get_with_info(key),
    "stat": lambda store, key: store.stat(key),
    "open": lambda store, key: store.open(key),
    "open_file": lambda store, key: store.open_file(key),
    "check_no_links": lambda store, key: store.check_no_links([key]),
    "put_if_match": lambda store, key: store.put_if_match(key, b"new", "etag"),
}
WRITES: dict[str, Callable[[Store, str], object]] = {
    "put": lambda store, key: store.put(key, b"new"),
    "put_if_absent": lambda store, key: store.put_if_absent(key, b"new"),
    "put_many": lambda store, key: store.put_many([(key, b"new")]),
    "delete": lambda store, key: store.delete([key]),
}


@pytest.fixture(params=["openat2", "walk"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store whose root is a link; below it, links lead to a directory and a file outside, and to its own objects."""
    if request.param == "walk":
        from kubothek.storage import beneath

        monkeypatch.setattr(beneath, "_open_beneath", beneath._walk)
    root, outside = tmp_path / "real", tmp_path / "outside"
    for directory in (root / "d", outside / "deep"):
        directory.mkdir(parents=True)
    for file in (outside / "secret", outside / "deep/secret", root / "d/object"):
        file.write_bytes(b"secret")
    (root / "linked").symlink_to(outside)
    (root / "d/linked").symlink_to("../../outside/secret")
    (root / "inner").symlink_to("d")
    (root / "d/inner").symlink_to("object")
    (tmp_path / "root").symlink_to(root)
    yield open_store(StoreConfig((tmp_path / "root").as_uri()))
    assert sorted(path.name for path in outside.rglob("*")) == ["deep", "secret", "secret"]
    assert {(outside / name).read_bytes() for name in ("secret", "deep/secret")} == {b"secret"}


@pytest.mark.parametrize("key", ["linked/secret", "linked/deep/secret", "d/linked", "inner/object", "d/inner"])
@pytest.mark.parametrize("call", CALLS)
def test_object_behind_symbolic_link_is_refused(store: Store, call: str, key: str) -> None:
    with pytest.raises(AccessDenied, match="symbolic link"):
        CALLS[call](store, key)


@pytest.mark.parametrize("key", ["linked/secret", "linked/new", "linked/deep/secret", "linked/a/b", "inner/object"])
@pytest.mark.parametrize("call", WRITES)
def test_write_through_linked_directory_is_refused(store: Store, call: str, key: str) -> None:
    with pytest.raises(AccessDenied, match="symbolic link"):
        WRITES[call](store, key)
    assert store.get("d/object") == b"secret"


@pytest.mark.parametrize("key", ["d/linked", "d/inner", "linked"])
@pytest.mark.parametrize("call", [name for name in WRITES if name != "delete"])
def test_write_to_symbolic_link_is_refused(store: Store, call: str, key: str) -> None:
    with pytest.raises(AccessDenied, match="symbolic link"):
        WRITES[call](store, key)
    assert store.get("d/object") == b"secret"


@pytest.mark.parametrize("key", ["d/linked", "d/inner", "linked", "inner"])
def test_delete_of_symbolic_link_keeps_target(store: Store, key: str) -> None:
    store.delete([key])
    with pytest.raises(ObjectNotFound):
        store.get(key)
    assert store.get("d/object") == b"secret"


def test_listing_excludes_symbolic_links(store: Store) -> None:
    assert [info.key for info in store.list("")] == ["d/object"]
    assert list(store.list_names("")) == ["d/"]
    assert list(store.list_names("d/")) == ["object"]
    for prefix in ("linked/", "linked/deep/", "inner/"):
        assert list(store.list(prefix)) == []
        assert list(store.list_names(prefix)) == []


@pytest.mark.parametrize("name", ["tmp", "locks"])
def test_linked_internal_directory_of_store_is_refused(store: Store, tmp_path: Path, name: str) -> None:
    (tmp_path / "real/.kubothek/.file").mkdir(parents=True)
    (tmp_path / "real/.kubothek/.file" / name).symlink_to(tmp_path / "outside")
    with pytest.raises(AccessDenied, match="symbolic link"):
        store.put("k", b"")


def test_data_file_that_is_symbolic_link_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    pq.write_table(pa.table({"a": [666]}), tmp_path / "outside.parquet")
    lake = kubothek.open((tmp_path / "store").as_uri())
    dataset = lake.create_dataset("d")
    dataset.append(pa.table({"a": [1]}))
    (file,) = (tmp_path / "store/d/table").glob("*.parquet")
    file.unlink()
    file.symlink_to(tmp_path / "outside.parquet")
    reads: tuple[Callable[[], object], ...] = (
        lambda: dataset.scan().read_all(),
        lambda: dataset.scan(where="a = 666").read_all(),
        lambda: lake.sql("SELECT * FROM d").read_all(),
        lambda: lake.sql("SELECT count(*) FROM d WHERE a = 666").read_all(),
        lambda: dataset.arrow_dataset().to_table(),
    )
    for read in reads:
        with pytest.raises(AccessDenied, match="symbolic link"):
            read()
