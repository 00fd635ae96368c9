"""Session windows: the rows of a key that follow each other within a gap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubothek.odf.transform.keyed import Closing, Recompute
from kubothek.odf.transform.session import Session, listed
from kubothek.odf.transform.state import ID, State


def with_sessions(
    session: Session,
    state: State,
    name: str,
    rows: str,
    types: Mapping[str, str],
    keys: Sequence[str],
    time: str,
    gap: int,
    closing: Closing | None,
) -> str:
    """The rows with their session instead of their time: a struct of its start and its end, which is after the gap.

    A session ends at least ``gap`` microseconds after its last row, so that rows a gap apart are in two.
    """
    operator = Recompute(name, keys, types)
    others = [column for column in types if column != time]

    def parted(table: str) -> tuple[str, str, str]:
        """The rows with the number of their session, when that begins and when it ends."""
        order = f"PARTITION BY {ID} ORDER BY {time}"
        apart = f"epoch_us({time}) - epoch_us(lag({time}) OVER ({order})) >= {gap}"
        first = f"SELECT *, coalesce({apart}, true)::INTEGER AS __new FROM {table}"
        query = f"SELECT *, sum(__new) OVER ({order}, __new DESC ROWS UNBOUNDED PRECEDING) AS __session FROM ({first})"
        part = f"PARTITION BY {ID}, __session"
        return query, f"min({time}) OVER ({part})", f"make_timestamp(epoch_us(max({time}) OVER ({part})) + {gap})"

    def answer(table: str) -> str:
        query, start, end = parted(table)
        window = f'struct_pack("start" := {start}, "end" := {end}) AS {time}'
        return f"SELECT {listed([*others, window, ID])} FROM ({query})"

    def left(table: str) -> str:
        query, _, end = parted(table)
        assert closing is not None, "it is asked for where there is one"
        open_ = "true" if closing.at is None else f"epoch_us({end}) > {closing.at}"
        return f"SELECT * EXCLUDE (__new, __session) FROM ({query}) QUALIFY {open_}"

    stays = left if closing is not None and closing.at is not None else None
    closes = closing if stays is not None else None
    return operator.difference(session, state, rows, answer, closes, stays)
