"""A table's skipping metadata as plain data: the wanted indices, and the files that hold their entries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from kubothek.errors import SkippingInvalid
from kubothek.table.checked_types import checked
from kubothek.table.name_lists import names_in


@dataclass(frozen=True, slots=True)
class IndexDefinition:
    """One index on one or more columns.

    ``type``     as in manifests: ``MinMax``, ``ValueList``, ``BloomFilter``, or another registered type
    ``columns``  names; for a field in a struct its path, ``nest.a``. Xskipper's files have them in lower case
    ``params``   parameters of the index type, as text
    ``key``      label of the master key that encrypts its entries; None: they are not encrypted
    """

    type: str
    columns: tuple[str, ...]
    params: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None

    def __post_init__(self) -> None:
        if type(self.columns) is not tuple:  # a string is one name
            object.__setattr__(self, "columns", names_in(f"columns of the {self.type} index", self.columns))

    @property
    def name(self) -> str:
        """The index type in Xskipper's spelling."""
        return self.type.lower()

    @property
    def column(self) -> str:
        """The name of the column that holds its entries (Xskipper's Metadatastore Spec, "Per-Index Columns")."""
        return entry_column(self.columns, self.name)

    def to_json(self) -> dict[str, Any]:
        """Return plain data, for heads and job specs."""
        found: dict[str, Any] = {"type": self.type, "columns": list(self.columns)}
        if self.params:
            found["params"] = dict(self.params)
        if self.key is not None:
            found["key"] = self.key
        return found

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Return the inverse of :meth:`to_json`."""
        return cls(found["type"], tuple(found["columns"]), dict(found.get("params", {})), found.get("key"))


@dataclass(frozen=True, slots=True)
class Encryption:
    """The encryption settings; required if an index has a key.

    ``footer_key``        label of the master key for footers and for all columns outside indices
    ``plaintext_footer``  footers are signed, not encrypted: readers without the key still see the schema
    """

    footer_key: str
    plaintext_footer: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """Entries of some data files, immutable: those that one commit added, or a merge of several parts.

    ``key``  of the file in Xskipper's directory; empty if only Kubothek's own index types are wanted
    ``own``  of the file with the entries of own index types; None: there are none
    """

    key: str
    rows: int
    bytes: int
    own: str | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of all its objects."""
        return tuple(key for key in (self.key, self.own) if key)

    def to_json(self) -> dict[str, Any]:
        """Return plain data, for heads."""
        return {"key": self.key, "rows": self.rows, "bytes": self.bytes, "own": self.own}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Return the inverse of :meth:`to_json`. Raises KeyError, ValueError."""
        part = cls(found["key"], found["rows"], found["bytes"], found.get("own"))
        if not part.keys:
            raise ValueError("a part without an object")
        return part


@dataclass(frozen=True, slots=True)
class SkippingState:
    """The skipping metadata of one head.

    ``indices``  the index definitions, by which every later commit describes its files
    ``without``  number of files that could not be described when all were last examined
    ``parts``    the entries. A file of the head without an entry is read; an entry of another file has no effect
    """

    indices: tuple[IndexDefinition, ...] = ()
    parts: tuple[Part, ...] = ()
    encryption: Encryption | None = None
    without: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain data, for heads."""
        found: dict[str, Any] = {
            "indices": [each.to_json() for each in self.indices],
            "parts": [each.to_json() for each in self.parts],
        }
        if self.without:
            found["without"] = self.without
        if self.encryption is not None:
            found["encryption"] = {
                "footer_key": self.encryption.footer_key,
                "plaintext_footer": self.encryption.plaintext_footer,
            }
        return found

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Return the inverse of :meth:`to_json`. Raises AttributeError, KeyError, TypeError, ValueError."""
        secret = found.get("encryption")
        state = cls(
            tuple(map(IndexDefinition.from_json, found.get("indices", ()))),
            tuple(map(Part.from_json, found.get("parts", ()))),
            None if secret is None else Encryption(**secret),
            found.get("without", 0),
        )
        return checked(state)


NONE: Final = SkippingState()


def entry_column(columns: Iterable[str], name: str) -> str:
    """Return the column name of an index (Xskipper's Metadatastore Spec, "Version 2" to "Version 4").

    Lengths are in UTF-16 units. All lengths come last, so no column's name is another's with more of the same kind
    appended; the encryption of columns by name relies on that.
    """
    encoded = [column.lower().replace("#", "##").replace(".", "$#$") for column in columns]
    lengths = "-".join(str(len(each.encode("utf-16-le")) // 2) for each in encoded)
    return f"{'_'.join(encoded)}_{name}_{lengths}"


def require_footer_key(state: SkippingState) -> None:
    """Raise SkippingInvalid if an index has a key and there is no key for the footers."""
    if state.encryption is None and any(each.key for each in state.indices):
        raise SkippingInvalid(
            "an index has a key: name a footerKey too, which encrypts what the columns have in common"
        )


# The skipping part of a commit, as plain data.


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippingChange:
    """The default suits every commit: an entry of a deleted file is harmless, and a file without an entry is read.

    ``written``     entries of files that the commit adds
    ``wanted``      the index definitions from now on, whose parts are ignored; None = unchanged
    ``begins``      the definitions for a table that has neither definitions nor files; others keep theirs
    ``without``     number of files that cannot be described, if all were examined
    ``instead_of``  keys of parts that ``written`` replaces, as far as they still exist
    """

    written: tuple[Part, ...] = ()
    wanted: SkippingState | None = None
    begins: SkippingState | None = None
    instead_of: frozenset[str] = frozenset()
    without: int | None = None


NO_SKIPPING_CHANGE: Final = SkippingChange()
