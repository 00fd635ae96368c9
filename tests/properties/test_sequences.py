"""Random sequences of changes, by us and by plateau: after each, every reader gives the rows of a plain model.

``KUBOTHEK_SOAK=1`` (``make soak``) tries hundreds, new ones each time; the suite tries the same few always.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from kubothek.table.indexes import IndexKind
from tests.properties.filters import filters
from tests.properties.values import POOLS, row_values, shapes
from tests.properties.world import World

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

SOAK = bool(os.environ.get("KUBOTHEK_SOAK"))
PROFILE = settings(
    max_examples=150 if SOAK else 8,
    stateful_step_count=25 if SOAK else 8,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=tuple(Phase) if SOAK else (Phase.generate,),
    print_blob=True,
)


class Sequences(RuleBasedStateMachine):
    """One table and what happens to it."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="kubothek-properties-"))

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    @initialize(data=st.data())
    def create(self, data: st.DataObject) -> None:
        self.world = World(self.root / "lake", data.draw(shapes()))

    # --- changes ---

    @rule(data=st.data())
    def append(self, data: st.DataObject) -> None:
        self.world.append(self._rows(data))
        self._check(data)

    @rule(data=st.data(), by_filter=st.booleans())
    def replace(self, data: st.DataObject, by_filter: bool) -> None:
        shape, rows = self.world.shape, self._rows(data)
        where = data.draw(filters(shape, list(shape.partition_on))) if by_filter and shape.partition_on else None
        if rows := [row for row in rows if where is None or where.holds(row)]:
            self.world.replace(rows, where)
            self._check(data)

    @rule(data=st.data())
    def overwrite(self, data: st.DataObject) -> None:
        self.world.overwrite(self._rows(data))
        self._check(data)

    @rule(data=st.data(), row_level=st.booleans())
    def delete(self, data: st.DataObject, row_level: bool) -> None:
        shape = self.world.shape
        columns = None if row_level or not shape.partition_on else list(shape.partition_on)
        self.world.delete(data.draw(filters(shape, columns)), row_level=row_level)
        self._check(data)

    @precondition(lambda self: self.world.shape.flat)
    @rule(data=st.data())
    def update(self, data: st.DataObject) -> None:
        shape = self.world.shape
        column = data.draw(st.sampled_from(shape.flat))
        values = st.sampled_from(POOLS[shape.columns[column]])
        value = data.draw(values if column in shape.partition_on else st.one_of(st.none(), values))
        self.world.update({column: value}, data.draw(filters(shape)))
        self._check(data)

    @precondition(lambda self: self.world.shape.payload)
    @rule(data=st.data())
    def index(self, data: st.DataObject) -> None:
        columns = st.sampled_from(self.world.shape.payload)
        self.world.index(data.draw(st.dictionaries(columns, st.sampled_from(list(IndexKind)), max_size=3)))
        self._check(data)

    @precondition(lambda self: self.world.versions)
    @rule(data=st.data())
    def rollback(self, data: st.DataObject) -> None:
        self.world.rollback(data.draw(st.sampled_from(sorted(self.world.versions))))
        self._check(data)

    @precondition(lambda self: not any(pa.types.is_decimal(t) for t in self.world.shape.columns.values()))
    @rule(data=st.data())
    def append_by_plateau(self, data: st.DataObject) -> None:
        """Plateau takes types from the values that it sees, writes "/" in a partition wrong, and cannot keep an index
        of nothing but nulls.
        """
        rows = [row for row in self._rows(data) if self._plateau_can_write(row)]
        if rows:
            self.world.append_by_plateau(rows)
            self._check(data)

    @precondition(lambda self: self.world.shape.partition_on)
    @rule(data=st.data())
    def delete_by_plateau(self, data: st.DataObject) -> None:
        column = data.draw(st.sampled_from(self.world.shape.partition_on))
        self.world.delete_by_plateau({column: data.draw(st.sampled_from(POOLS[self.world.shape.columns[column]]))})
        self._check(data)

    @precondition(lambda self: self.world.rows)
    @rule(data=st.data())
    def collect_by_plateau(self, data: st.DataObject) -> None:
        self.world.collect_by_plateau()
        self._check(data)

    # --- what they are made of ---

    def _rows(self, data: st.DataObject) -> list[dict[str, Any]]:
        return self.world.new(data.draw(st.lists(row_values(self.world.shape), min_size=1, max_size=6)))

    def _plateau_can_write(self, row: dict[str, Any]) -> bool:
        shape = self.world.shape
        return not any(
            (row[name] is None and (pa.types.is_integer(data_type) or name in self.world.indexed))
            or (name in shape.partition_on and "/" in str(row[name]))
            or row[name] == []
            for name, data_type in shape.columns.items()
        )

    def _check(self, data: st.DataObject) -> None:
        self.world.check(data.draw(filters(self.world.shape)))
        if self.world.versions:
            self.world.check_version(data.draw(st.sampled_from(sorted(self.world.versions))))
        self.world.check_plateau()


@pytest.mark.timeout(0 if SOAK else 600)
def test_random_change_sequence_matches_model_for_every_reader() -> None:
    run_state_machine_as_test(Sequences, settings=PROFILE)
