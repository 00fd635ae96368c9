"""Queries of a cube of four datasets, beside Spark's own join of the same files, and kartothek 5.3 where there is one.

The seed ``sales`` has every cell of (x, y) in partitions by p, ``prices`` too, ``stock`` every second one, ``products``
one row an x. The partition columns are in paths and x is indexed, as a cube wants it; y and the payload are not.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from benchmarks.cpu import cpu_of_all
from benchmarks.harness import Case, Table, compare
from benchmarks.places import Place, Root
from kubothek.cube.discovery import discover
from kubothek.cube.query import query
from kubothek.cube.state import CubeSnapshot
from kubothek.spark.cube import frame
from kubothek.spark.session import running
from kubothek.storage import Store
from kubothek.table.indexes import IndexChange, IndexCollector, IndexKind
from kubothek.table.log import Change, DatasetLog, Operation, PartitionFile, Transaction
from kubothek.table.log.multi.members import metadata_of
from kubothek.table.log.multi.spec import CubeSpec

PREFIX: Final = "bench"
SPEC: Final = CubeSpec(PREFIX, ("x", "y"), ("p",), "sales", frozenset({"i"}), frozenset({"y"}))
_INDEXED: Final[Mapping[str, tuple[str, ...]]] = {"sales": ("x",), "prices": ("i",)}
_THEIRS: Final = Path(__file__).parent / "systems" / "kartothek_cube.py"
_HEAP: Final = "6g"
"""Spark's join of 10 million rows runs out of its default, 1 GiB."""
_SPARKS_OWN: Final = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""Our sessions do without code generation, as fat rows gain nothing by it; Spark's own join does."""
_PLANS: Final = 5
"""As often as queries are answered, they are planned."""
_VALUES_OF_Y: Final = 100
_VALUES_OF_I: Final = 100


@dataclass(frozen=True)
class Size:
    """``rows`` of the seed, in ``partitions``; as many in each."""

    partitions: int
    rows: int

    @property
    def xs(self) -> int:
        """Values of x in a partition."""
        return max(1, self.rows // self.partitions // min(_VALUES_OF_Y, self.rows // self.partitions))

    @property
    def ys(self) -> int:
        """Values of y, all in every partition."""
        return self.rows // self.partitions // self.xs

    @property
    def cell(self) -> int:
        """An x in the middle."""
        return self.partitions // 2 * self.xs

    @property
    def range(self) -> tuple[int, int]:
        """A tenth of the partitions."""
        return self.partitions // 2, self.partitions // 2 + max(1, self.partitions // 10)

    @property
    def index(self) -> int:
        """A value of i, of a hundredth of the partitions."""
        return self.partitions // 2 % _VALUES_OF_I


def run(
    place: Place, size: Size, *, rounds: int = 3, seconds: float = 300, kartothek: str | None = None
) -> Iterator[Table]:
    """Planning, a point, a range, everything. ``kartothek``: the interpreter of an environment that has it."""
    root = place.root("cube")
    build(root.lake().store, size)
    store, conditions = root.lake().store, _conditions(size)
    cube = discover(store, PREFIX)
    title = f"{size.rows:,} rows in {size.partitions:,} partitions, 4 datasets, {place.name}"
    with ExitStack() as stack:
        theirs = stack.enter_context(_Kartothek(kartothek, root, size)) if kartothek else None
        for name in ("all", "cell", "index"):
            cases = [
                Case("kubothek, warm", partial(_planned, store, cube, conditions[name])),
                Case("kubothek, cold", partial(_planned_anew, root, conditions[name])),
            ]
            if theirs:
                cases.append(Case("kartothek 5.3, datasets discovered", partial(theirs.ask, "replan", name)))
                cases.append(Case("kartothek 5.3", partial(theirs.ask, "plan", name)))
            yield compare(f"plan {_SAID[name]}: {title}", cases, rounds=_PLANS * rounds, seconds=seconds)
        conf = {"spark.master": "local[*]", "spark.driver.memory": _HEAP} | _SPARKS_OWN
        session = stack.enter_context(running(conf))
        _register(session, root)
        for name in ("cell", "index", "range", "all"):
            where, sql = conditions[name], _SQL.format(conditions[name] or "TRUE")
            expected = session.sql(sql).count()
            cases = [
                Case("kubothek", partial(_checked, expected, partial(_streamed, store, cube, where))),
                Case("kubothek, with Spark", partial(_with_spark, session, store, cube, where)),
                Case("spark: SQL join", partial(_joined, session, sql)),
            ]
            if theirs:
                cases.append(Case("kartothek 5.3", partial(_checked, expected, partial(theirs.ask, "query", name))))
            yield compare(f"query {_SAID[name]}: {title}", cases, rounds=rounds, seconds=seconds, cpu=cpu_of_all)


_SAID: Final = {
    "all": "everything",
    "cell": "one cell",
    "index": "one value of an index",
    "range": "a tenth of the partitions",
}
_SQL: Final = """
    SELECT p, x, y, v, n, price, i, stock, name
    FROM sales LEFT JOIN prices USING (p, x, y) LEFT JOIN stock USING (p, x, y) LEFT JOIN products USING (p, x)
    WHERE {}
"""


def _conditions(size: Size) -> dict[str, str | None]:
    low, high = size.range
    return {
        "all": None,
        "cell": f"x = {size.cell} AND y = 0",
        "index": f"i = {size.index}",
        "range": f"p >= {low} AND p < {high} AND v > 0",
    }


# --- the systems -----------------------------------------------------------------------------------------------------


def _planned(store: Store, cube: CubeSnapshot, conditions: str | None) -> int:
    return query(store, cube, conditions=conditions).plan.partitions


def _planned_anew(root: Root, conditions: str | None) -> int:
    store = root.lake().store
    return query(store, discover(store, PREFIX), conditions=conditions).plan.partitions


def _streamed(store: Store, cube: CubeSnapshot, conditions: str | None) -> int:
    return sum(batch.num_rows for batch in query(store, cube, conditions=conditions).reader())


def _checked(expected: int, run: Callable[[], int]) -> None:
    if (found := run()) != expected:
        raise RuntimeError(f"{found} rows instead of {expected}")


def _with_spark(session: SparkSession, store: Store, cube: CubeSnapshot, conditions: str | None) -> None:
    _drained(frame(session, store.config, query(store, cube, conditions=conditions).plan))


def _joined(session: SparkSession, text: str) -> None:
    _drained(session.sql(text))


def _drained(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _register(session: SparkSession, root: Root) -> None:
    for name in ("sales", "prices", "stock", "products"):
        session.read.parquet(f"{root.url}/{SPEC.uuid(name)}/table").createOrReplaceTempView(name)


class _Kartothek:
    """The other process."""

    def __init__(self, python: str, root: Root, size: Size) -> None:
        given = [str(root.disk), PREFIX, *map(str, size.range), str(size.cell), str(size.index)]
        self._process = subprocess.Popen(  # noqa: S603 - who runs the benchmark names the interpreter
            [python, "-W", "ignore", str(_THEIRS), *given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> _Kartothek:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def ask(self, verb: str, name: str) -> int:
        """What it answers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(verb, name, file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())


# --- the cube --------------------------------------------------------------------------------------------------------


def build(store: Store, size: Size) -> None:
    """The cube's files and heads."""
    for name in ("sales", "prices", "stock", "products"):
        uuid, schema = SPEC.uuid(name), _rows(name, size, 0).schema
        collector = IndexCollector(store, uuid, {column: pa.int64() for column in _INDEXED.get(name, ())})
        added = []
        for part in range(size.partitions):
            rows = _rows(name, size, part)
            label = f"p={part}/{part:032x}"
            key = f"{uuid}/table/{label}.parquet"
            collector.observe(label, rows.to_batches())
            sink = pa.BufferOutputStream()
            pq.write_table(rows, sink, compression="zstd")
            data = memoryview(sink.getvalue())
            store.put(key, data)
            added.append(PartitionFile(label, key, rows.num_rows, len(data)))
        started = DatasetLog(store, uuid).begin("build", "build")
        assert isinstance(started, Transaction), "the store is empty"
        started.commit(
            Change(
                operation=Operation.CREATE,
                added=tuple(added),
                schema=pa.schema([("p", pa.int64()), *schema]),
                partition_keys=("p",),
                index=IndexChange(
                    collected=collector.finish(), wanted=dict.fromkeys(_INDEXED.get(name, ()), IndexKind.KARTOTHEK)
                ),
                metadata=metadata_of(SPEC, name),
            )
        )


def _rows(name: str, size: Size, part: int) -> pa.Table:
    random = np.random.default_rng(part)
    x = np.repeat(np.arange(part * size.xs, (part + 1) * size.xs), size.ys)
    y = np.tile(np.arange(size.ys), size.xs)
    count = len(x)
    columns: dict[str, Any]
    if name == "sales":
        columns = {"x": x, "y": y, "n": random.integers(0, 5000, count), "v": random.normal(0, 30, count).round(2)}
    elif name == "prices":
        index = np.full(count, part % _VALUES_OF_I)
        columns = {"x": x, "y": y, "i": index, "price": random.normal(100, 30, count).round(2)}
    elif name == "stock":
        columns = {"x": x[::2], "y": y[::2], "stock": random.integers(0, 100, len(x[::2]))}
    else:
        columns = {"x": x[:: size.ys], "name": [f"product {each}" for each in x[:: size.ys].tolist()]}
    return pa.table(columns)
