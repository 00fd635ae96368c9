"""Incremental aggregates: the state of a group, and how the answer follows from it.

Counts and sums are stored as numbers, from which retracted values are subtracted. Sums of floating-point numbers are
exact (:mod:`.exact`). All other aggregates store the values themselves, each with its number of occurrences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kubothek.errors import TransformInvalid
from kubothek.odf.transform.scan import WEIGHT
from kubothek.sql.statement import Node

ROWS: Final = "n"
"""The column with the number of rows of a group."""
VALUE: Final = "{value}"
"""Placeholder in an answer: the column with the exact sum of a call, or with the answer of its values."""
_WHOLE: Final = frozenset(
    {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT", "BOOLEAN"}
)
_FLOATS: Final = frozenset({"DOUBLE", "FLOAT"})
_SPREADS: Final = {
    "var_pop": "{v} / {c}::DOUBLE / {c}",
    "var_samp": "{v} / {c}::DOUBLE / ({c} - 1)",
    "stddev_pop": "sqrt({v} / {c}::DOUBLE / {c})",
    "stddev_samp": "sqrt({v} / {c}::DOUBLE / ({c} - 1))",
}
_ALIASES: Final = {
    "variance": "var_samp",
    "stddev": "stddev_samp",
    "mean": "avg",
    "argmax": "arg_max",
    "argmin": "arg_min",
    "max_by": "arg_max",
    "min_by": "arg_min",
    "countif": "count_if",
    "array_agg": "list",
    "group_concat": "string_agg",
    "listagg": "string_agg",
    "every": "bool_and",
    "any": "bool_or",
    "fsum": "sum",
    "sumkahan": "sum",
    "kahan_sum": "sum",
    "favg": "avg",
    "quantile": "quantile_disc",
}
NAMES: Final = (
    "count, sum, avg, min, max, bool_and, bool_or, count_if, arg_min, arg_max, median, quantile_cont, quantile_disc, "
    "stddev_*, var_*, and list(x ORDER BY x), string_agg(x, ',' ORDER BY x)"
)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate of a query; its SQL refers to its own columns only.

    ``numbers``  the stored numbers: for each column the sum over the delta, as SQL, and its type
    ``exact``    the column whose floating-point sum is stored
    ``values``   the columns whose values are stored; ``of_values`` is the answer, as SQL over these
    ``copies``   whether ``of_values`` needs each value as often as it occurs
    ``single``   whether the weights of rows must be 1 or -1
    ``answer``   as SQL over the numbers and :data:`VALUE`
    """

    answer: str
    numbers: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    exact: str | None = None
    values: Sequence[str] = ()
    of_values: str = ""
    copies: bool = False
    single: bool = False


def aggregate(node: Node, prefix: str, types: Sequence[str], text: Callable[[Node], str], where: str) -> Aggregate:
    """Return the aggregate of one call; its arguments are the columns ``<prefix>0``, ``<prefix>1`` … of these types.

    Calls with the same arguments share a prefix and the stored numbers: the name of a number determines its content.

    Raises TransformInvalid for a call that cannot be updated incrementally.
    """
    name = _name(node)
    if len(types) != (2 if name in ("arg_min", "arg_max") else 0 if name == "count_star" else 1):
        raise TransformInvalid(f"{where}: {name}() with {len(types)} arguments cannot be kept up to date")
    first = f"{prefix}0"
    kind = types[0] if types else ""
    ordered = bool(node["order_bys"]["orders"]) if node.get("order_bys") else False
    if ordered and name not in ("list", "string_agg"):
        name = name if name in ("min", "max", "count", "sum", "avg", "bool_and", "bool_or") else f"{name}(… ORDER BY …)"
    if node.get("distinct"):
        return _distinct(name, first, kind, node, text, where)
    there = f"coalesce(sum({WEIGHT}) FILTER ({first} IS NOT NULL), 0)"
    count = {f"{prefix}c": (there, "BIGINT")}
    if name in ("count_star", "count", "count_if", "bool_and", "bool_or"):
        return _counted(name, first, prefix, count)
    if name in ("sum", "avg"):
        return _sum(name, first, kind, count, prefix, where)
    if name in _SPREADS:
        return _spread(name, first, kind, count, prefix, where)
    if name in ("list", "string_agg"):
        return _listed(name, first, node, text, where, distinct=False)
    return _of_values(name, node, prefix, text, where)


def _of_values(name: str, node: Node, prefix: str, text: Callable[[Node], str], where: str) -> Aggregate:
    first = f"{prefix}0"
    if name in ("min", "max", "median", "mad"):
        return _kept(f"{name}({first})", [first], copies=name in ("median", "mad"))
    if name in ("quantile_cont", "quantile_disc"):
        return _kept(f"{name}({first}, {_constant(node, 1, text, where)})", [first], copies=True)
    if name in ("arg_min", "arg_max"):
        return _extreme(name, prefix)
    raise TransformInvalid(f"{where}: {name}() cannot be kept up to date; there are {NAMES}")


def _counted(name: str, first: str, prefix: str, count: Mapping[str, tuple[str, str]]) -> Aggregate:
    c, h = f"{prefix}c", f"{prefix}h"
    holding = (f"coalesce(sum({WEIGHT}) FILTER ({first}), 0)", "BIGINT")
    if name == "count_star":
        return Aggregate(ROWS)
    if name == "count":
        return Aggregate(c, count)
    if name == "count_if":
        return Aggregate(h, {h: holding})
    holds = f"{h} = {c}" if name == "bool_and" else f"{h} > 0"
    return Aggregate(f"CASE WHEN {c} <> 0 THEN {holds} END", {**count, h: holding})


def _spread(
    name: str, first: str, kind: str, count: Mapping[str, tuple[str, str]], prefix: str, where: str
) -> Aggregate:
    """Build a variance or deviation from count, sum and sum of squares, which are exact for whole numbers."""
    if kind not in _WHOLE:
        raise TransformInvalid(
            f"{where}: {name}() of {kind} would depend on the order of rows; scale the values to whole numbers: "
            f"{name}(CAST(round(x * 100) AS BIGINT)) / 100"
        )
    c, s, q = f"{prefix}c", f"{prefix}s", f"{prefix}q"
    numbers = {
        **count,
        s: (f"coalesce(sum({WEIGHT} * {first}::HUGEINT), 0)", "DECIMAL(38, 0)"),
        q: (f"coalesce(sum({WEIGHT} * {first}::HUGEINT * {first}::HUGEINT), 0)", "DECIMAL(38, 0)"),
    }
    least = 1 if name.endswith("_pop") else 2
    squares = f"({c}::HUGEINT * {q}::HUGEINT - {s}::HUGEINT * {s}::HUGEINT)::DOUBLE"
    return Aggregate(f"CASE WHEN {c} >= {least} THEN {_SPREADS[name].format(v=squares, c=c)} END", numbers)


def _sum(name: str, first: str, kind: str, count: Mapping[str, tuple[str, str]], prefix: str, where: str) -> Aggregate:
    c, s = f"{prefix}c", f"{prefix}s"
    if kind in _FLOATS:
        wanted = VALUE if name == "sum" else f"{VALUE} / {c}"
        return Aggregate(f"CASE WHEN {c} <> 0 THEN {wanted} END", count, exact=first)
    if kind in _WHOLE:
        numbers = {**count, s: (f"coalesce(sum({WEIGHT} * {first}::HUGEINT), 0)", "DECIMAL(38, 0)")}
        wanted = f"{s}::HUGEINT" if name == "sum" else f"{s}::DOUBLE / {c}"
        return Aggregate(f"CASE WHEN {c} <> 0 THEN {wanted} END", numbers)
    if kind.startswith("DECIMAL("):
        total = f"DECIMAL(38, {kind.rstrip(')').partition(',')[2].strip()})"
        signed = f"CASE WHEN {WEIGHT} > 0 THEN {first} ELSE -{first} END"
        numbers = {**count, s: (f"coalesce(sum({signed}), 0)", total)}
        return Aggregate(
            f"CASE WHEN {c} <> 0 THEN {s if name == 'sum' else f'{s}::DOUBLE / {c}'} END", numbers, single=True
        )
    raise TransformInvalid(f"{where}: {name}() of {kind}: there are sums of whole numbers, decimals and doubles")


def _kept(of_values: str, values: Sequence[str], *, copies: bool = False) -> Aggregate:
    return Aggregate(VALUE, {}, None, values, of_values, copies)


def _extreme(name: str, prefix: str) -> Aggregate:
    """Build arg_max or arg_min; of rows with the same extreme value, the greatest (least) argument counts."""
    found, by = f"{prefix}0", f"{prefix}1"
    function = name.removeprefix("arg_")
    both = f"struct_pack(y := {by}, x := {found})"
    return _kept(f"{function}({both}) FILTER ({by} IS NOT NULL AND {found} IS NOT NULL).x", [by, found])


def _constant(node: Node, number: int, text: Callable[[Node], str], where: str) -> str:
    arguments = node["arguments"]
    if len(arguments) <= number or arguments[number]["expression"]["class"] not in ("CONSTANT", "CAST"):
        raise TransformInvalid(f"{where}: argument {number + 1} of {node['function_name']}() has to be a constant")
    return text(arguments[number]["expression"])


def _distinct(name: str, first: str, kind: str, node: Node, text: Callable[[Node], str], where: str) -> Aggregate:
    if name in ("list", "string_agg"):
        return _listed(name, first, node, text, where, distinct=True)
    if name in ("count", "min", "max") or (name in ("sum", "avg") and kind in _WHOLE):
        return _kept(f"{name}({first})", [first])
    raise TransformInvalid(f"{where}: {name}(DISTINCT …) of {kind} cannot be kept up to date")


def _listed(name: str, first: str, node: Node, text: Callable[[Node], str], where: str, *, distinct: bool) -> Aggregate:
    """Build list or string_agg in the order of the values themselves; any other order leaves ties undecided."""
    orders = node["order_bys"]["orders"] if node.get("order_bys") else []
    argument = node["arguments"][0]["expression"]
    if len(orders) != 1 or text(orders[0]["expression"]) != text(argument):
        shown = "list(x ORDER BY x)" if name == "list" else "string_agg(x, ',' ORDER BY x)"
        raise TransformInvalid(f"{where}: {name}() depends on the order in which rows come; write {shown}")
    direction = "DESC" if orders[0]["type"] == "DESCENDING" else "ASC"
    nulls = orders[0]["null_order"].replace("ORDER_DEFAULT", "NULLS LAST")
    parts = first if name == "list" else f"{first}, {_constant(node, 1, text, where)}"
    return _kept(f"{name}({parts} ORDER BY {first} {direction} {nulls})", [first], copies=not distinct)


def arguments_of(node: Node) -> list[Node]:
    """Return the arguments that are columns of the delta, without constants of quantiles and separators."""
    name = _name(node)
    given = [each["expression"] for each in node.get("arguments", ())]
    return given[:1] if name in ("quantile_cont", "quantile_disc", "string_agg") else given


def _name(node: Node) -> str:
    name = str(node["function_name"]).casefold()
    if name == "count" and not node.get("arguments"):
        return "count_star"
    return _ALIASES.get(name, name)
