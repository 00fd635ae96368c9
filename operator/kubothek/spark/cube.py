"""A cube query as a DataFrame: planned on the driver, read and joined in tasks, one partition at a time.

    from kubothek.spark.cube import read
    found = read(spark, "s3://lake/warehouse", "geo", conditions="country = 'DE'", payload_columns=["temp", "mayor"])

The plan aligns the files of all datasets with the cube's partitions, so a row needs only the files of one partition.
Tasks read these, join them in memory and return the rows. No row is shuffled or passes the driver; only the plan, with
names of files, is sent. Conditions of the query prune files; later filters on the DataFrame do not reach the scan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final, Unpack

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import kubothek
from kubothek.cube.query import Asked, Conditions, CubeQuery, Plan
from kubothek.spark.types import spark_schema, storable
from kubothek.storage import StoreConfig, open_store

_MOST_TASKS: Final = 2000


def read(
    session: SparkSession,
    url: str,
    prefix: str,
    *,
    conditions: Conditions = None,
    as_of: int | datetime | None = None,
    endpoint: str | None = None,
    region: str | None = None,
    credentials_dir: str | None = None,
    **asked: Unpack[Asked],
) -> DataFrame:
    """Return the rows of a cube query, lazily: partitions in no order, rows of a partition sorted by the dimensions.

    ``conditions``, ``asked``              as for :func:`kubothek.cube.query.query`
    ``as_of``                              a version of the cube, or a time at which it was current
    ``endpoint``, ``region``, ``credentials_dir``  as for :func:`kubothek.open`; executors need the directory too

    Raises DatasetNotFound, VersionNotFound, and what the query raises.
    """
    lake = kubothek.open(url, endpoint=endpoint, region=region, credentials_dir=credentials_dir)
    found = lake.cube(prefix).query(conditions, as_of=as_of, **asked)
    return frame(session, lake.store.config, found.plan)


def frame(session: SparkSession, store: StoreConfig, plan: Plan) -> DataFrame:
    """Return the rows of a planned query. Raises InputError for a type that Spark does not have."""
    tasks = max(1, min(plan.units, _MOST_TASKS))
    numbers = session.range(0, plan.units, 1, tasks)
    return numbers.mapInArrow(_Work(store, plan), spark_schema(plan.schema))


class _Work:
    """Task for Spark's Python workers: numbers of pieces of work in, rows out."""

    def __init__(self, store: StoreConfig, plan: Plan) -> None:
        self._store = store
        self._plan = plan

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = CubeQuery(open_store(self._store), self._plan)
        for batch in batches:
            for piece in found.pieces(value.as_py() for value in batch.column(0)):
                yield from storable(piece).to_batches()
