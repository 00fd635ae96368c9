"""A cube query as a DataFrame: planned here, read and joined in the tasks, partition by partition.

    from kubothek.spark.cube import read
    found = read(spark, "s3://lake/warehouse", "geo", conditions="country = 'DE'", payload_columns=["temp", "mayor"])

The datasets of a cube lie side by side by its partition columns, so all that a row needs is in the files of one
partition: a task reads these, joins them in memory and hands on the rows. No row is shuffled, and none passes the
driver; what travels is the plan, the names of files. Spark sees a scan; filters put on the DataFrame later do not reach
it, conditions do.
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
    """The rows of a cube query, lazily, in no particular order; within a partition sorted by the dimensions.

    ``conditions``, ``asked``              as for :func:`kubothek.cube.query.query`
    ``as_of``                              a version of the cube, or a time at which it was current
    ``endpoint``, ``region``, ``credentials_dir``  as for :func:`kubothek.open`; executors need the directory as well

    Raises DatasetNotFound, VersionNotFound, and what the query raises.
    """
    lake = kubothek.open(url, endpoint=endpoint, region=region, credentials_dir=credentials_dir)
    found = lake.cube(prefix).query(conditions, as_of=as_of, **asked)
    return frame(session, lake.store.config, found.plan)


def frame(session: SparkSession, store: StoreConfig, plan: Plan) -> DataFrame:
    """The rows of a query that was planned already. Raises InputError for a type that Spark has no equal of."""
    tasks = max(1, min(plan.units, _MOST_TASKS))
    numbers = session.range(0, plan.units, 1, tasks)
    return numbers.mapInArrow(_Work(store, plan), spark_schema(plan.schema))


class _Work:
    """What Spark's Python workers run: numbers of pieces of work in, rows out."""

    def __init__(self, store: StoreConfig, plan: Plan) -> None:
        self._store = store
        self._plan = plan

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = CubeQuery(open_store(self._store), self._plan)
        for batch in batches:
            for piece in found.pieces(value.as_py() for value in batch.column(0)):
                yield from storable(piece).to_batches()
