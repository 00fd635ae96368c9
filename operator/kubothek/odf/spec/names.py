"""The grammar of names and references (GR-01 … GR-08).

``a/b`` can be dataset ``b`` of the account ``a``, or of the repository ``a``: :func:`parse_any` returns the local
alias, and a caller that knows the repositories decides (GR-06).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from kubothek.errors import FormatInvalid
from kubothek.odf.spec.identity import DatasetId

_SUBDOMAIN: Final = r"[a-zA-Z0-9]+(?:-[a-zA-Z0-9]+)*"
_HOSTNAME: Final = re.compile(rf"{_SUBDOMAIN}(?:\.{_SUBDOMAIN})*")
_URL: Final = re.compile(r"[a-zA-Z0-9]+(?:\+[a-zA-Z0-9]+)*://[^\n]+")
_RULE: Final = "letters, digits and single '-' between them, in parts joined by '.'"


class Name(str):
    """The name of a dataset, an account or a repository; comparison ignores case (AL-02).

    Raises FormatInvalid for an invalid name (GR-01).
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Name:
        if not _HOSTNAME.fullmatch(text):
            raise FormatInvalid(f"{text[:100]!r} is no name: use {_RULE}")
        return super().__new__(cls, text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.lower() == other.lower()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.lower())


@dataclass(frozen=True, slots=True)
class Alias:
    """A local ``[account/]dataset`` (GR-02), or a remote ``repository/[account/]dataset`` (GR-03)."""

    dataset: Name
    account: Name | None = None
    repository: Name | None = None

    def __str__(self) -> str:
        return "/".join(part for part in (self.repository, self.account, self.dataset) if part is not None)


@dataclass(frozen=True, slots=True)
class RemoteId:
    """A remote dataset: ``repository/did:odf:…``."""

    repository: Name
    id: DatasetId

    def __str__(self) -> str:
        return f"{self.repository}/{self.id}"


@dataclass(frozen=True, slots=True)
class Url:
    """The location of a dataset, whatever its name."""

    text: str

    def __str__(self) -> str:
        return self.text


Reference: TypeAlias = DatasetId | Alias
RemoteReference: TypeAlias = DatasetId | RemoteId | Alias | Url


def parse_alias(text: str) -> Alias:
    """Parse ``[account/]dataset``. Raises FormatInvalid."""
    *account, dataset = _parts(text, "[account/]dataset", 1, 2)
    return Alias(dataset, account[0] if account else None)


def parse_remote_alias(text: str) -> Alias:
    """Parse ``repository/[account/]dataset``. Raises FormatInvalid."""
    repository, *account, dataset = _parts(text, "repository/[account/]dataset", 2, 3)
    return Alias(dataset, account[0] if account else None, repository)


def parse_reference(text: str) -> Reference:
    """Parse a local reference: ``did:odf:…`` or ``[account/]dataset`` (GR-04). Raises FormatInvalid."""
    return DatasetId.parse(text) if text.startswith("did:") else parse_alias(text)


def parse_remote(text: str) -> RemoteReference:
    """Parse a remote reference (GR-05). Raises FormatInvalid."""
    if _URL.fullmatch(text):
        return Url(text)
    if text.startswith("did:"):
        return DatasetId.parse(text)
    repository, slash, rest = text.partition("/")
    if slash and rest.startswith("did:"):
        return RemoteId(Name(repository), DatasetId.parse(rest))
    return parse_remote_alias(text)


def parse_any(text: str) -> RemoteReference:
    """Parse a local or remote reference (GR-06). Raises FormatInvalid."""
    if not _URL.fullmatch(text) and text.count("/") < 2 and "/did:" not in text:
        return parse_reference(text)
    return parse_remote(text)


def _parts(text: str, form: str, fewest: int, most: int) -> list[Name]:
    parts = text.split("/")
    if not fewest <= len(parts) <= most:
        raise FormatInvalid(f"{text[:100]!r} is not of the form {form}")
    return [Name(part) for part in parts]
