from pathlib import Path

import pytest

from tests.testcluster.cache import build_once, content_key


def test_content_key_depends_on_every_part_and_boundary() -> None:
    keys = {content_key("ab", "c"), content_key("a", "bc"), content_key("abc"), content_key("c", "ab")}
    assert len(keys) == 4


def test_content_key_of_path_is_that_of_its_content(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("same")
    second.write_text("same")
    assert content_key(first) == content_key(second) == content_key(b"same")


def test_content_key_of_directory_covers_names_and_contents(tmp_path: Path) -> None:
    nested = tmp_path / "nested"
    nested.mkdir()
    file = nested / "file"
    file.write_text("1")
    before = content_key(tmp_path)
    file.write_text("2")
    changed = content_key(tmp_path)
    file.rename(nested / "other")
    assert len({before, changed, content_key(tmp_path)}) == 3


def test_cache_entry_is_built_once(tmp_path: Path) -> None:
    entry, built = tmp_path / "cache" / "entry", []

    def fill(directory: Path) -> None:
        built.append(directory)
        (directory / "program").write_text("done")

    assert build_once(entry, fill) == build_once(entry, fill) == entry
    assert len(built) == 1
    assert (entry / "program").read_text() == "done"


def test_cache_build_that_fails_leaves_no_entry(tmp_path: Path) -> None:
    entry = tmp_path / "entry"

    def fail(directory: Path) -> None:
        (directory / "half").write_text("of it")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        build_once(entry, fail)
    assert [path.name for path in tmp_path.iterdir()] == ["entry.lock"]
