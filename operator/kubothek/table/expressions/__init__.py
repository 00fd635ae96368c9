"""Predicates: which rows a reader selects or a change concerns, in one small language.

    where = parse("month = 3 AND carrier IN ('AA', 'UA') OR delay IS NULL").bind(schema)
    where.expression()              # for Arrow
    where.verdict({"month": 4})     # None: files of this partition may hold matches

A predicate selects the rows for which it is TRUE. A comparison with NULL is never TRUE (three-valued logic, as in SQL).
NaN equals itself and is larger than every other number (as in PostgreSQL, DuckDB and Spark). Text is compared by its
UTF-8 bytes. The same rules hold for files, paths, indices and statistics.
"""

from __future__ import annotations

from kubothek.table.expressions.dnf import from_dnf
from kubothek.table.expressions.intervals import Interval, intervals
from kubothek.table.expressions.model import FALSE, TRUE, Predicate
from kubothek.table.expressions.parser import parse
from kubothek.table.expressions.ranges import Range
from kubothek.table.expressions.terms import Op, Term
from kubothek.table.expressions.written import Filter, as_predicate

__all__ = [
    "FALSE",
    "TRUE",
    "Filter",
    "Interval",
    "Op",
    "Predicate",
    "Range",
    "Term",
    "as_predicate",
    "from_dnf",
    "intervals",
    "parse",
]
