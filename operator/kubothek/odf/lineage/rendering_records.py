"""The lineage of a record as text: a tree for the terminal, and DOT."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from kubothek.odf.lineage.records import RecordLineage, Source
from kubothek.odf.lineage.rendering import quoted, short
from kubothek.words import count

_SHOWN: Final = 20
"""Number of displayed offsets of an input; JSON has all."""


def record_tree(found: RecordLineage) -> str:
    """Return the record, the run that made it, and below that its origins, one line per input."""
    lines = [
        f"{found.uuid}, record {found.offset}: {_said(found.record)}",
        f"made by block {found.number}, {found.block}",
    ]
    if found.refused is not None:
        lines.append(f"the source records cannot be determined: {found.refused}")
    return "\n".join([*lines, *_branches(found.sources, "")])


def record_dot(found: RecordLineage) -> str:
    """Return the lineage for Graphviz: arrows go from an origin to what is derived from it."""
    lines = ["digraph lineage {", "  rankdir=LR;", "  node [shape=box, fontname=sans];"]
    label = quoted(f"{found.uuid}\nrecord {found.offset}, block {short(found.block)}")
    lines += [f"  n0 [label={label}, penwidth=2];", *_arrows(found.sources, "n0")]
    return "\n".join([*lines, "}"]) + "\n"


def _branches(sources: Sequence[Source], indent: str) -> Iterator[str]:
    told = [(source, text) for source in sources if (text := _told(source)) is not None]
    for number, (source, text) in enumerate(told, 1):
        last = number == len(told)
        yield f"{indent}{'└─' if last else '├─'} {text}"
        yield from _branches(source.sources or (), f"{indent}{'   ' if last else '│  '}")


def _arrows(sources: Sequence[Source], target: str) -> Iterator[str]:
    for number, source in enumerate(sources):
        if _told(source) is None:
            continue
        name, style = f"{target}_{number}", "" if source.members is not None else ", style=dashed"
        yield f"  {name} [label={quoted(_label(source))}{style}];"
        yield f"  {name} -> {target} [label={quoted(short(source.block))}];"
        yield from _arrows(source.sources or (), name)


def _told(source: Source) -> str | None:
    """Return the line of a source; None if no record of the input is an origin."""
    why = "" if source.refused is None else f"; the source records cannot be determined: {source.refused}"
    if source.record is not None:
        return f"{_name(source)}, record {source.offset}: {_said(source.record)}{why}"
    if source.members:
        more = ", …" if len(source.members) > _SHOWN else ""
        return f"{_name(source)}, {count(len(source.members), 'record')}: {_offsets(source.members)}{more}{why}"
    if source.members is not None or source.first is None:
        return None
    return f"{_name(source)}, records {source.first} to {source.last} of this run, up to block {source.block}"


def _label(source: Source) -> str:
    if source.members is None:
        return f"{_name(source)}\nrecords {source.first} to {source.last}"
    if source.offset is not None:
        return f"{_name(source)}\nrecord {source.offset}"
    return f"{_name(source)}\n{count(len(source.members), 'record')}"


def _name(source: Source) -> str:
    return source.uuid if source.uuid == source.alias else f"{source.uuid} ({source.alias})"


def _offsets(members: Sequence[int]) -> str:
    return ", ".join(map(str, members[:_SHOWN]))


def _said(record: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in record.items())
