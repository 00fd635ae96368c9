"""Statements that want too much: each ends within its time and its memory, and this process does not grow.

A few of them; ``KUBOTHEK_SOAK=1`` tries all.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
import yaml

from kubothek.errors import QueryInvalid
from kubothek.sandbox import limited
from kubothek.sandboxed_sql import HEADROOM, OneStore, _rows, ended
from kubothek.sql import Limits
from kubothek.sql.query import memory_bytes
from tests.hostile.conftest import Site
from tests.sampling import SOAK

pytestmark = pytest.mark.slow

STATEMENTS: Final[list[dict[str, Any]]] = yaml.safe_load(Path(__file__).with_name("greedy.yaml").read_text())
CHOSEN: Final = [each for each in STATEMENTS if SOAK or each.get("quick")]
LIMITS: Final = Limits("256MB", 3.0) if SOAK else Limits("64MB", 0.5)
GRACE: Final = 30.0
"""Seconds that a busy machine may take for what has nothing to do any more."""
MAPPED: Final = 128 << 20
"""Bytes that a worker maps before its statement, and that may become resident after it."""
GROWTH: Final = 32 << 20

WORDS: Final = {
    "{doubled}": ", ".join(f"a{n} AS (FROM a{n - 1} UNION ALL FROM a{n - 1})" for n in range(1, 25)),
    "{joined}": ", ".join(f"a{n} AS (SELECT l.* FROM a{n - 1} l, a{n - 1} r)" for n in range(1, 11)),
    "{joins}": " ".join(f"JOIN flights f{n} ON f{n}.month < f{n - 1}.month + {n}" for n in range(1, 150)),
    "{columns}": ", ".join(f"month + {n} AS c{n}" for n in range(4000)),
    "{unions}": " UNION ALL ".join(["SELECT month FROM flights"] * 2000),
    "{deep}": "+".join(["1"] * 30_000),
    "{nested}": "abs(" * 900 + "1" + ")" * 900,
    "{parentheses}": "(" * 20_000 + "1" + ")" * 20_000,
    "{numbers}": ", ".join(map(str, range(10_000))),
    "{cube}": ", ".join(f"(i + {n})" for n in range(12)),
}


def text(case: dict[str, Any]) -> str:
    found = str(case["sql"])
    for word, meaning in WORDS.items():
        found = found.replace(word, meaning)
    return found


@pytest.fixture(scope="module")
def resident() -> int:
    limited.start(0)
    return psutil.Process().memory_info().rss


@pytest.fixture(scope="module")
def base(site: Site, resident: int) -> int:
    """The peak of a worker that has next to nothing to do: it grows with the modules that the tests before loaded."""
    return ended_work(site, "SELECT 1")[0].peak


def test_greedy_corpus_has_at_least_70_distinct_statements() -> None:
    assert len(STATEMENTS) >= 70
    assert len({each["name"] for each in STATEMENTS}) == len(STATEMENTS)


def ended_work(site: Site, sql: str) -> tuple[limited.Usage, str]:
    """Run a statement; return what its worker used, and "rows" or the error."""
    work = limited.run(
        _rows,
        OneStore(site.lake.store),
        sql,
        LIMITS.memory,
        memory=memory_bytes(LIMITS.memory) + HEADROOM,
        seconds=LIMITS.seconds,
        named=partial(ended, LIMITS),
        answer=lambda question: "rows",
    )
    said = "rows"
    try:
        for _ in work:
            pass
    except QueryInvalid as error:
        said = str(error)
    assert work.usage is not None
    return work.usage, said


@pytest.mark.parametrize("case", CHOSEN, ids=[each["name"] for each in CHOSEN])
def test_greedy_statement_ends_within_limits(site: Site, resident: int, base: int, case: dict[str, Any]) -> None:
    started = time.monotonic()
    usage, said = ended_work(site, text(case))
    took = time.monotonic() - started
    print(f"\n{case['name']}: {took:.1f} s, {usage.peak >> 20} MiB, signal {usage.signal}: {said[:100]!r}")
    assert LIMITS.seconds is not None
    assert took < LIMITS.seconds + GRACE
    assert usage.peak < base + memory_bytes(LIMITS.memory) + HEADROOM + MAPPED
    assert psutil.Process().memory_info().rss < resident + GROWTH
