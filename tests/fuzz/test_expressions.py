"""Fuzzing of expressions of merges: conditions and new values, as text that users write."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Final

import pyarrow as pa
import pytest

from kubothek.errors import FilterInvalid, InputError
from kubothek.table.expressions.computed import SOURCE, TARGET, Evaluator, compile_expression
from kubothek.table.operations.merging import Merge
from kubothek.table.operations.merging.rows import Rules
from tests.fuzz.harness import fuzz

COLUMNS: Final = pa.table(
    {
        "id": pa.array([1, None], pa.int64()),
        "name": pa.array(["a", None], pa.string()),
        "v": pa.array([1.5, None], pa.float64()),
        "nest": pa.array([{"a": 1}, None], pa.struct([("a", pa.int64())])),
        'é "x"': pa.array([True, None], pa.bool_()),
    }
)
SEEDS: Final = [
    text.encode()
    for text in (
        "source.v > target.v AND source.name <> 'a' OR target.id IS NULL",
        "CASE WHEN source.v > 2 THEN upper(target.name) ELSE 'x''y' END",
        'source."é ""x""" IS NOT TRUE\n  -- a comment\n',
        "target.v * 1.1 + coalesce(source.v, 0)",
        "CAST(source.id AS VARCHAR) || target.name",
        "source.nest.a BETWEEN 1 AND 1e3",
        "source.id IN (1, 2, -3) AND target.name LIKE 'é%' ESCAPE '\\'",
        "TRY_CAST(source.name AS DATE) >= DATE '2020-01-01' - INTERVAL 1 DAY",
        "strftime(TIMESTAMP '2020-01-01 00:00:00', '%Y') /* x */",
        "regexp_matches(source.name, '(a|b)+')",
        "[1, 2][source.id] + {'a': 1}.a",
    )
]
OUTSIDE: Final = (
    "read_csv('/etc/passwd')",
    "read_text('/etc/passwd')",
    "getenv('HOME')",
    "getvariable('x')",
    "current_setting('secret_directory')",
    "nextval('s')",
    "query('SELECT 1')",
    "glob('*')",
    "random()",
    "now()",
    "(SELECT content FROM read_text('/etc/passwd'))",
    "(FROM '/etc/passwd')",
    "EXISTS (FROM duckdb_settings())",
    "ATTACH '/tmp/x'",
    "1; ATTACH '/tmp/x'",
    "1) FROM read_text('/etc/passwd') --",
    "1) UNION (SELECT 1",
    "COPY x TO '/tmp/x'",
    "sum(source.id)",
    "row_number() OVER ()",
    "COLUMNS('.*')",
    "source.*",
    "$1",
)
NESTED: Final = ("({})", "-({})", "NOT ({})", "{} + 1", "CASE WHEN TRUE THEN {} END", "coalesce({}, 1)", "[{}]", "{}.a")


def merge_expression(data: bytes) -> None:
    """Use the text as a condition and as a new value, of rows as well as of none."""
    text = data.decode(errors="surrogateescape")
    where = {"action": "Update", "set": {"v": "1.5"}, "where": text}
    for clause in (where, {"action": "Update", "set": {"name": text}}):
        with suppress(InputError):  # of a condition that is no boolean, or a value that is no text
            Rules.of(Merge.of("id", clause), COLUMNS.schema, COLUMNS.schema, ())
    evaluator = Evaluator()
    try:
        compiled = compile_expression(text, {SOURCE: COLUMNS.schema, TARGET: COLUMNS.schema})
        columns = {(side, name): COLUMNS.column(name) for side in (SOURCE, TARGET) for name in COLUMNS.column_names}
        assert len(evaluator.evaluate([compiled], columns, 2)[0]) == 2
    finally:
        evaluator.close()


def _change_text(random: Random, data: bytes) -> bytes:
    """Another expression inside, around or behind: mostly still SQL."""
    text = data.decode()
    match random.randrange(4):
        case 0:
            inner = random.choice(NESTED)
            for _ in range(random.choice((1, 3, 30, 130, 300, 1200))):
                text = inner.replace("{}", text) if len(text) < 100_000 else text
        case 1:
            text = text.replace("source.v", random.choice((*OUTSIDE, "'\0'", "\ud7ff", "9" * 400, "1e999", "X''")))
        case 2:
            text = f"({text}) {random.choice(('AND', '=', '||', '+', ',', ';', ') (', '::', '--'))} ({text})"
        case _:
            words = text.split(" ")
            random.shuffle(words)
            text = " ".join(words)
    return text.encode()


@pytest.mark.slow
def test_fuzzed_merge_expression_gives_result_or_named_error() -> None:
    report = fuzz(merge_expression, SEEDS, variants=40, soak=20_000, mutate=_change_text)
    print(report.check())
    assert report.results
    assert report.named["FilterInvalid"]


@pytest.mark.parametrize("text", OUTSIDE)
def test_expression_that_reaches_outside_the_row_is_refused(text: str) -> None:
    for clause in ({"where": text}, {"set": {"v": text}}):
        with pytest.raises((FilterInvalid, InputError), match="whenMatched: "):
            Rules.of(Merge.of("id", {"action": "Update"} | clause), COLUMNS.schema, COLUMNS.schema, ())


def _repeated(between: str, count: int) -> str:
    return between.join(["source.id"] * count)


HUGE: Final[Sequence[tuple[str, str]]] = [
    (_repeated(" + ", 150), "too many operators"),
    (_repeated(" + ", 600), "too many operators"),
    (_repeated(" + ", 2_000), "too many operators"),
    ("NOT " * 300 + "TRUE", "too many operators"),
    ("(" * 5_000 + "1" + ")" * 5_000, "too many operators"),
    ("'" + "x" * 100_000 + "'", "has 100,002 characters"),
    ("'\ud800'", "half of a surrogate pair"),
]


@pytest.mark.parametrize(("text", "message"), HUGE, ids=range(len(HUGE)))
def test_huge_or_broken_expression_is_refused_with_short_message(text: str, message: str) -> None:
    with pytest.raises(FilterInvalid, match=message) as caught:
        compile_expression(text, {SOURCE: COLUMNS.schema})
    assert len(str(caught.value)) < 600
