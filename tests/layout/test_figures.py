"""What is counted of a source tree. `make lint` refuses siblings of the package that import each other."""

from __future__ import annotations

import grimp

from tests.layout.figures import Module, Tree, sibling_cycles, single_importers


def _tree(**imports: str) -> Tree:
    names = {name.replace("_", "."): each.split() for name, each in imports.items()}
    graph = grimp.ImportGraph()
    for name, imported in names.items():
        graph.add_module(name)
        for each in imported:
            graph.add_import(importer=name, imported=each)
    return Tree(dict.fromkeys(names, Module(5, 1)), graph)


def test_sibling_modules_with_import_cycle_are_reported_at_any_depth() -> None:
    tree = _tree(p="", p_a="", p_a_x="p.b", p_b="p.a.y", p_a_y="")
    assert sibling_cycles(tree) == [("p.a", "p.b")]


def test_small_module_with_single_importer_is_reported() -> None:
    tree = _tree(p="", p_a="p.b", p_b="", p_c="", p_d="p.e p.c", q="p.e")
    assert single_importers(tree) == ["p.b", "p.c"]
