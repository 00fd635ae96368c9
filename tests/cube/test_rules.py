"""Every rule of Kartothek Cube, "Cube", and of ``kartothek.io_components.cube.write``: an error that names dataset,
column and rule, and nothing written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from kubothek.cube.handle import Cube
from kubothek.cube.log import CubeLog
from kubothek.errors import CubeInvalid, DatasetExists, IndexInvalid, InputError, SchemaMismatch, SourceEmpty
from kubothek.table.log.multi.spec import CubeSpec, memberships
from tests.table.log.memory import MemoryStore

pytestmark = pytest.mark.slow

SPEC: dict[str, Any] = {"uuid_prefix": "geo", "dimension_columns": ["x", "y"], "partition_columns": ["p"]}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"dimension_columns": []}, "dimension_columns must not be empty"),
        ({"partition_columns": []}, "partition_columns must not be empty"),
        ({"dimension_columns": ["x", "x"]}, "dimension_columns contains duplicates: 'x'"),
        ({"partition_columns": ["p", "p"]}, "partition_columns contains duplicates: 'p'"),
        ({"dimension_columns": {"x"}}, "dimension_columns is a set, which has no order"),
        ({"dimension_columns": {"x": 1}}, "dimension_columns is a dict, which has no order"),
        ({"dimension_columns": [1]}, "dimension_columns: 1 of type int"),
        ({"index_columns": [1]}, "index_columns: 1 of type int"),
        ({"partition_columns": ["x"]}, "partition_columns cannot share columns with dimension_columns, .* 'x'"),
        ({"index_columns": ["x"]}, "index_columns cannot share columns with dimension_columns, .* 'x'"),
        ({"index_columns": ["p"]}, "index_columns cannot share columns with partition_columns, .* 'p'"),
        ({"suppress_index_on": ["p"]}, "suppress_index_on must be a subset of dimension_columns, but names 'p'"),
        ({"uuid_prefix": "a.b"}, r"uuid_prefix \('a.b'\) is not compatible with kartothek"),
        ({"uuid_prefix": "a\n"}, "not compatible"),
        ({"uuid_prefix": ""}, "not compatible"),
        ({"uuid_prefix": "a++b"}, r"uuid_prefix \('a\+\+b'\) must not contain \+\+"),
        ({"seed_dataset": "a.b"}, "seed_dataset .* is not compatible with kartothek"),
        ({"seed_dataset": "a++b"}, "seed_dataset .* must not contain"),
    ],
)
def test_invalid_cube_specification_is_refused(wrong: Mapping[str, Any], why: str) -> None:
    with pytest.raises(CubeInvalid, match=why):
        CubeSpec.of(**{**SPEC, **wrong})


def test_cube_columns_may_be_sql_keywords() -> None:
    store = MemoryStore()
    cube = Cube(
        store, CubeLog(store, "geo"), CubeSpec.of("geo", dimension_columns=["select", 'a"b'], partition_columns="order")
    )
    cells = frame(**{"select": [1, 2], 'a"b': [1, 1], "order": [0, 0]})
    cube.build(streamed(cells))
    with pytest.raises(CubeInvalid, match=r"duplicate cells by .* example: order = 1, select = 2"):
        cube.append(streamed(pa.concat_tables([frame(**{"select": [2], 'a"b': [1], "order": [1]})] * 2)))


def test_ambiguous_dataset_name_yields_all_memberships() -> None:
    assert list(memberships("plain")) == []
    assert list(memberships("geo++seed")) == [("geo", "seed")]
    assert list(memberships("a+++b")) == [("a", "+b"), ("a+", "b")]
    assert list(memberships("++x")) == list(memberships("x++")) == []
    assert CubeSpec.of("a+", dimension_columns="x", partition_columns="p").dimension_columns == ("x",)


def frame(**columns: Any) -> pa.Table:
    return pa.table(columns)


SEED = frame(x=[1, 2], y=["a", "b"], p=[0, 0], v=[1.0, 2.0])
EXTRA = frame(x=[1], p=[0], w=[5])
Act = Callable[[Cube], object]


def build(data: Any, **options: Any) -> Act:
    return lambda cube: cube.build(data, **options)


def extend(data: Any, **options: Any) -> Act:
    return lambda cube: cube.extend(data, **options)


def append(data: Any, **options: Any) -> Act:
    return lambda cube: cube.append(data, **options)


def with_null(column: str) -> pa.Table:
    return SEED.set_column(SEED.schema.get_field_index(column), column, pa.array([None, SEED[column][0].as_py()]))


def streamed(table: pa.Table) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=1))


TWICE = pa.concat_tables([SEED, SEED.slice(1)])

ON_NOTHING = [
    (build({"extra": EXTRA}), "seed data .'seed'. is missing"),
    (build({}), "no dataset is given"),
    (build({"seed": SEED, "a.b": EXTRA}), r"dataset name \('a.b'\) is not compatible"),
    (build({"seed": SEED, "a++b": EXTRA}), "must not contain"),
    (build(SEED, metadata=[1]), "provided metadata should be a mapping but is list"),
    (build(SEED, metadata={"zz": {}}), "provided metadata for otherwise unspecified datasets: 'zz'"),
    (build(SEED, metadata={"seed": 1}), "provided metadata for dataset 'seed' should be a mapping but is int"),
    (build(SEED, metadata={"seed": {"ktk_cube_is_seed": False}}), "metadata key 'ktk_cube_is_seed' of dataset 'seed'"),
    (build(SEED, partition_on={"seed": ["x"]}), "'seed' must have the following, fixed partition-on attribute: 'p'"),
    (build(SEED, partition_on={"zz": ["x"]}), "partition-on attribute of otherwise unspecified datasets: 'zz'"),
    (
        build({"seed": SEED, "extra": EXTRA}, partition_on={"extra": ["p", "p"]}),
        "partition-on attribute of dataset 'extra' contains duplicates: 'p', 'p'",
    ),
    (build([1, 2]), "cannot write int"),
    (build(SEED.append_column("v", SEED["v"])), "duplicate columns found in dataset 'seed': 'v'"),
    (build(SEED.drop_columns(["y"])), "missing dimension columns in seed data 'seed': 'y'"),
    (build({"seed": SEED, "extra": frame(p=[0], w=[1])}), "'extra' must have at least 1 of the following .* 'x', 'y'"),
    (build(SEED.drop_columns(["p"])), "missing partition columns in dataset 'seed': 'p'"),
    (build({"seed": SEED, "extra": EXTRA.drop_columns(["p"])}), "missing partition columns in dataset 'extra': 'p'"),
    (
        build({"seed": SEED, "extra": EXTRA}, partition_on={"extra": []}),
        "unspecified but provided partition columns in dataset 'extra': 'p'",
    ),
    (build(with_null("p")), "NULL-values in partition column 'p' of dataset 'seed'"),
    (build(with_null("x")), "NULL-values in dimension column 'x' of dataset 'seed'"),
    (build(streamed(with_null("x"))), "NULL-values in dimension column 'x' of dataset 'seed'"),
    (build(SEED.append_column("i", pa.array([None, 1]))), "NULL-values in index column 'i' of dataset 'seed'"),
    (build(TWICE), r"duplicate cells by \[p, x, y\] in dataset 'seed', example: p = 0, x = 2, y = 'b'"),
    (build(streamed(TWICE)), r"duplicate cells by \[p, x, y\] in dataset 'seed', example: p = 0, x = 2, y = 'b'"),
    (
        build({"seed": SEED, "extra": EXTRA.append_column("v", pa.array([1.0]))}),
        "'v' in the datasets 'extra' and 'seed'",
    ),
    (build({"seed": SEED, "extra": frame(x=["1"], p=[0], w=[1])}), "incompatible types for column 'x'"),
    (build(pd.DataFrame({1: [1]})), "column 1 of dataset 'seed' is named by a int"),
    (
        build(pd.DataFrame({"x": pd.Series([1], dtype=pd.SparseDtype("int64"))})),
        "column 'x' of dataset 'seed' is sparse",
    ),
    (append(SEED), "there is no cube|say what"),
]


@pytest.mark.parametrize(("act", "why"), ON_NOTHING)
def test_invalid_cube_build_is_refused_and_writes_nothing(act: Act, why: str) -> None:
    store = MemoryStore()
    with pytest.raises(Exception, match=why) as caught:
        act(new_cube(store))
    assert isinstance(caught.value, InputError) or "there is no cube" in str(caught.value)
    assert not store.objects, "nothing was written"


ON_A_CUBE = [
    (build({"seed": SEED}), DatasetExists, "there is a cube 'geo' already"),
    (build({"seed": SEED}, overwrite=True), CubeInvalid, "partial overwrite.* 'extra'"),
    (extend({"seed": SEED}), CubeInvalid, "seed data .'seed'. cannot be written during extension"),
    (extend(SEED), CubeInvalid, "seed data .'seed'. cannot be written during extension"),
    (extend({"extra": EXTRA}), DatasetExists, "has the datasets 'extra' already"),
    (
        extend({"low": frame(x=[1], p=[0], w=[1])}),
        CubeInvalid,
        r"payload written in 'low' is already present in cube: 'w' \(dataset 'extra'\)",
    ),
    (extend({"low": frame(x=[1.5], p=[0], m=[1])}), CubeInvalid, "incompatible types for column 'x'"),
    (extend({"low": frame(x=[1], p=["0"], m=[1])}), CubeInvalid, "incompatible types for column 'p'"),
    (extend({"low": frame(x=[1], p=[0], i=[[1]])}), IndexInvalid, "'i'"),
    (append({"zz": EXTRA}), CubeInvalid, "unknown / non-existing datasets: 'zz'"),
    (append({"extra": EXTRA.append_column("n", pa.array([1]))}), SchemaMismatch, r"dataset 'extra'(.|\n)*n +- +int64"),
    (
        append({"seed": SEED, "extra": frame(x=[1], p=[0], w=["text"])}),
        SchemaMismatch,
        r"dataset 'extra'(.|\n)*w +int64 +string",
    ),
    (append({"seed": SEED.slice(0, 0)}), SourceEmpty, "no rows to write to dataset 'seed'"),
    (append({}), CubeInvalid, "no dataset is given"),
    (lambda cube: cube.remove_partitions("x = 1"), CubeInvalid, "conditions concerning .*'p'.*, not 'x'"),
    (lambda cube: cube.remove_partitions("p = 1", datasets=["zz"]), CubeInvalid, "unknown .*'zz'"),
    (lambda cube: cube.update({"seed": SEED}, remove="v = 1"), CubeInvalid, "conditions concerning"),
    (lambda cube: cube.delete(["seed"]), CubeInvalid, "seed dataset 'seed' would be missing"),
    (lambda cube: cube.delete(["zz"]), CubeInvalid, "'zz' is not there"),
    (lambda cube: cube.index("extra", ["zz"]), CubeInvalid, "'zz' is not there"),
    (lambda cube: cube.index("zz", ["w"]), CubeInvalid, "unknown .*'zz'"),
]


@pytest.mark.parametrize(("act", "error", "why"), ON_A_CUBE)
def test_invalid_cube_change_is_refused_and_writes_nothing(act: Act, error: type[Exception], why: str) -> None:
    store = MemoryStore()
    cube = new_cube(store)
    cube.build({"seed": SEED, "extra": EXTRA})
    before = dict(store.objects)
    with pytest.raises(error, match=why):
        act(cube)
    assert store.objects == before, "nothing was written"


def test_null_columns_are_accepted_as_payload() -> None:
    cube = new_cube(MemoryStore())
    cube.build(
        {"seed": SEED.append_column("n", pa.nulls(2)), "extra": frame(x=[1], p=[0], w=pa.array([None], pa.int64()))}
    )
    cube.append({"seed": SEED.append_column("n", pa.array([1, None]))})
    assert cube.snapshot().columns["n"] == pa.int64()


def test_cube_build_from_stream_equals_build_from_table() -> None:
    store, other = MemoryStore(), MemoryStore()
    new_cube(store).build({"seed": streamed(SEED)})
    new_cube(other).build({"seed": SEED})
    assert new_cube(store).stats()["seed"].rows == new_cube(other).stats()["seed"].rows == 2


def new_cube(store: MemoryStore) -> Cube:
    return Cube(store, CubeLog(store, "geo"), CubeSpec.of(**SPEC, index_columns="i"))
