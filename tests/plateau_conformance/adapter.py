"""Kubothek behind the signatures of plateau's eager functions, for plateau's own suites of its backends."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import minimalkv
import pandas as pd
import pyarrow as pa
from plateau.core.dataset import DatasetMetadata
from plateau.core.uuid import gen_uuid

import kubothek
from kubothek.catalog import Lake
from kubothek.dataset import Dataset
from kubothek.errors import BucketNotFound, DatasetExists, DatasetNotFound, PartitionInvalid, SchemaMismatch
from kubothek.table.expressions import as_predicate
from kubothek.table.indexes import IndexKind
from kubothek.table.log.update_indexes import reindex
from kubothek.table.scan.read import scan


class StoreFactory:
    """A store of plateau's, and where it is."""

    def __init__(self, root: str) -> None:
        self.root = root

    def __call__(self) -> Any:
        return minimalkv.get_store_from_url(f"hfs://{self.root}")


def lake_of(store: Any) -> Lake:
    """The lake in a store of plateau's: a URL, a store, or what makes one."""
    if isinstance(store, str):
        return kubothek.open(Path(urlsplit(store).path).as_uri())
    root = getattr(store, "root", None) or store().root
    return kubothek.open(Path(root).as_uri())


def metadata_of(lake: Lake, uuid: str) -> Any:
    """The dataset as plateau reads it."""
    return DatasetMetadata.load_from_store(uuid, minimalkv.get_store_from_url(f"hfs://{urlsplit(lake.store.url).path}"))


def store_dataframes(
    dfs: Any,
    store: Any,
    dataset_uuid: str | None = None,
    *,
    metadata: Mapping[str, Any] | None = None,
    partition_on: Sequence[str] | str | None = None,
    secondary_indices: Sequence[str] | str | None = None,
    overwrite: bool = False,
    table_name: str = "table",
    **_: Any,
) -> Any:
    """As ``store_dataframes_as_dataset``: a dataset of these frames, a commit for each."""
    lake, uuid = lake_of(store), dataset_uuid or gen_uuid()
    frames = _flat(dfs)
    indices = dict.fromkeys(_names(secondary_indices), "Kartothek")
    try:
        table = lake.create_dataset(
            uuid, _names(partition_on), indices=indices, dialect="Plateau", metadata=metadata, table=table_name
        )
    except DatasetExists as error:
        if not overwrite:
            raise RuntimeError(str(error)) from error
        table = lake.dataset(uuid)
        table.delete("TRUE")
    for frame in frames:
        _append(table, frame)
    return metadata_of(lake, uuid)


def update_dataset(
    dfs: Any,
    store: Any,
    dataset_uuid: str,
    *,
    delete_scope: Sequence[Mapping[str, Any]] | None = None,
    metadata: Mapping[str, Any] | None = None,
    partition_on: Sequence[str] | str | None = None,
    secondary_indices: Sequence[str] | str | None = None,
    sort_partitions_by: Sequence[str] | str | None = None,
    table_name: str = "table",
    **_: Any,
) -> Any:
    """As ``update_dataset_from_dataframes``."""
    lake, frames = lake_of(store), _flat(dfs)
    try:
        table = lake.dataset(dataset_uuid)
    except (BucketNotFound, DatasetNotFound):
        store_dataframes(
            [], store, dataset_uuid, metadata=metadata, partition_on=partition_on, secondary_indices=secondary_indices,
            table_name=table_name,
        )  # fmt: skip
        table = lake.dataset(dataset_uuid)
    if partition_on is not None and _names(partition_on) != table.layout.partition_on:
        raise ValueError(f"Incompatible set of partition keys encountered: {partition_on}")
    if not set(_names(secondary_indices)) <= set(table.snapshot().head.index_state.wanted()):
        raise ValueError(f"Incorrect indices provided: {secondary_indices}")
    if sort_partitions_by is not None:
        table.set_layout(replace(table.layout, sort_by=_names(sort_partitions_by)))
    for scope in (delete_scope or ()) if table.schema.names else ():
        table.delete([[(column, "==", value) for column, value in scope.items()]])
    for frame in frames:
        _append(table, frame, metadata)
    return metadata_of(lake, dataset_uuid)


def build_indices(store: Any, dataset_uuid: str, columns: Sequence[str], **_: Any) -> None:
    """As ``build_dataset_indices``."""
    lake = lake_of(store)
    table = lake.dataset(dataset_uuid)
    if missing := [column for column in columns if column not in table.schema.names]:
        raise RuntimeError(f"no column {missing}")
    wanted = dict(table.snapshot().head.index_state.wanted()) | dict.fromkeys(columns, IndexKind.KARTOTHEK)
    reindex(lake.store, table._log(writing=True), wanted, dialect=None)


def collect(dataset_uuid: str, store: Any, **_: Any) -> None:
    """As ``garbage_collect_dataset``, two days later: nothing younger than the grace period is collected."""
    _collect(lake_of(store).dataset(dataset_uuid))


def delete_dataset(dataset_uuid: str, store: Any, **_: Any) -> None:
    """As ``delete_dataset``: a tombstone, and what a collection deletes two days later."""
    table = lake_of(store).dataset(dataset_uuid)
    table._log(writing=True).delete()
    _collect(table)


def load_dataframes(
    dataset_uuid: str | None = None,
    store: Any = None,
    *,
    factory: Any = None,
    predicates: Any = None,
    columns: Any = None,
    categoricals: Sequence[str] | None = None,
    dates_as_object: bool = True,
    dispatch_by: Sequence[str] | None = None,
    **_: Any,
) -> list[pd.DataFrame]:
    """As ``read_dataset_as_dataframes``: a frame for each file that a scan opens, and has rows in.

    ``dispatch_by`` is a grouping of these frames, for which there is no verb.
    """
    lake = lake_of(store or factory.store_factory)
    table = lake.dataset(dataset_uuid or factory.dataset_uuid)
    snapshot, where = table.snapshot(), None if predicates is None else as_predicate(predicates)
    names = _names(columns if not isinstance(columns, Mapping) else columns["table"]) if columns is not None else None
    frames = []
    for file in table.plan(predicates).files:
        alone = replace(
            snapshot, head=replace(snapshot.head, partitions={file.label: snapshot.head.partitions[file.label]})
        )
        rows = scan(lake.store, alone, names, where).read_all()
        frame = rows.to_pandas(
            date_as_object=dates_as_object, categories=list(categoricals or ()), coerce_temporal_nanoseconds=True
        )
        if len(frame):
            frames.append(frame if dates_as_object else _dates_as_times(frame, rows.schema))
    if dispatch_by is None or not frames:
        return frames
    whole = pd.concat(frames)
    return [group for _, group in whole.groupby(list(dispatch_by))] if dispatch_by else [whole]


def _dates_as_times(frame: pd.DataFrame, schema: pa.Schema) -> pd.DataFrame:
    dates = [field.name for field in schema if pa.types.is_date(field.type)]
    return frame.astype(dict.fromkeys(dates, "datetime64[ns]"))


def _collect(table: Dataset) -> None:
    old = time.time() - 2 * 24 * 3600
    for file in Path(urlsplit(table._store.url).path).rglob("*"):
        os.utime(file, (old, old))
    table.collect(enforce=True, keep_versions=1)


def _flat(dfs: Any) -> list[pd.DataFrame]:
    """The frames of what plateau takes: one, or lists of frames or of lists. Raises ValueError for anything else."""
    if dfs is None or isinstance(dfs, pd.DataFrame):
        return [] if dfs is None else [dfs]
    if not isinstance(dfs, Iterable) or isinstance(dfs, str | set | Mapping):
        raise ValueError(f"{dfs!r} is not a DataFrame")
    return [frame for each in dfs for frame in _flat(each)]


def _append(table: Dataset, frame: pd.DataFrame, metadata: Mapping[str, Any] | None = None) -> None:
    """One frame, with plateau's words for what is wrong with it."""
    try:
        table.append(frame, metadata=metadata)
    except SchemaMismatch as error:
        raise ValueError(f"Schemas for dataset {table.name!r} are not compatible!\n\n{error}") from error
    except PartitionInvalid as error:
        if "nulls" not in str(error):
            raise
        raise ValueError(
            f"Original dataframe size does not match: grouped on a column with null values. {error}"
        ) from error


def _names(given: Sequence[str] | str | None) -> tuple[str, ...]:
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)
