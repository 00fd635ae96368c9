"""The fixtures that plateau's suites ask for."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from plateau.core.factory import DatasetFactory
from plateau.io.eager import store_dataframes_as_dataset
from plateau.serialization.testing import get_dataframe_not_nested

from tests.plateau_conformance import adapter
from tests.sampling import sampled

BOOL = "a bool cannot partition a table: its paths differ between the libraries"
CAST = "values are cast to the types of the table where none is lost"
KEYS = "a dataset has objects of its own below .kubothek/, and its head metadata of its own, kubothek_*"
ADOPTED = "a collection adopts a dataset of another program first, which writes its history"
STRINGS = "the table's strings are strings, whatever dtype of pandas they came from"
EMPTY = "a frame without rows changes nothing: the table has no columns from it"
LABELS = "each file has a name of its own, also those of one frame"
WORDS = "the error has other words"
NO_FILE = "no file, no frame: the stream of a scan without rows has its schema"
FIXTURE = "needs pytest-mock, or plateau's own MetaPartition objects"
ORDER = "the columns of a file are sorted by name"
DIFFERENCES: dict[str, str] = {
    "test_gc.py::test_garbage_collect_idempotent": ADOPTED,
    "test_gc.py::test_gc_tables": ADOPTED,
    "test_gc.py::test_gc_without_secondary_indices": ADOPTED,
    "test_index.py::test_create_index_from_inexistent_column_fails": WORDS,
    "test_read.py::test_empty_predicate_pushdown_empty_col_projection": NO_FILE,
    "test_read.py::test_string_type_roundtrip": STRINGS,
    "test_update.py::test_update_dataset_with_partitions": FIXTURE,
    "test_update.py::test_update_dataset_with_partitions__reducer_partitions": LABELS,
    "test_update.py::test_update_dataset_with_partitions__reducer_nonexistent": KEYS,
    "test_update.py::test_schema_check_update[dfs3-False]": CAST,
    "test_update.py::test_schema_check_update[dfs5-False]": CAST,
    "test_update.py::test_update_infers_partition_on": BOOL,
    "test_update.py::test_update_raises_incompatible_partition_keys": BOOL,
    "test_update.py::test_update_after_empty_partition_string_dtypes": STRINGS,
    "test_update.py::test_update_after_empty_partition_string_dtypes_categoricals": STRINGS,
    "test_write.py::test_store_input_types": BOOL,
    "test_write.py::test_store_dataframes_as_dataset": ORDER,
    "test_write.py::test_store_dataframes_as_dataset_empty_dataframe": EMPTY,
    "test_write.py::test_store_dataframes_as_dataset_mp_partition_on_none": FIXTURE,
    "test_write.py::test_secondary_index_on_partition_column": WORDS,
    "test_write.py::test_file_structure_dataset_v4": KEYS,
    "test_write.py::test_file_structure_dataset_v4_partition_on": KEYS,
    "test_write.py::test_schema_check_write[dfs3-False]": CAST,
    "test_write.py::test_schema_check_write[dfs5-False]": CAST,
}
"""By test, or by its name without parameters: why Kubothek does something else. docs/layout.md has them for readers."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what differs; one test in four runs outside of a soak."""
    here = [item for item in items if "plateau_conformance" in item.nodeid]
    for item in here:
        name = item.nodeid.rpartition("/")[2]
        if reason := DIFFERENCES.get(name) or DIFFERENCES.get(name.partition("[")[0]):
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
    kept = set(sampled(here, 4))
    items[:] = [item for item in items if item not in here or item in kept]


@pytest.fixture
def store_factory(tmp_path: Path) -> adapter.StoreFactory:
    (tmp_path / "store").mkdir()
    return adapter.StoreFactory(str(tmp_path / "store"))


@pytest.fixture(scope="session")
def metadata_version() -> int:
    return 4


@pytest.fixture
def backend_identifier() -> str:
    return "kubothek"


@pytest.fixture
def df_not_nested() -> pd.DataFrame:
    frame: pd.DataFrame = get_dataframe_not_nested(10)
    return frame


@pytest.fixture
def mock_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "gen_uuid", lambda: "auto_dataset_uuid")


@pytest.fixture
def dataset_function(store_factory: adapter.StoreFactory) -> Any:
    frames = [pd.DataFrame({"P": [n], "L": [n], "TARGET": [n]}) for n in (1, 2)]
    return store_dataframes_as_dataset(dfs=frames, store=store_factory, dataset_uuid="dataset_uuid")


@pytest.fixture
def store(store_factory: adapter.StoreFactory) -> Any:
    return store_factory()


@pytest.fixture
def frozen_time_em() -> None:
    """The clock need not stand still: nothing here compares times."""


@pytest.fixture
def df_all_types() -> pd.DataFrame:
    frame: pd.DataFrame = get_dataframe_not_nested(10)
    return frame


@pytest.fixture
def bound_store_dataframes() -> Any:
    return adapter.store_dataframes


@pytest.fixture
def bound_load_dataframes() -> Any:
    return adapter.load_dataframes


@pytest.fixture
def bound_delete_dataset() -> Any:
    return adapter.delete_dataset


@pytest.fixture
def output_type() -> str:
    return "dataframe"


@pytest.fixture(scope="session")
def store_session_factory(tmp_path_factory: pytest.TempPathFactory) -> adapter.StoreFactory:
    return adapter.StoreFactory(str(tmp_path_factory.mktemp("session")))


def _two_files(store: adapter.StoreFactory, uuid: str, **options: Any) -> Any:
    days = (datetime.date(2010, 1, 1), datetime.date(2009, 12, 31))
    frames = [pd.DataFrame({"P": [n], "L": [n], "TARGET": [n], "DATE": [day]}) for n, day in enumerate(days, 1)]
    return store_dataframes_as_dataset(dfs=frames, store=store, dataset_uuid=uuid, **options)


@pytest.fixture(scope="session")
def dataset(store_session_factory: adapter.StoreFactory) -> Any:
    return _two_files(store_session_factory, "dataset", secondary_indices=["L"])


@pytest.fixture(scope="session")
def dataset_partition_keys(store_session_factory: adapter.StoreFactory) -> Any:
    return _two_files(store_session_factory, "dataset_partition_keys", partition_on=["P"])


@pytest.fixture
def dataset_factory(dataset: Any, store_session_factory: adapter.StoreFactory) -> DatasetFactory:
    return DatasetFactory(dataset_uuid=dataset.uuid, store_factory=store_session_factory)


@pytest.fixture
def bound_update_dataset() -> Any:
    return adapter.update_dataset


@pytest.fixture
def bound_build_dataset_indices() -> Any:
    return adapter.build_indices


@pytest.fixture
def garbage_collect_callable() -> Any:
    return adapter.collect
