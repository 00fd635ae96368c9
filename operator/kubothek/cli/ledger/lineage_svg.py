"""A lineage graph as an SVG picture: roots on the left, one column per transformation step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape, quoteattr

from kubothek.odf.lineage.rendering import short
from kubothek.words import count

if TYPE_CHECKING:
    from kubothek.odf.lineage import Edge, Graph, Node

_WIDTH, _HEIGHT = 190, 58
_ACROSS, _DOWN = 110, 26
_MARGIN: Final = 20
_SWEEPS: Final = 4
_NAME: Final = 24
"""Most characters of a name in a box."""
_STYLE: Final = (
    "text{font:12px sans-serif;fill:#222}.name{font-weight:bold;font-size:13px}.hash{fill:#666;font-family:monospace}"
    "rect{fill:#fff;stroke:#446;stroke-width:1}.root{fill:#e8f0fa}.asked{stroke-width:2.5}.absent{stroke-dasharray:4 3}"
    "path{fill:none;stroke:#446;stroke-width:1.2}.behind{stroke-dasharray:5 3;stroke:#a50}"
)

Place = tuple[float, float]


def svg(graph: Graph) -> str:
    """Return the picture. Arrows go from input to derivative, and are dashed if the derivative lags behind."""
    columns = _ordered(_columns(graph), graph)
    tallest = max(map(len, columns), default=1)
    positions: dict[str, Place] = {}
    for number, column in enumerate(columns):
        above = (tallest - len(column)) * (_HEIGHT + _DOWN) / 2
        for row, name in enumerate(column):
            positions[name] = (_MARGIN + number * (_WIDTH + _ACROSS), _MARGIN + above + row * (_HEIGHT + _DOWN))
    width = 2 * _MARGIN + len(columns) * _WIDTH + (len(columns) - 1) * _ACROSS
    height = 2 * _MARGIN + tallest * _HEIGHT + (tallest - 1) * _DOWN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f"<style>{_STYLE}</style>",
        '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" style="fill:#446;stroke:none"/></marker></defs>',
        *(_arrow(edge, positions) for edge in graph.edges),
        *(_box(node, positions[node.id], asked=node.id == graph.of) for node in graph.nodes),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _columns(graph: Graph) -> list[list[str]]:
    """Return the ids in columns: each dataset is one column right of its rightmost input."""
    column: dict[str, int] = {}
    for node in graph.nodes:  # sources come first
        before = [column[edge.source] for edge in graph.sources(node.id) if edge.source in column]
        column[node.id] = max(before, default=-1) + 1
    found: dict[int, list[str]] = defaultdict(list)
    for name, number in column.items():
        found[number].append(name)
    return [found[number] for number in sorted(found)]


def _ordered(columns: list[list[str]], graph: Graph) -> list[list[str]]:
    """Sort each column by the middle of its nodes' neighbours, so that few arrows cross."""
    neighbours: dict[str, list[str]] = defaultdict(list)
    for edge in graph.edges:
        neighbours[edge.source].append(edge.target)
        neighbours[edge.target].append(edge.source)
    for _ in range(_SWEEPS):
        rows = {name: row for column in columns for row, name in enumerate(column)}
        columns = [sorted(column, key=lambda name: _middle(name, neighbours[name], rows)) for column in columns]
    return columns


def _middle(name: str, others: Sequence[str], rows: Mapping[str, int]) -> tuple[float, str]:
    return (sum(rows[other] for other in others) / len(others) if others else rows[name], name)


def _arrow(edge: Edge, positions: Mapping[str, Place]) -> str:
    (x1, y1), (x2, y2) = positions[edge.source], positions[edge.target]
    x1, y1, y2 = x1 + _WIDTH, y1 + _HEIGHT / 2, y2 + _HEIGHT / 2
    bend = max(30.0, (x2 - x1) / 2)
    title = "nothing consumed" if edge.block is None else f"up to block {edge.block}, offset {edge.offset}"
    way = f"M{x1:g},{y1:g} C{x1 + bend:g},{y1:g} {x2 - bend:g},{y2:g} {x2:g},{y2:g}"
    return (
        f'<path class="{"" if edge.latest else "behind"}" d="{way}" marker-end="url(#end)">'
        f"<title>{escape(title)}</title></path>"
    )


def _box(node: Node, position: Place, *, asked: bool) -> str:
    x, y = position
    marks = {"root": _is_root(node), "asked": asked, "absent": node.uuid is None}
    kinds = [name for name, holds in marks.items() if holds]
    name = node.name if len(node.name) <= _NAME else f"{node.name[: _NAME - 1]}…"
    text = "not in this store" if node.uuid is None else f"{count(node.records, 'record')}"
    end = short(node.head)
    return (
        f'<g><rect class={quoteattr(" ".join(kinds))} x="{x:g}" y="{y:g}" width="{_WIDTH}" height="{_HEIGHT}" rx="5"/>'
        f"<title>{escape(f'{node.id} {node.head or str()}'.strip())}</title>"
        f'<text class="name" x="{x + 10:g}" y="{y + 19:g}">{escape(name)}</text>'
        f'<text x="{x + 10:g}" y="{y + 35:g}">{escape(text)}</text>'
        f'<text class="hash" x="{x + 10:g}" y="{y + 50:g}">{escape(end)}</text></g>'
    )


def _is_root(node: Node) -> bool:
    return node.kind is not None and node.kind.value == "Root"
