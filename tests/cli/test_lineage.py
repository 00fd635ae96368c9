"""The picture of a graph of datasets."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from kubothek.cli.ledger.lineage_svg import svg
from kubothek.odf.lineage import Edge, Graph, Node
from kubothek.odf.spec.events import DatasetKind


def graph(*names: str, **made_of: str) -> Graph:
    """Datasets, each after those that it is made of."""
    edges = [
        Edge(source=source, target=name, alias=source, block=f"f1620{source}", offset=4, latest=source != "old")
        for name, sources in made_of.items()
        for source in sources.split()
    ]
    nodes = [
        Node(
            id=name,
            name=name,
            uuid=None if name == "gone" else name,
            kind=DatasetKind.DERIVATIVE if name in made_of else DatasetKind.ROOT,
            head=f"f1620{name}",
            records=1234,
        )
        for name in names
    ]
    return Graph(of=names[-1], nodes=tuple(nodes), edges=tuple(edges))


def boxes(picture: str) -> dict[str, tuple[float, float]]:
    found = {}
    for group in ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}g"):
        rect, _, name = list(group)[:3]
        assert name.text is not None
        found[name.text] = (float(rect.attrib["x"]), float(rect.attrib["y"]))
    return found


def test_lineage_svg_draws_datasets_right_of_inputs_without_overlap() -> None:
    found = graph("a", "z", "b", "c", "d", b="a", c="b", d="a c z")
    places = boxes(svg(found))
    assert set(places) == {"a", "z", "b", "c", "d"}
    assert all(places[edge.source][0] < places[edge.target][0] for edge in found.edges)
    assert len(set(places.values())) == len(places)
    picture = svg(found)
    width, height = map(float, re.findall(r'(?:width|height)="(\d+)"', picture)[:2])
    assert all(0 < x < width and 0 < y < height for x, y in places.values())
    assert picture.count('marker-end="url(#end)"') == len(found.edges)
    assert "1,234 records" in picture


def test_lineage_svg_marks_stale_and_missing_datasets_and_escapes_names() -> None:
    picture = svg(graph("old", "gone", "<b>&", **{"<b>&": "old gone"}))
    assert 'class="behind"' in picture
    assert "not in this store" in picture
    assert "<b>&" in boxes(picture)


def test_lineage_svg_of_single_dataset_is_one_box() -> None:
    assert len(boxes(svg(graph("a")))) == 1
