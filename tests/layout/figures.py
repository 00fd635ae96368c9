"""The source tree as a graph of modules, and what can be counted of it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Self

SMALL = 100
"""Lines below which a module with one importer in its own folder could be a part of that importer."""


@dataclass(frozen=True)
class Module:
    """One file: its lines, those of its import statements, and the names that they import."""

    lines: int
    import_lines: int
    imported: frozenset[str]


@dataclass(frozen=True)
class Tree:
    """Modules by dotted name; packages are the modules of their ``__init__``."""

    modules: Mapping[str, Module]

    @classmethod
    def read(cls, package: Path) -> Self:
        """Read all files of a package. Raises SyntaxError."""
        found = {}
        for path in sorted(package.rglob("*.py")):
            parts = path.relative_to(package.parent).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = _module(path)
        return cls(found)

    def imports(self) -> Iterator[tuple[str, str]]:
        """Pairs of a module and one that it imports, in functions and for type checking as well."""
        for name, module in self.modules.items():
            targets = {target for each in module.imported if (target := self._known(each)) is not None}
            yield from ((name, target) for target in sorted(targets - {name}))

    def _known(self, name: str) -> str | None:
        """The module that a dotted name means: the name itself, or what has it as an attribute."""
        if name in self.modules:
            return name
        parent = name.rpartition(".")[0]
        return parent if parent in self.modules else None


def _module(path: Path) -> Module:
    text = path.read_text()
    statements = [
        node for node in ast.walk(ast.parse(text, str(path))) if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    names: set[str] = set()
    for node in statements:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif node.module is not None:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    lines = sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in statements)
    return Module(len(text.splitlines()), lines, frozenset(names))


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
    importers: dict[str, set[str]] = defaultdict(set)
    for importer, imported in tree.imports():
        importers[imported].add(importer)
    packages = {name.rpartition(".")[0] for name in tree.modules}
    return [
        name
        for name, module in tree.modules.items()
        if module.lines < SMALL
        and name not in packages
        and len(importers[name]) == 1
        and {each.rpartition(".")[0] for each in importers[name]} == {name.rpartition(".")[0]}
    ]


def sibling_cycles(tree: Tree) -> list[tuple[str, str]]:
    """Pairs of packages or modules of one folder that import each other, however deep within them."""
    edges: set[tuple[str, str]] = set()
    for importer, imported in tree.imports():
        here, there = importer.split("."), imported.split(".")
        shared = next((at for at, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), None)
        if shared is not None:
            edges.add((".".join(here[: shared + 1]), ".".join(there[: shared + 1])))
    return sorted((a, b) for a, b in edges if a < b and (b, a) in edges)
