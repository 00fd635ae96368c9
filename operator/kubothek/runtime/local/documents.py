"""YAML files as documents that remember where each of their fields stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from kubothek.runtime.local.errors import LocalError

SUFFIXES = (".yaml", ".yml", ".json")
"""What counts as a manifest in a directory; JSON is YAML."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # C is 10 times as fast, where built
    """Plain data only; and a date is text, as for the Kubernetes API, which speaks JSON."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's way
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with the manifests; ``str()`` is the line to print."""

    where: str
    """``file`` or ``file:line``"""
    message: str
    path: str = ""
    """The field, such as ``spec.engineRef``, if it is about one."""

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


class ManifestError(LocalError):
    """The manifests cannot be used; holds everything that is wrong with them, not just the first thing."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document: its content as plain data, its file and its node tree."""

    content: object
    file: Path
    node: yaml.Node

    def where(self, path: Sequence[str | int] = ()) -> str:
        """``file:line`` of the field at ``path``, or of the closest field around it that is written out."""
        node = self.node
        for step in path:
            inner = _child(node, step)
            if inner is None:
                break
            node = inner
        return f"{self.file}:{node.start_mark.line + 1}"


def manifest_files(paths: Sequence[Path]) -> list[Path]:
    """The files that ``-f`` names: files as they are, directories with all below them, in a stable order.

    Raises ManifestError for a path that does not exist and for a directory without any manifest.
    """
    files: dict[Path, None] = {}
    problems: list[Problem] = []
    for path in paths:
        if path.is_file():
            files[path] = None
        elif path.is_dir():
            found = sorted(file for file in path.rglob("*") if _is_manifest(file, path))
            files.update(dict.fromkeys(found))
            if not found:
                problems.append(Problem(str(path), f"holds no manifest ({', '.join(SUFFIXES)})"))
        else:
            problems.append(Problem(str(path), "no such file or directory"))
    if problems:
        raise ManifestError(problems)
    return list(files)


def read_documents(file: Path) -> tuple[list[Document], list[Problem]]:
    """The documents of a file, empty ones left out, and what keeps others from being read."""
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        return [], [Problem(str(file), f"not UTF-8 text: {error.reason} at byte {error.start}")]
    except OSError as error:
        return [], [Problem(str(file), f"cannot be read: {error.strerror}")]
    documents: list[Document] = []
    problems: list[Problem] = []
    loader = _Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            duplicates = [
                Problem(f"{file}:{key.start_mark.line + 1}", f"the field {key.value!r} is there twice")
                for key in _duplicate_keys(node)
            ]
            problems += duplicates
            content = loader.construct_document(node)
            if content is not None and not duplicates:
                documents.append(Document(content, file, node))
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        problems.append(Problem(f"{file}{line}", f"not YAML: {error.problem}"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problems.append(Problem(str(file), f"not YAML: {error}"))
    finally:
        loader.dispose()
    return documents, problems


def _is_manifest(file: Path, below: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(below).parts)
    return file.suffix in SUFFIXES and not hidden and file.is_file()


def _child(node: yaml.Node, step: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == step), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        inner: yaml.Node = node.value[step]
        return inner
    return None


def _duplicate_keys(root: yaml.Node) -> Iterator[yaml.Node]:
    """Keys that a mapping has twice; YAML forbids them, PyYAML silently keeps the last."""
    todo, visited = [root], set[int]()
    while todo:
        node = todo.pop()
        if id(node) in visited:  # an alias: its anchor was looked at
            continue
        visited.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            todo += node.value
        elif isinstance(node, yaml.MappingNode):
            seen = set[object]()
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                    if key.value in seen:
                        yield key
                    seen.add(key.value)
                todo.append(value)
