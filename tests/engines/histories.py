"""Tables of random histories, and what Kubothek's own scans read of every version."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from plateau.io.eager import store_dataframes_as_dataset, update_dataset_from_dataframes

import kubothek
from kubothek import Dataset, Lake
from kubothek.errors import FilterMatchesAll, RowLevelNeeded
from tests.engines.reads import Filter, Read, literal
from tests.sampling import SOAK
from tests.table.iceberg.test_export import PAYLOAD, VALUES, rows

COLUMNS = {**VALUES, "größe in %": VALUES["text"], "x=y": VALUES["number"]}
"""Types and values of partition columns."""
HISTORIES = 100 if SOAK else 5
_STEPS = ("append", "evolve", "delete", "update", "replace", "overwrite", "compact", "rollback", "tag", "layout")


@dataclass(frozen=True)
class Sample:
    """A table, and what readers have to find.

    ``versions``  the rows of each version that readers can request
    ``exports``   the metadata location of the export at a version
    ``filters``   number of rows of the current version for which the filter is true
    """

    lake: Lake
    dataset: Dataset
    versions: dict[int, pa.Table]
    tags: dict[str, int]
    exports: dict[int, str]
    filters: dict[Filter, int]
    current: Read

    def at(self, version: int | None = None, *, tag: str | None = None) -> Read:
        """Return the read of a version, or of a tag."""
        return Read(self.current.table, self.current.metadata, version, tag)


@dataclass
class _Exports:
    """Exports of a dataset, as its history goes on."""

    dataset: Dataset
    locations: dict[int, str] = field(default_factory=dict)

    def add(self) -> Read:
        exported = self.dataset.export_iceberg()
        self.locations[exported.version] = exported.metadata_location
        return Read(exported.table_location, exported.metadata_location)


def sample(
    lake: Lake, dataset: Dataset, exports: dict[int, str] | None = None, filters: list[Filter] | None = None
) -> Sample:
    """Export a dataset, and read all that readers can request."""
    made = _Exports(dataset, exports or {})
    current = made.add()
    tags = dataset.tags()
    versions = sorted({record.version for record in dataset.history()} | {*tags.values()})
    return Sample(
        lake,
        dataset,
        {version: dataset.scan(as_of=version).read_all() for version in versions},
        tags,
        {version: location for version, location in made.locations.items() if version in versions},
        {each: dataset.scan(where=where(each)).read_all().num_rows for each in filters or ()},
        current,
    )


def where(wanted: Filter) -> str:
    """Return the filter in Kubothek's language."""
    right = "" if wanted.value is None else f" {literal(wanted.value)}"
    return f'"{wanted.column}" {wanted.operator.upper()}{right}'


def random_history(lake: Lake, number: int) -> Sample:
    """Return a table after seven random changes. The first five histories partition by all columns, two at a time."""
    random = Random(number)
    columns = list(COLUMNS)
    keys = columns[2 * number :][:2] if number < 5 else random.sample(columns, random.randrange(4))
    schema = pa.schema([*PAYLOAD, *(pa.field(key, COLUMNS[key][0]) for key in keys)])
    dataset = lake.create_dataset(f"history{number}", keys, schema)
    exports = _Exports(dataset)
    more: dict[str, Any] = {}
    for n, step in enumerate(["append", *random.choices(_STEPS, k=7)]):
        _change(dataset, random, step, n, keys, more)
        if random.random() < 0.6:
            exports.add()
    filters = [
        Filter(key, "=", value) for n, key in enumerate(keys) for value in random.sample(COLUMNS[key][1], 1 if n else 2)
    ]
    filters += [Filter("row", ">=", random.randrange(80)), Filter(random.choice(["name", "amount", *more]), "is null")]
    return sample(lake, dataset, exports.locations, filters)


def _change(dataset: Dataset, random: Random, step: str, n: int, keys: list[str], more: dict[str, Any]) -> None:
    def made(count: int) -> pa.Table:
        parts = [
            rows(20 * n + 10 * part, count, **more, **{key: random.choice(COLUMNS[key][1]) for key in keys})
            for part in range(random.choice([1, 2]))
        ]
        conformed = pa.schema([f.with_type(COLUMNS[f.name][0]) if f.name in keys else f for f in parts[0].schema])
        return pa.concat_tables([part.cast(conformed) for part in parts])

    try:
        if step == "append":
            dataset.append(made(6))
        elif step == "evolve":
            more[f"more {n}"] = random.choice([1, "x", 0.5, True, date(2024, 2, 29)])
            dataset.append(made(3), evolve=True)
        elif step == "delete":
            dataset.delete(f"row >= {20 * n - 13}", row_level=True)
        elif step == "update":
            dataset.update({"name": "%20"}, where=f"row >= {20 * n - 15}", row_level=True)
        elif step == "replace":
            dataset.replace(made(2))
        elif step == "overwrite":
            dataset.overwrite(made(4))
        elif step == "compact":
            dataset.compact()
        elif step == "rollback":
            dataset.rollback(random.randint(1, dataset.version))
        elif step == "tag":
            dataset.tag(f"tag{n % 2}", random.randint(1, dataset.version))
        else:
            dataset.set_layout(replace(dataset.layout, sort_by=("row",)))
    except (FilterMatchesAll, RowLevelNeeded):
        dataset.append(made(1))


def adopted_history(root: Path) -> Sample:
    """Return a table that plateau wrote, and that Kubothek adopted and changed."""
    store = f"hfs://{root}"
    column, (_, values) = "text", VALUES["text"]
    kept = ["name", "row", column]
    frames = [rows(10 * n, 5, text=value).select(kept).to_pandas() for n, value in enumerate(values)]
    store_dataframes_as_dataset(store=store, dataset_uuid="adopted", dfs=frames[:3], partition_on=[column])
    update_dataset_from_dataframes(frames[3:], store=store, dataset_uuid="adopted")
    lake = kubothek.open(root)
    dataset = lake.dataset("adopted")
    dataset.append(rows(100, 3, text="später").select(kept))
    filters = [Filter(column, "=", value) for value in values] + [Filter("row", ">=", 40)]
    return sample(lake, dataset, filters=filters)
