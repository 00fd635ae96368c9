"""Lineage of ledgers and of single records: as data, and as text (REQ-04, PV-01).

found = graph(store, "delays")                    # its sources up to the roots, and all datasets derived from it
print(tree(found))
of_record(store, "delays", 17, inputs_of(store))  # lineage of one record
"""

from __future__ import annotations

from kubothek.odf.lineage.datasets import Edge, Graph, Node, graph
from kubothek.odf.lineage.records import RecordLineage, Source, of_record
from kubothek.odf.lineage.rendering import dot, to_json, tree
from kubothek.odf.lineage.rendering_records import record_dot, record_tree

__all__ = [
    "Edge",
    "Graph",
    "Node",
    "RecordLineage",
    "Source",
    "dot",
    "graph",
    "of_record",
    "record_dot",
    "record_tree",
    "to_json",
    "tree",
]
