"""YAML files as documents that record the position of each field."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from yaml.reader import Reader

from kubothek.local.errors import LocalError

SUFFIXES = (".yaml", ".yml", ".json")
"""Suffixes of manifests in a directory; JSON is YAML."""


_LARGEST: Final = 8 << 20
"""Size limit of a file in bytes. Kubernetes accepts objects of up to 1.5 MiB."""
_DEEPEST: Final = 100
"""Limit of nesting levels; libyaml's composer recurses, and overflows the stack at some 50,000."""
_LONGEST_NUMBER: Final = 100
"""Limit of a number in characters: the time to parse a longer one grows with its square."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # C is 10 times as fast, where built
    """Loader for the types of JSON, which the Kubernetes API uses. A date is text."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's way
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    yaml_constructors = {  # noqa: RUF012 - PyYAML's way
        tag: constructor
        for tag, constructor in yaml.SafeLoader.yaml_constructors.items()
        if tag is None or tag.rpartition(":")[2] in ("null", "bool", "int", "float", "str", "seq", "map")
    }

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Return the value. Raises MarkedYAMLError for every value that YAML's rules give no meaning."""
        if node.tag.endswith((":int", ":float")) and len(node.value) > _LONGEST_NUMBER:
            raise _marked(node, f"a number has more than {_LONGEST_NUMBER} characters")
        try:
            value = super().construct_object(node, deep)
        except (ValueError, LookupError, OverflowError):
            raise _marked(node, f"{node.value!r} is not a valid {node.tag.rpartition(':')[2]}") from None
        if isinstance(value, float) and not math.isfinite(value):
            raise _marked(node, f"{node.value} is not a number that JSON has")
        return value

    def construct_mapping(self, node: yaml.Node, deep: bool = False) -> Any:
        """Return the mapping. Raises MarkedYAMLError for a key that is not text."""
        found = super().construct_mapping(node, deep)
        for key in found:
            if not isinstance(key, str):
                raise _marked(node, f"the field name {key!r} is not text: quote it")
        return found


def _marked(place: Any, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=place.start_mark)


@dataclass(frozen=True, slots=True)
class Problem:
    """Problem in the manifests; ``str()`` is the line to print."""

    where: str
    """``file`` or ``file:line``."""
    message: str
    path: str = ""
    """The field, such as ``spec.engineRef``, if the problem is about one."""

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


class ManifestError(LocalError):
    """The manifests cannot be used; holds every problem, not only the first one."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document: its content as plain data, its file and its node tree."""

    content: object
    """Of a document with faults, only ``apiVersion`` and ``kind``."""
    file: Path
    node: yaml.Node
    faults: tuple[Problem, ...] = ()
    """Why the content cannot be used."""

    def where(self, path: Sequence[str | int] = ()) -> str:
        """Return ``file:line`` of the field at ``path``, or of the closest field around it that is written out."""
        node = self.node
        for step in path:
            inner = _child(node, step)
            if inner is None:
                break
            node = inner
        return f"{self.file}:{node.start_mark.line + 1}"


def manifest_files(paths: Sequence[Path]) -> list[Path]:
    """Return the files that ``-f`` names: files themselves, and all manifests below directories, in a stable order.

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
    """Return the documents of a file, and the problems that prevent reading others.

    Empty documents are left out. The items of a ``List`` are separate documents.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            return [], [Problem(str(file), f"larger than {_LARGEST >> 20} MiB, the limit of a manifest file")]
        text = data.decode()
    except UnicodeDecodeError as error:
        return [], [Problem(str(file), f"not UTF-8 text: {error.reason} at byte {error.start}")]
    except OSError as error:
        return [], [Problem(str(file), f"cannot be read: {error.strerror}")]
    if wrong := Reader.NON_PRINTABLE.search(text):
        line = text.count("\n", 0, wrong.start()) + 1
        return [], [Problem(f"{file}:{line}", f"not YAML: it has the control character U+{ord(wrong[0]):04X}")]
    documents: list[Document] = []
    problems: list[Problem] = []
    try:
        loader = _Loader(text)
        try:
            for alias in _aliases(text):
                node = loader.get_node() if loader.check_node() else None
                if node is not None:
                    documents += _items(_document(loader, file, node, alias))
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        problems.append(_not_yaml(file, error))
    return documents, problems


def _aliases(text: str) -> Iterator[Any]:
    """Yield the position of each document's first alias, or None. Raises MarkedYAMLError if the nesting is too deep.

    An alias lets 600 bytes stand for gigabytes, and a mapping contain itself. Events are parsed without recursion.
    """
    depth = 0
    alias: Any = None
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.AliasEvent):
            alias = alias or event.start_mark
        elif isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                raise _marked(event, f"nested deeper than {_DEEPEST} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.DocumentEndEvent):
            yield alias
            alias = None


def _document(loader: _Loader, file: Path, node: yaml.Node, alias: yaml.Mark | None) -> Document:
    faults = [
        Problem(f"{file}:{key.start_mark.line + 1}", f"the field {key.value!r} occurs twice")
        for key in _duplicate_keys(node)
    ]
    if alias is not None:
        faults.append(Problem(f"{file}:{alias.line + 1}", "YAML aliases are not supported: write the value out"))
    if not faults:
        try:
            return Document(loader.construct_document(node), file, node)
        except yaml.MarkedYAMLError as error:
            faults.append(_not_yaml(file, error))
    return Document(_identity(node), file, node, tuple(faults))


def _identity(node: yaml.Node) -> Mapping[str, str]:
    """Return ``apiVersion`` and ``kind`` of a document whose content cannot be used."""
    found = {name: _child(node, name) for name in ("apiVersion", "kind")}
    return {name: value.value for name, value in found.items() if isinstance(value, yaml.ScalarNode)}


def _items(document: Document) -> Iterator[Document]:
    """Yield the items of a List, as ``kubectl get -o yaml`` writes it; otherwise the document, unless it is empty."""
    content = document.content
    if isinstance(content, dict) and (content.get("apiVersion"), content.get("kind")) == ("v1", "List"):
        listed, node = content.get("items"), _child(document.node, "items")
        if isinstance(listed, list) and isinstance(node, yaml.SequenceNode):
            for item, inner in zip(listed, node.value, strict=True):
                yield from _items(Document({} if item is None else item, document.file, inner))
            return
    if content is not None:
        yield document


def _not_yaml(file: Path, error: yaml.MarkedYAMLError) -> Problem:
    line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
    return Problem(f"{file}{line}", f"not YAML: {error.problem or error.context}")


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
    """Yield the keys that a mapping has twice; YAML forbids them, PyYAML silently keeps the last."""
    todo, visited = [root], set[int]()
    while todo:
        node = todo.pop()
        if id(node) in visited:  # an alias: its anchor was already visited
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
