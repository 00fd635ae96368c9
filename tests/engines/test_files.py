"""Engines read the Iceberg metadata of tables from files alone: at every version, the rows of Kubothek's own scan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from plateau.io.eager import read_table

import kubothek
from tests.engines.engine import Engine
from tests.engines.histories import Sample, sample
from tests.engines.reads import Read
from tests.sampling import sampled
from tests.table.iceberg.test_export import multiset

pytestmark = pytest.mark.slow

BY_TAG = ("pyiceberg", "spark")
"""Engines that read a tag by its name; others read its version."""
CURRENT_ONLY = ("rust",)
"""Engines that read the current snapshot only, so a version by the metadata that was written at that version."""
WITHOUT_NESTED = ("rust",)
"""Engines that apply the name mapping to top-level columns only, and read lists and structs as NULL."""
DOUBLES_AS_FLOATS = ("pyiceberg",)
"""Engines that read partition values of type double as floats."""


def versions_of(engine: Engine, sample: Sample) -> Iterator[tuple[Read, pa.Table]]:
    """Yield how the engine reads a version, and what Kubothek reads."""
    for version, rows in sampled(sample.versions.items(), 2 if engine.name == "spark" else 1):
        if engine.name not in CURRENT_ONLY:
            yield sample.at(version), expected(engine, rows)
        elif version in sample.exports:
            yield Read(sample.current.table, sample.exports[version]), expected(engine, rows)


def expected(engine: Engine, rows: pa.Table) -> pa.Table:
    if engine.name not in WITHOUT_NESTED:
        return rows
    nested = [n for n, field in enumerate(rows.schema) if pa.types.is_nested(field.type)]
    for n in nested:
        rows = rows.set_column(n, rows.schema.field(n), pa.nulls(rows.num_rows, rows.schema.field(n).type))
    return rows


def test_every_version_has_the_rows_of_kubothek(engine: Engine, samples: list[Sample]) -> None:
    for each in samples:
        for read, rows in versions_of(engine, each):
            assert multiset(engine.read(read)) == multiset(rows), read


def test_tags_have_the_rows_of_their_versions(engine: Engine, samples: list[Sample]) -> None:
    if engine.name not in BY_TAG:
        pytest.skip("reads tags by their versions")
    tagged = [(each, tag, version) for each in samples for tag, version in each.tags.items()]
    assert tagged
    for each, tag, version in tagged:
        assert multiset(engine.read(each.at(tag=tag))) == multiset(each.versions[version]), (each.current, tag)


def test_filters_select_as_many_rows_as_kubothek(engine: Engine, samples: list[Sample]) -> None:
    for each in samples:
        filters = sampled(each.filters.items(), 2 if engine.name == "spark" else 1)
        for n, (filter_, rows) in enumerate(filters):
            read = replace(each.current, where=filter_, count=n % 2 == 0)
            assert (engine.count(read) if read.count else engine.read(read).num_rows) == rows, read
        count = each.versions[each.dataset.version].num_rows
        assert engine.count(replace(each.current, count=True)) == count, each.current


def test_partition_value_of_type_double_is_exact(engine: Engine, tmp_path: Path) -> None:
    lake = kubothek.open(tmp_path)
    dataset = lake.create_dataset("t", "fraction", {"fraction": "float64", "row": "int64"})
    dataset.append(pa.table({"fraction": [0.1], "row": [1]}))
    (found,) = engine.read(sample(lake, dataset).current)["fraction"].to_pylist()
    assert found == (pytest.approx(0.1) if engine.name in DOUBLES_AS_FLOATS else 0.1)
    assert (found == 0.1) == (engine.name not in DOUBLES_AS_FLOATS)


def test_plateau_reads_the_tables_afterwards(samples: list[Sample]) -> None:
    for each in samples:
        root, _, _ = each.current.table.removeprefix("file://").partition("/.kubothek/")
        rows = each.versions[each.dataset.version]
        if rows.num_rows:
            found = read_table(each.dataset.name, f"hfs://{root}")
            assert sorted(found["row"]) == sorted(rows["row"].to_pandas()), each.dataset
