"""Authentication and authorization: interface, and implementation with a file of tokens."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, Self

import yaml

from kubothek.errors import InputError

_EVERYTHING = "*"


class Verb(StrEnum):
    """An operation on a dataset."""

    PULL = "pull"
    PUSH = "push"
    INGEST = "ingest"
    QUERY = "query"
    FORCE = "force"
    """A push that removes existing blocks; it needs ``push`` as well."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The owner of a token; the audit log shows ``name``."""

    name: str


class Access(Protocol):
    """Access control, asked for each request; it may cache. Methods raise StoreUnavailable without an answer."""

    async def principal(self, token: str) -> Principal | None:
        """Return the principal of a token; None if the token is unknown."""

    async def may(self, principal: Principal, verb: Verb, dataset: str) -> bool:
        """Return whether the principal may do this to the dataset, which may not exist yet."""


class Nobody:
    """Access without tokens: only public datasets are served."""

    async def principal(self, token: str) -> Principal | None:
        """Return None: every token is unknown."""
        return None

    async def may(self, principal: Principal, verb: Verb, dataset: str) -> bool:
        """Return False."""
        return False


class Tokens:
    """Tokens in a file, each with its rights.

        - name: partner
          token: 5d41402abc4b2a76b9719d911017c592
          pull: ["*"]
          push: [flights]

    Memory holds only their hashes. The lookup is by hash, so its duration reveals nothing about a token.
    """

    def __init__(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Raises InputError."""
        self._principals: dict[bytes, Principal] = {}
        self._rights: dict[str, dict[Verb, frozenset[str]]] = {}
        for entry in entries:
            name, token = entry.get("name"), entry.get("token")
            if not isinstance(name, str) or not isinstance(token, str) or len(token) < 16 or not token.isascii():
                raise InputError("each entry has a name, and a token of at least 16 ASCII characters")
            unknown = entry.keys() - {"name", "token", *Verb}
            if unknown:
                raise InputError(f"token {name!r}: unknown field {min(unknown)!r}; rights are {', '.join(Verb)}")
            if name in self._rights or _digest(token) in self._principals:
                raise InputError(f"token {name!r}: its name or its token occurs twice")
            self._principals[_digest(token)] = Principal(name)
            self._rights[name] = {verb: _names(name, verb, entry.get(verb)) for verb in Verb if verb in entry}

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """Read a file. Raises InputError for a file that others may read or that is invalid; OSError."""
        if stat.S_IMODE(path.stat().st_mode) & stat.S_IROTH:
            raise InputError(f"{path} can be read by everybody on this machine: chmod 600 {path}")
        try:
            found = yaml.safe_load(path.read_text())
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise InputError(f"{path} is no YAML: {error}") from None
        if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
            raise InputError(f"{path}: a list of tokens is expected, each with a name, a token and rights")
        try:
            return cls(found)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    async def principal(self, token: str) -> Principal | None:
        """Return the principal of a token; None if the token is unknown."""
        return self._principals.get(_digest(token))

    async def may(self, principal: Principal, verb: Verb, dataset: str) -> bool:
        """Return whether the file grants the right."""
        named = self._rights.get(principal.name, {}).get(verb, frozenset())
        return _EVERYTHING in named or dataset in named


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def _names(name: str, verb: Verb, found: object) -> frozenset[str]:
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise InputError(f'token {name!r}: {verb} is a list of datasets, or ["*"] for all')
    return frozenset(found)
