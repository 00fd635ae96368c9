"""The public API: what ``import kubothek`` gives, how a store and lists of names are written."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kubothek
from kubothek import errors as all_errors
from kubothek.catalog import Lake
from kubothek.errors import AccessDenied, BucketNotFound, InputError
from tests.catalog import api_sample

DATA = pa.table({"month": [1, 2], "id": [10, 20], "carrier": ["AA", "UA"]})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return kubothek.open(tmp_path.as_uri())


def test_public_api_listing_names_loadable_documented_objects() -> None:
    assert dir(kubothek) == sorted(kubothek.__all__)
    for name in kubothek.__all__:
        found = getattr(kubothek, name)
        assert name == "__version__" or inspect.getdoc(found), f"{name} has no docstring"
    assert kubothek.__version__ == version("kubothek")
    with pytest.raises(AttributeError, match="no attribute 'Datset'"):
        _ = kubothek.Datset


def test_public_errors_module_exports_every_error() -> None:
    from kubothek.errors import Conflict

    assert Conflict is all_errors.Conflict is kubothek.errors.Conflict
    raised = {n for n, e in vars(all_errors).items() if isinstance(e, type) and issubclass(e, all_errors.LakeError)}
    assert set(kubothek.errors.__all__) == raised


def test_public_import_loads_no_heavy_modules() -> None:
    heavy = ("pyarrow", "duckdb", "pyspark", "numpy", "pandas", "boto3", "pydantic")
    code = f"import sys, kubothek; dir(kubothek); kubothek.errors; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_sample_program_with_public_api_prints_expected_output(tmp_path: Path) -> None:
    imported = re.findall(r"(?m)^(?:import|from) (kubothek\S*)", inspect.getsource(api_sample))
    assert imported == ["kubothek", "kubothek.errors"]
    assert api_sample.main(str(tmp_path)) == [
        "2 delayed flights",
        "AA: 30.0",
        "UA: -2.0",
        "version 3",
        "version 2",
        "version 1",
        f"there is no dataset 'fligths' in {tmp_path.as_uri()}",
        "2 rows are left",
        "id",
    ]


@pytest.mark.parametrize("form", ["file:new/lake", "new/lake", "./new/lake", "file://{}/new/lake", "{}/new/lake"])
def test_new_directory_is_created_by_first_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.chdir(tmp_path)
    lake = kubothek.open(form.format(tmp_path))
    assert lake.store.url == (tmp_path / "new" / "lake").as_uri()
    with pytest.raises(BucketNotFound):
        lake.datasets()
    lake.create_dataset("flights", partition_on=["month"]).append(DATA)
    assert lake.datasets() == ["flights"]


def test_new_directory_is_created_by_first_cube(tmp_path: Path) -> None:
    lake = kubothek.open(tmp_path / "new")
    cube = lake.create_cube("c", dimension_columns="id", partition_columns="month")
    cube.build(DATA, id="first")
    assert lake.cubes() == ["c"]


def test_directory_that_cannot_be_created_is_named_in_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AccessDenied, match=r"cannot create the directory of file:///.*/file/lake"):
        kubothek.open(tmp_path / "file" / "lake").create_dataset("t")


def test_open_with_invalid_store_url_names_supported_forms() -> None:
    with pytest.raises(InputError, match="'http://host/lake' is not a store URL: write s3://bucket"):
        kubothek.open("http://host/lake")


ONE_NAME: dict[str, Callable[[Lake], Any]] = {
    "partition_on": lambda lake: lake.create_dataset("t", partition_on="month").layout.partition_on,
    "sort_by": lambda lake: lake.create_dataset("t", sort_by="month").layout.sort_by,
    "bucket_by": lambda lake: lake.create_dataset("t", bucket_by="month", num_buckets=2).layout.bucket_by,
    "dictionary_columns": lambda lake: lake.create_dataset("t", dictionary_columns="month").layout.dictionary_columns,
    "indices": lambda lake: tuple(lake.create_dataset("t", indices="month").snapshot().head.index_state.wanted()),
    "layout": lambda lake: replace(lake.create_dataset("t").layout, sort_by="month").sort_by,  # type: ignore[arg-type]
    "index definition": lambda lake: kubothek.IndexDefinition("MinMax", "month").columns,  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize("argument", ONE_NAME)
def test_single_name_as_text_is_accepted_in_definitions(lake: Lake, argument: str) -> None:
    assert ONE_NAME[argument](lake) == ("month",)


def test_single_name_as_text_is_accepted_in_reads_and_maintenance(lake: Lake) -> None:
    table = lake.create_dataset("t")
    table.append(DATA)
    table.append(DATA)
    assert table.scan(columns="id").read_all().column_names == ["id"]
    assert table.compact(sort_by="carrier").added.files == 1
    assert table.set_skipping(kubothek.IndexDefinition("MinMax", ("id",))).described == 1
    with pytest.raises(InputError, match="columns: 3 of type int is not a name"):
        table.scan(columns=["id", 3])  # type: ignore[list-item]
    with pytest.raises(InputError, match="partition_on: b'month' is not a list of names"):
        lake.create_dataset("u", partition_on=b"month")  # type: ignore[arg-type]


def test_single_name_as_text_is_accepted_in_cubes(lake: Lake) -> None:
    cube = lake.create_cube("c", dimension_columns="id", partition_columns="month", index_columns="carrier")
    cube.build({"seed": DATA, "more": DATA.rename_columns(["month", "id", "more"])}, partition_on={"more": "month"})
    assert lake.dataset("c++more").layout.partition_on == ("month",)
    assert cube.query(payload_columns="carrier").to_arrow().num_rows == 2
    cube.append({"more": pa.table({"month": [1], "id": [30], "more": ["x"], "new": [1]})}, evolve="more")
    cube.index("more", "new")
    cube.remove_partitions("month = 2", datasets="more")
    assert list(cube.stats("more")) == ["more"]
    target = kubothek.open(lake.store.url)
    cube.copy(target.store, prefix="d", datasets="seed")
    cube.delete("more")
    assert sorted(lake.datasets()) == ["c++more", "c++seed", "d++seed"]
