"""plateau 4.6, on the same head as Kubothek's: the format is the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import boto3
from minimalkv import get_store_from_url
from minimalkv._hstores import HBoto3Store
from plateau.core.factory import DatasetFactory
from plateau.io.eager import read_table, update_dataset_from_dataframes
from plateau.io_components.read import dispatch_metapartitions_from_factory

from benchmarks.places import Root
from benchmarks.systems.ours import commit_partitions
from benchmarks.systems.table import NAME, PART, System, rows


class Plateau(System):
    """Its update has no handle that could be kept: it reads the head each time."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._store = store_of(root)

    def build(self, partitions: int) -> None:
        commit_partitions(self._root.lake().store, NAME, partitions)

    def append(self) -> None:
        update_dataset_from_dataframes([rows(0).to_pandas()], store=self._store, dataset_uuid=NAME, partition_on=[PART])

    def plan(self, part: int) -> int:
        factory = DatasetFactory(NAME, self._store)
        return len(list(dispatch_metapartitions_from_factory(factory, predicates=[[(PART, "==", part)]])))

    def read(self, part: int) -> int:
        return len(read_table(NAME, self._store, predicates=[[(PART, "==", part)]]))


def store_of(root: Root) -> Callable[[], Any]:
    """Plateau's way to say where its tables are."""
    if root.endpoint is None:
        directory = get_store_from_url(f"hfs://{root.scratch}")
        return lambda: directory
    bucket, _, prefix = root.url.removeprefix("s3://").partition("/")
    resource = boto3.resource("s3", endpoint_url=root.endpoint)
    objects = HBoto3Store(resource.Bucket(bucket), object_prefix=f"{prefix}/")
    return lambda: objects
