"""What can be counted of a source tree: sizes of modules, imports, and who imports whom by grimp's graph."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Self

import grimp

SMALL = 100
"""Lines below which a module with one importer in its own folder could be a part of that importer."""


@dataclass(frozen=True)
class Module:
    """One file: its lines, and those of its import statements."""

    lines: int
    import_lines: int


@dataclass(frozen=True)
class Tree:
    """Modules by dotted name, and their imports; packages are the modules of their ``__init__``."""

    modules: Mapping[str, Module]
    graph: grimp.ImportGraph

    @classmethod
    def read(cls, package: Path) -> Self:
        """Read all files of a package. Raises SyntaxError."""
        found = {}
        for path in sorted(package.rglob("*.py")):
            parts = path.relative_to(package.parent).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = _module(path)
        sys.path.insert(0, str(package.parent.resolve()))  # where grimp looks for the package
        return cls(found, grimp.build_graph(package.name, cache_dir=None))

    def importers(self, name: str) -> set[str]:
        """The modules that import this one, in functions and for type checking as well."""
        return self.graph.find_modules_that_directly_import(name)


def _module(path: Path) -> Module:
    text = path.read_text()
    nodes = ast.walk(ast.parse(text, str(path)))
    statements = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    lines = sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in statements)
    return Module(len(text.splitlines()), lines)


def figures(tree: Tree) -> dict[str, float]:
    """Sizes of modules, imports, modules with one importer, and cycles."""
    lines = [module.lines for module in tree.modules.values() if module.lines > 1]
    total = sum(lines)
    import_lines = sum(module.import_lines for module in tree.modules.values())
    return {
        "modules (without empty packages)": len(lines),
        "lines": total,
        "median lines of a module": median(lines),
        "lines of imports": import_lines,
        "lines of imports, per cent": round(100 * import_lines / total, 1),
        "modules four or more folders down": sum(name.count(".") > 4 for name in tree.modules),
        f"modules below {SMALL} lines with one importer, in their folder": len(single_importers(tree)),
        "pairs of sibling packages or modules that import each other": len(sibling_cycles(tree)),
    }


def single_importers(tree: Tree) -> list[str]:
    """Small modules that one module imports, of the same folder."""
    packages = {name.rpartition(".")[0] for name in tree.modules}
    return [
        name
        for name, module in tree.modules.items()
        if module.lines < SMALL
        and name not in packages
        and len(importers := tree.importers(name)) == 1
        and {each.rpartition(".")[0] for each in importers} == {name.rpartition(".")[0]}
    ]


def sibling_cycles(tree: Tree) -> list[tuple[str, str]]:
    """Pairs of packages or modules of one folder that import each other, however deep within them."""
    edges: set[tuple[str, str]] = set()
    for imported in tree.modules:
        for importer in tree.importers(imported):
            here, there = importer.split("."), imported.split(".")
            shared = next((at for at, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), None)
            if shared is not None:
                edges.add((".".join(here[: shared + 1]), ".".join(there[: shared + 1])))
    return sorted((a, b) for a, b in edges if a < b and (b, a) in edges)
