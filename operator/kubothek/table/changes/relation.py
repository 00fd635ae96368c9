"""SQL of DuckDB that computes which rows of compared files changed: a difference of bags, for each commit.

The statement reads the rows of :func:`~kubothek.table.changes.files.open_changes`. Rows that are in the removed and in
the added files cancel each other, as often as they occur in both. ``GROUP BY`` compares as SQL's ``IS NOT DISTINCT
FROM``: NULL equals NULL, NaN equals NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubothek.in_memory_database import quoted
from kubothek.table.changes.plan import DELETE, FEED_COLUMNS, INSERT, POSTIMAGE, PREIMAGE


def difference(source: str, columns: Sequence[str], key: Sequence[int] = (), *, ordered: bool = False) -> str:
    """Return the SELECT of the changes between the removed and the added rows in ``source``.

    ``source``   the name of a table or view
    ``columns``  its columns as DuckDB names them: the table's, then those of a feed
    ``key``      positions of the columns that identify a row. A key with one old and one new row is an update
    ``ordered``  by version, then key, deleted rows and preimages first
    """
    width = len(columns) - len(FEED_COLUMNS)
    kind, version, time = map(quoted, columns[width:])
    # Short names of our own: none can be the name of another column.
    values = {f"c{number}": quoted(name) for number, name in enumerate(columns[:width])}
    keys = ", ".join(["version", *(f"c{position}" for position in key)])
    grouped = ", ".join([*values, "version", "time"])
    change = f"CASE WHEN n > 0 THEN '{INSERT}' ELSE '{DELETE}' END"
    is_update = "false"
    if key:
        update = f"CASE WHEN n > 0 THEN '{POSTIMAGE}' ELSE '{PREIMAGE}' END"
        change = f"CASE WHEN is_update THEN {update} ELSE {change} END"
        window = f"OVER (PARTITION BY {keys})"
        is_update = f"sum(abs(n)) {window} = 2 AND sum(n) {window} = 0"
    return f"""
        SELECT {", ".join(f"{value} AS {name}" for value, name in values.items())},
            {change} AS {kind}, version AS {version}, time AS {time}
        FROM (SELECT *, unnest(range(abs(n))) AS repetition FROM (SELECT *, {is_update} AS is_update FROM (
            SELECT {grouped}, sum(side)::BIGINT AS n FROM (
                SELECT {", ".join(f"{name} AS {value}" for value, name in values.items())},
                    {version} AS version, {time} AS time, CASE {kind} WHEN '{INSERT}' THEN 1 ELSE -1 END AS side
                FROM {quoted(source)})
            GROUP BY {grouped} HAVING sum(side) <> 0)))
        {f"ORDER BY {keys}, n > 0" if ordered else ""}"""  # noqa: S608 - all names are quoted
