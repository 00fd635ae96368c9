"""Stores of the former code and of the present one: each reads, changes and collects what the other wrote."""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest

from tests.compatibility.former import PRESENT, former_code, run_steps

pytestmark = pytest.mark.slow

ADDED = ("replaced", "bytes")
"""Keys of records that are new, or whose values are larger: footers of data files have pandas metadata now."""
_TIME = r"\d{4}-\d\d-\d\d[T ][\d:.%A]+\d(?:\+00:00|Z)?"
RANDOM = re.compile(rf"(?:[0-9a-f]{{8,}}|{_TIME})(?:-[0-9a-f]{{4,}})*")
"""Ids, nonces and digests, and times; each may have a nonce behind it."""


@dataclass(frozen=True)
class Made:
    """Lakes that both versions of the code made by the same calls."""

    former: Path
    by_former: Path
    by_present: Path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    directory = tmp_path_factory.mktemp("compatibility")
    found = Made(former_code(directory), directory / "former" / "lake", directory / "present" / "lake")
    for code, lake in ((found.former, found.by_former), (PRESENT, found.by_present)):
        lake.mkdir(parents=True)
        run_steps(code, lake, "make")
    return found


def test_former_and_present_version_write_identical_bytes(made: Made) -> None:
    former, present = _objects(made.by_former), _objects(made.by_present)
    assert former.keys() == present.keys()
    for key, objects in former.items():
        assert objects == present[key], key


@pytest.mark.parametrize("makes", ["former", "present"])
def test_each_version_can_modify_store_of_other_version(makes: str, made: Made, tmp_path: Path) -> None:
    lake = Path(shutil.copytree(made.by_former if makes == "former" else made.by_present, tmp_path / "lake"))
    one, other = (made.former, PRESENT) if makes == "former" else (PRESENT, made.former)
    changed = run_steps(other, lake, "change", "read")
    assert {each["wrong"] for name, each in changed.items() if name != "visits"} == {0}
    assert (len(changed["flights"]["rows"]), len(changed["visits"])) == (155, 4)
    before = _data_files(lake)
    assert run_steps(one, lake, "read", "collect") == changed
    assert len(_data_files(lake)) < len(before)
    assert run_steps(other, lake, "collect", "read") == changed
    assert run_steps(one, lake, "read") == changed


def _data_files(lake: Path) -> set[Path]:
    return set(lake.glob("*/table/**/*.parquet"))


def _objects(lake: Path) -> dict[str, list[Any]]:
    """Return the objects of a lake by their keys, both without what is random, times and digests."""
    found = defaultdict(list)
    for file in lake.rglob("*"):
        key = str(file.relative_to(lake))
        # Records of the register, and so all hashes of its chain, have the time of their ingestion: each version
        # verifies what the other wrote.
        if file.is_file() and "/.file/" not in key and not re.match(r"(\.kubothek/)?register/", key):
            found[RANDOM.sub("#", key)].append(_content(file))
    return {key: sorted(objects, key=str) for key, objects in found.items()}


def _content(file: Path) -> Any:
    data = file.read_bytes()
    if file.suffix == ".json":
        return _without_random(orjson.loads(data))
    if file.suffix == ".parquet" and "/table/" in str(file):
        footer = int.from_bytes(data[-8:-4], "little") + 8
        return data[:-footer], str(pq.read_schema(file).remove_metadata())
    return None


def _without_random(value: Any) -> Any:
    if isinstance(value, dict):
        return {RANDOM.sub("#", key): _without_random(each) for key, each in value.items() if key not in ADDED}
    if isinstance(value, list) and len(value) == 5 and str(value[1]).endswith(".parquet"):
        value = [*value[:3], *value[4:]]  # a new file of a record: the size is greater, as in ADDED
    if isinstance(value, list):
        return sorted((_without_random(each) for each in value), key=str)
    return RANDOM.sub("#", value) if isinstance(value, str) else value
