"""YAML as the subset that JSON is, with a place in every error."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import yaml

from kubothek.errors import FormatInvalid
from kubothek.odf.spec.timestamps import Timestamp

_LARGEST: Final = 16 << 20
"""The most characters of a text that is read."""
_DEEPEST: Final = 50
_WIDE: Final = 1 << 30
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def load(text: str) -> Any:
    """Parse the one document of a text. Raises FormatInvalid with line and column."""
    documents = load_all(text)
    if len(documents) > 1:
        raise FormatInvalid(f"the text has {len(documents)} YAML documents, where one is expected")
    return documents[0] if documents else None


def load_all(text: str) -> list[Any]:
    """Parse all documents of a text. Raises FormatInvalid with line and column."""
    if len(text) > _LARGEST:
        raise FormatInvalid(f"a manifest of {len(text)} characters: at most {_LARGEST} are read")
    try:
        return list(yaml.load_all(text, _Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise FormatInvalid(f"{place}{error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise FormatInvalid(f"not readable as YAML: {error}") from None


def dump(value: Any) -> str:
    """Return the document as YAML: fields in their order, nothing folded."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDE)


class _Loader(yaml.SafeLoader):
    """A loader of YAML 1.2's core types; it refuses repeated keys, anchors, and nesting without end."""

    yaml_implicit_resolvers: Any = {}  # noqa: RUF012 - PyYAML's way
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="anchors and aliases are not read", problem_mark=mark)
        self.depth += 1
        if self.depth > _DEEPEST:
            raise yaml.MarkedYAMLError(problem=f"nested deeper than {_DEEPEST} levels")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_scalar(self, node: Any) -> Any:
        text = super().construct_scalar(node)
        if not text.isascii() and _SURROGATE.search(text):
            return _joined(text, node)
        return text

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                raise yaml.MarkedYAMLError(problem="the name of a field must be a text", problem_mark=key.start_mark)
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"field {key.value!r} is repeated", problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _joined(text: str, node: Any) -> str:
    """Return the text with each pair of surrogates, JSON's escape of a character beyond 16 bits, as that character."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        problem = "the text has a lone surrogate: an escape \\ud800 … \\udfff is a character in pairs only"
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from None


def _scalar(pattern: str, what: str, read: Callable[[str], Any]) -> Callable[[_Loader, Any], Any]:
    """Return the constructor for a tag; it checks the text, since a tag may be explicit: ``!!bool x``."""

    def construct(loader: _Loader, node: Any) -> Any:
        text = loader.construct_scalar(node)
        if not re.fullmatch(pattern, text):
            raise yaml.MarkedYAMLError(problem=f"{text!r:.100} is no {what}", problem_mark=node.start_mark)
        return read(text)

    return construct


_CORE: Final[dict[str, tuple[str, list[str], str, Callable[[str], Any]]]] = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""], "null", lambda text: None),
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF"), "true or false", lambda text: text[0] in "tT"),
    "int": (r"[-+]?[0-9]+", list("-+0123456789"), "whole number", int),  # of YAML 1.2, where 010 is ten
    "float": (
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?",
        list("-+.0123456789"),
        "number",
        float,
    ),
}
_PREFIX: Final = "tag:yaml.org,2002:"
_Loader.yaml_constructors = {  # the types of JSON, and no other tags
    **{
        tag: made
        for tag, made in yaml.SafeLoader.yaml_constructors.items()
        if tag in (None, f"{_PREFIX}str", f"{_PREFIX}seq", f"{_PREFIX}map")
    },
    **{f"{_PREFIX}{tag}": _scalar(pattern, what, read) for tag, (pattern, _, what, read) in _CORE.items()},
}


class _Dumper(yaml.SafeDumper):
    """A dumper that quotes what a reader of YAML 1.1 or 1.2 would not take for text; times are the exception."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> Any:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


def _time(dumper: _Dumper, moment: Timestamp) -> Any:
    return dumper.represent_scalar("tag:yaml.org,2002:timestamp", str(moment))


_Dumper.add_representer(str, _text)
_Dumper.add_representer(Timestamp, _time)


for _tag, (_pattern, _first, *_rest) in _CORE.items():
    for _side in (_Loader, _Dumper):
        _side.add_implicit_resolver(f"{_PREFIX}{_tag}", re.compile(f"(?:{_pattern})$"), _first)
