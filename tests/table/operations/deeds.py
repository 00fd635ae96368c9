"""Every operation as a test runs it against another: by name, again and again, always under the same id."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import minimalkv
import pandas as pd
from plateau.io.eager import update_dataset_from_dataframes

from kubothek.catalog import CommitResult, Dataset, Lake, OnConflict
from kubothek.storage import Store, StoreConfig, open_store
from tests.table.operations.table import Row, flights, rows

Deed = Callable[[Dataset, OnConflict], CommitResult]

BEFORE: Final[tuple[Row, ...]] = ((1, "AA", 10), (1, None, 11), (2, "UA", 20), (3, "B6", None))

DEEDS: Final[Mapping[str, Deed]] = {
    "append": lambda t, _: t.append(flights((1, "NN", 1), (4, "NN", 4)), id="append"),
    "append too": lambda t, _: t.append(flights((1, "MM", 1)), id="append too"),
    "append key": lambda t, _: t.append(flights((6, "II", 60)), id="append key"),
    "replace 1": lambda t, c: t.replace(flights((1, "RR", 1)), id="replace 1", on_conflict=c),
    "replace 1 too": lambda t, c: t.replace(flights((1, "QQ", 1)), id="replace 1 too", on_conflict=c),
    "replace 2": lambda t, c: t.replace(flights((2, "SS", 2)), id="replace 2", on_conflict=c),
    "replace where": lambda t, c: t.replace(
        flights((1, "WW", 1)), where="month IN (1, 9)", id="replace where", on_conflict=c
    ),
    "delete 1": lambda t, c: t.delete("month = 1", id="delete 1", on_conflict=c),
    "delete rows": lambda t, c: t.delete("delay = 11 OR carrier = 'NN'", row_level=True, id="rows", on_conflict=c),
    "update": lambda t, c: t.update({"month": 5}, where="delay = 10", row_level=True, id="update", on_conflict=c),
    "upsert": lambda t, c: t.upsert(
        flights((1, "AA", 12), (6, "II", 6)), key=["month", "carrier"], id="upsert", on_conflict=c
    ),
    "merge": lambda t, c: t.merge(
        flights((2, "CC", 20)),
        key="delay",
        when_matched={"action": "Update", "set": {"carrier": "source.carrier", "month": "target.month + 5"}},
        when_not_matched_by_source={"action": "Delete", "where": "target.delay = 11"},
        id="merge",
        on_conflict=c,
    ),
    "overwrite": lambda t, c: t.overwrite(flights((8, "OO", 8)), id="overwrite", on_conflict=c),
    "rollback": lambda t, c: t.rollback(2, id="rollback", on_conflict=c),
}


def prepared(root: Path, indices: Sequence[str] = ()) -> Dataset:
    """A table at version 3; its version 2 has some rows less, and others in the place of those of month 1."""
    root.mkdir(parents=True)
    dataset = Lake(open_store(StoreConfig(root.as_uri()))).create_dataset("flights", ["month"], indices=indices)
    dataset.append(flights((1, "OLD", 0), (2, "UA", 20)))
    dataset.replace(flights((1, "AA", 10), (1, None, 11), (3, "B6", None)))
    assert rows(dataset) == sorted(BEFORE, key=repr)
    return dataset


def copy(original: Path, target: Path) -> Store:
    shutil.copytree(original, target)
    return open_store(StoreConfig(target.as_uri()))


def table_in(store: Store) -> Dataset:
    return Dataset(Lake(store), "flights")


def done(original: Path, target: Path, *names: str) -> list[Row]:
    """The rows after these operations, one after the other."""
    dataset = table_in(copy(original, target))
    for name in names:
        DEEDS[name](dataset, "Fail")
    return rows(dataset)


def plateau_appends(root: Path) -> None:
    """Real plateau puts rows of month 1 and a new head over whatever is there."""
    store = minimalkv.get_store_from_url(f"hfs://{root}")
    frame = pd.DataFrame({"month": [1], "carrier": ["PP"], "delay": [1]})
    update_dataset_from_dataframes([frame], store=lambda: store, dataset_uuid="flights")
