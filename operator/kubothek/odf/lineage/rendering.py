"""A graph of datasets as text: a tree for the terminal, DOT, and plain data for JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from kubothek.odf.lineage.datasets import Edge, Graph, Node
from kubothek.odf.spec.events import DatasetKind
from kubothek.words import count

_SHOWN: Final = 16
"""Number of displayed characters of a hash, after the common prefix."""
_SAME: Final = 5


def tree(graph: Graph) -> str:
    """Return the sources of the dataset, and the datasets derived from it, one per line.

    A dataset that occurs several times is expanded once.
    """
    start = graph.node(graph.of)
    lines = [_told(start)]
    up = [*_branches(graph, graph.of, graph.sources, lambda edge: edge.source, set(), "")]
    down = [*_branches(graph, graph.of, graph.targets, lambda edge: edge.target, set(), "")]
    lines += ["made of:", *up] if up else []
    lines += ["used by:", *down] if down else []
    return "\n".join(lines)


def _branches(
    graph: Graph,
    of: str,
    edges_of: Callable[[str], Sequence[Edge]],
    other: Callable[[Edge], str],
    seen: set[str],
    indent: str,
) -> Iterator[str]:
    edges = edges_of(of)
    for number, edge in enumerate(edges, 1):
        last = number == len(edges)
        following = other(edge)
        again = following in seen
        more = " (above)" if again and edges_of(following) else ""
        yield f"{indent}{'└─' if last else '├─'} {_told(graph.node(following))}{_taken(edge)}{more}"
        if not again:
            seen.add(following)
            yield from _branches(graph, following, edges_of, other, seen, f"{indent}{'   ' if last else '│  '}")


def _told(node: Node) -> str:
    if node.uuid is None:
        return f"{node.name}: {node.id}, not in this store"
    kind = "root" if node.kind is DatasetKind.ROOT else "derivative"
    marks = "" if node.watermark is None else f", watermark {node.watermark}"
    return f"{node.name}: {kind}, {count(node.records, 'record')}, block {node.blocks - 1} {short(node.head)}{marks}"


def _taken(edge: Edge) -> str:
    if edge.block is None:
        return "; nothing consumed"
    return "" if edge.latest else f"; consumed up to block {short(edge.block)}, offset {edge.offset}"


def short(block: str | None) -> str:
    """Return the displayed part of a hash."""
    return "" if block is None else block[_SAME : _SAME + _SHOWN]


def dot(graph: Graph) -> str:
    """Return the graph for Graphviz: arrows go from a source to what is derived from it."""
    lines = ["digraph lineage {", "  rankdir=LR;", "  node [shape=box, fontname=sans];"]
    for node in graph.nodes:
        shape = ", style=dashed" if node.uuid is None else ", shape=cylinder" if node.kind is DatasetKind.ROOT else ""
        bold = ", penwidth=2" if node.id == graph.of else ""
        text = "not in this store" if node.uuid is None else f"{count(node.records, 'record')}\n{short(node.head)}"
        label = quoted(node.name + "\n" + text)
        lines.append(f"  {quoted(node.id)} [label={label}{shape}{bold}];")
    for edge in graph.edges:
        style = "" if edge.latest else ", style=dashed"
        label = quoted(short(edge.block) or "nothing yet")
        lines.append(f"  {quoted(edge.source)} -> {quoted(edge.target)} [label={label}{style}];")
    return "\n".join([*lines, "}"]) + "\n"


def quoted(text: str) -> str:
    """Return a label quoted for DOT."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def to_json(graph: Graph) -> dict[str, Any]:
    """Return plain data: ``of``, ``nodes`` and ``edges`` with the fields of their classes."""
    nodes = [{**asdict(node), "kind": None if node.kind is None else node.kind.value} for node in graph.nodes]
    return {"of": graph.of, "nodes": nodes, "edges": [asdict(edge) for edge in graph.edges]}
