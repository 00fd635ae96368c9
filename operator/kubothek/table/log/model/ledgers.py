"""The part of commits that concerns ledgers: how one moves the chain, and what the head says of it. Plain data.

:mod:`kubothek.odf` works on the chain itself. Here a block is its hash, and two rules hold: a commit that moves the
chain continues from its last block, and rows change with the chain only (commit-protocol, "Ledgers").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from kubothek.table.checked_types import checked
from kubothek.table.log.model import keys


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainMove:
    """The change of a chain by one commit, in hashes.

    ``base``         the last block before it; None if there was no chain
    ``head``         the last block after it; unchanged if only the table is rebuilt from the chain
    ``blocks``       the blocks that it wrote, oldest first
    ``data``         the slices, and ``checkpoints``, that these blocks name and that it wrote
    """

    base: str | None
    head: str
    blocks: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    checkpoints: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the form in records."""
        return {
            "base": self.base,
            "head": self.head,
            "blocks": self.blocks,
            "data": self.data,
            "checkpoints": self.checkpoints,
        }

    @classmethod
    def of_json(cls, found: Mapping[str, Any] | None) -> Self | None:
        """Read the form in records; None for a record older than ledgers. Raises KeyError, TypeError."""
        if found is None:
            return None
        lists = {name: tuple(map(str, found[name])) for name in ("blocks", "data", "checkpoints")}
        return cls(base=found["base"], head=found["head"], **lists)

    def keys(self, uuid: str) -> Iterator[str]:
        """Yield the keys of the objects that it names."""
        yield from (keys.block(uuid, block) for block in self.blocks)
        yield from (keys.data_slice(uuid, physical) for physical in self.data)
        yield from (keys.engine_state(uuid, physical) for physical in self.checkpoints)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainNote:
    """The state of a chain in the head: with what ``definition`` names, enough to continue the chain.

    ``head``         the last block, ``length`` the number of blocks
    ``definition``   names the object with the blocks that still define the chain (``keys.definition``)
    ``system_time``  of the last block, and ``watermark``: RFC 3339
    ``offset``       of the last record, and ``last_slice``, which holds it; None if there is none
    ``checkpoint``   the one of the last data event
    ``types``        types of the common columns in new slices: ``kamu`` or ``spec``
    ``table``        whether the dataset has a table, which is the view of the chain
    ``sources``      kind and value of each source's state, by name
    ``inputs``       of a derivative dataset: block and offset up to which it consumed each input, by the input's id
    ``keyed_by``     columns, ascending: the table has each combination of their values once, from the last record
                     with it. None: unknown, as in heads older than this field
    ``spec``         version of the specification in which blocks are written; None: 0.34, or what the definition needs
    """

    head: str
    length: int
    definition: str
    system_time: str
    offset: int | None = None
    last_slice: str | None = None
    watermark: str | None = None
    checkpoint: str | None = None
    types: str = "kamu"
    table: bool = True
    sources: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    inputs: Mapping[str, tuple[str | None, int | None]] = field(default_factory=dict)
    keyed_by: tuple[str, ...] | None = None
    spec: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the form in the head."""
        return {
            "head": self.head,
            "length": self.length,
            "definition": self.definition,
            "system_time": self.system_time,
            "offset": self.offset,
            "last_slice": self.last_slice,
            "watermark": self.watermark,
            "checkpoint": self.checkpoint,
            "types": self.types,
            "table": self.table,
            "sources": {name: list(state) for name, state in self.sources.items()},
            **({"inputs": {name: list(consumed) for name, consumed in self.inputs.items()}} if self.inputs else {}),
            "keyed_by": self.keyed_by,
            **({"spec": self.spec} if self.spec is not None else {}),
        }

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Self:
        """Read the form in the head. Raises KeyError, TypeError or ValueError if invalid."""
        sources = {str(name): (str(kind), str(value)) for name, (kind, value) in found["sources"].items()}
        inputs = {str(name): (block, offset) for name, (block, offset) in found.get("inputs", {}).items()}
        special = ("sources", "inputs", "keyed_by")
        plain = {name: found[name] for name in cls.__slots__ if name not in special and name in found}
        key = found.get("keyed_by")
        keyed_by = None if key is None else tuple(map(str, key))
        return checked(cls(**plain, sources=sources, inputs=inputs, keyed_by=keyed_by))


@dataclass(frozen=True, slots=True)
class LedgerChange:
    """The part of a change that concerns the chain: the move, and the chain's state after it.

    ``rebuilds``  the table is rebuilt from the chain, whatever another program did to it
    """

    move: ChainMove
    note: ChainNote
    rebuilds: bool = False
