"""Floating-point sums: those of math.fsum, whatever the order."""

from __future__ import annotations

import math
import random
import struct

import duckdb
import pytest

from kubothek.odf.transform.exact import bins, rounded

pytestmark = pytest.mark.slow

POOLS = {
    "plain": lambda r: r.uniform(-1000, 1000),
    "wide": lambda r: r.uniform(-1, 1) * 10.0 ** r.randint(-300, 300),
    "bits": lambda r: struct.unpack("<d", struct.pack("<Q", r.getrandbits(64)))[0],
    "tiny": lambda r: r.randint(-100, 100) * 5e-324,
    "ties": lambda r: r.choice([1.0, 2.0**53, -(2.0**53), 2.0**-53, 1 + 2.0**-52, -1.0]),
    "huge": lambda r: r.choice([1.7e308, -1.7e308, 1e308]),
}


def _sum(values: list[float]) -> float:
    try:
        return math.fsum(values)
    except OverflowError:
        return math.nan
    except ValueError:
        return math.nan


@pytest.mark.parametrize("pool", POOLS)
def test_float_sum_matches_math_fsum(pool: str) -> None:
    random_ = random.Random(pool)
    groups = [[POOLS[pool](random_) for _ in range(random_.randint(1, 12))] for _ in range(400)]
    rows = [(number, value) for number, values in enumerate(groups) for value in values]
    random_.shuffle(rows)
    with duckdb.connect(":memory:") as database:
        database.execute("CREATE TABLE d (g BIGINT, x DOUBLE)")
        database.executemany("INSERT INTO d VALUES (?, ?)", rows)
        found = database.sql(f"SELECT * FROM ({bins('x', '1::BIGINT', 'd', 'g')}) ORDER BY g").to_arrow_table()
    sums = dict(zip(*(column.to_pylist() for column in rounded(found).columns), strict=True))
    for number, values in enumerate(groups):
        wanted, got = _sum(values), sums.get(number, 0.0)
        if math.isnan(wanted) and all(map(math.isfinite, values)):
            continue  # fsum gives up where a partial sum is too large; see test_float_sum_beyond_range_returns_infinity
        assert got == wanted or (math.isnan(got) and math.isnan(wanted)), (values, got, wanted)


def test_float_sum_beyond_range_returns_infinity() -> None:
    with duckdb.connect(":memory:") as database:
        values = "(0, 1.7e308), (0, 1.7e308), (1, 1.7e308), (1, 1.7e308), (1, -1.7e308), (2, -1.7e308), (2, -1.7e308)"
        database.execute(f"CREATE TABLE d AS SELECT g::BIGINT AS g, x::DOUBLE AS x FROM (VALUES {values}) t(g, x)")
        found = database.sql(f"SELECT * FROM ({bins('x', '1::BIGINT', 'd', 'g')}) ORDER BY g").to_arrow_table()
    assert rounded(found).column(1).to_pylist() == [math.inf, 1.7e308, -math.inf]
