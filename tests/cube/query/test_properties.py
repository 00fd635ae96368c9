"""Random cubes, written by the cube's own verbs, and random queries: what a naive model says, whatever the plan."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubothek.cube.handle import Cube
from kubothek.cube.query import assembling
from kubothek.errors import FilterInvalid, QueryInvalid
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log import DatasetLog
from kubothek.table.log.update_skipping import reskip
from kubothek.table.skipping.model import IndexDefinition, SkippingState
from tests.cube.query.world import Content, Question, Refused, Shape, answer, questions, rows_of, shapes

pytestmark = pytest.mark.slow

_KINDS = {
    **dict.fromkeys(("x", "i", "p"), ("MinMax", "ValueList", "BloomFilter")),
    **dict.fromkeys(("y", "s", "q"), ("MinMax", "ValueList", "BloomFilter", "Prefix", "Suffix", "TokenList")),
    **dict.fromkeys(("z", "d", "f"), ("MinMax", "ValueList")),
}
"""Skipping indices by kind of column."""
SOAK = bool(os.environ.get("KUBOTHEK_SOAK"))


@settings(
    max_examples=400 if SOAK else 12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
@given(data=st.data())
def test_random_cube_query_matches_naive_model(data: st.DataObject) -> None:
    shape = data.draw(shapes())
    with tempfile.TemporaryDirectory() as scratch:
        store = open_store(StoreConfig(Path(scratch).as_uri()))
        cube = Cube.create(store, shape.spec)
        content = _written(data, store, cube, shape)
        for _ in range(5):
            asked = data.draw(questions(shape))
            with patch.object(assembling, "UNIT_ROWS", data.draw(st.sampled_from([1, assembling.UNIT_ROWS]))):
                for newest_only in (False, True):
                    check(cube, content, asked, newest_only=newest_only)


def _written(data: st.DataObject, store: Store, cube: Cube, shape: Shape) -> Content:
    """The cube after a build and some other verbs, and the same told to the model.

    Some datasets are described from the build on, some later, with files that have no entry after it.
    """
    content = Content(shape)

    def rows(names: list[str]) -> dict[str, Any]:
        drawn = {name: data.draw(rows_of(shape, shape.tables[name])) for name in names}
        for name, each in drawn.items():
            content.write(name, each)
        return {name: shape.tables[name].table(each) for name, each in drawn.items()}

    names = list(shape.tables)
    cube.build(rows(names), partition_on={name: table.partition_on for name, table in shape.tables.items()})
    for name, table in shape.tables.items():
        if more := [column for column in table.indexed if column not in shape.spec.dimension_columns]:
            cube.index(name, more)
    _describe(data, store, shape)
    for verb in data.draw(st.lists(st.sampled_from(["append", "append", "remove", "update"]), max_size=4)):
        chosen = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
        column = data.draw(st.sampled_from(shape.spec.partition_columns))
        value = data.draw(st.sampled_from(sorted({row[column] for row in content.rows["seed"]}) or [0]))
        where = [[(column, "==", value)]]
        if verb == "append":
            cube.append(rows(chosen))
        elif verb == "remove" and value != 0:
            cube.remove_partitions(where, datasets=chosen)
            content.remove(chosen, {column: value})
        elif verb == "update" and value != 0:
            content.remove(chosen, {column: value})
            cube.update(rows(chosen), remove=where)
    _describe(data, store, shape)
    return content


def _describe(data: st.DataObject, store: Store, shape: Shape) -> None:
    """Give some datasets skipping metadata."""
    for name in data.draw(st.lists(st.sampled_from(list(shape.tables)), unique=True)):
        table = shape.tables[name]
        columns = [column for column in table.columns if column not in table.partition_on]
        possible = [(kind, column) for column in columns for kind in _KINDS[column.partition("_")[0]]]
        if wanted := data.draw(st.lists(st.sampled_from(possible), unique=True)) if possible else ():
            indices = [IndexDefinition(kind, (column,)) for kind, column in wanted]
            reskip(store, DatasetLog(store, shape.spec.uuid(name)), SkippingState(tuple(indices)))


def check(cube: Cube, content: Content, asked: Question, *, newest_only: bool) -> None:
    """All forms of the answer are the model's."""
    try:
        columns, expected = answer(content, asked, newest_only=newest_only)
    except Refused:
        with pytest.raises((QueryInvalid, FilterInvalid)):
            cube.query(**asked.arguments)
        return
    found = cube.query(**asked.arguments, newest_only=newest_only)
    assert found.schema.names == columns
    groups = {tuple(group.key.values()): group.rows.to_pylist() for group in found.groups()}
    assert groups == expected
    assert list(groups) == list(expected)
    everything = sorted((row for rows in expected.values() for row in rows), key=repr)
    assert sorted(found.reader().read_all().to_pylist(), key=repr) == everything
    table = found.to_arrow()
    assert table.schema.equals(pa.schema([found.schema.field(name) for name in columns]))
    assert sorted(table.to_pylist(), key=repr) == everything
    if not asked.partition_by:
        assert table.to_pylist() == expected.get((), [])
