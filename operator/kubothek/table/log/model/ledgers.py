"""What commits know of a ledger: how one moves its chain, and what the head says of it. Plain data.

The chain itself is the business of :mod:`kubothek.odf`. Here a block is a text, its hash, and the rules are
two: a commit that moves the chain goes on from where the chain is, and rows change with the chain only
(commit-protocol, "Ledgers").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from kubothek.table.checked_types import checked
from kubothek.table.log.model import keys


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainMove:
    """What a commit brings to the chain, by hashes.

    ``base``         the last block before it; None if there was no chain
    ``head``         the last block after it; that of before, if only the table is made anew from the chain
    ``blocks``       that it wrote, oldest first
    ``data``         the slices and ``checkpoints`` that these name and that it wrote
    """

    base: str | None
    head: str
    blocks: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    checkpoints: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As it stands in records."""
        return {
            "base": self.base,
            "head": self.head,
            "blocks": self.blocks,
            "data": self.data,
            "checkpoints": self.checkpoints,
        }

    @classmethod
    def of_json(cls, found: Mapping[str, Any] | None) -> Self | None:
        """Of a record, which may be of a time before there were ledgers. Raises KeyError, TypeError."""
        if found is None:
            return None
        lists = {name: tuple(map(str, found[name])) for name in ("blocks", "data", "checkpoints")}
        return cls(base=found["base"], head=found["head"], **lists)

    def keys(self, uuid: str) -> Iterator[str]:
        """Of the objects that it names."""
        yield from (keys.block(uuid, block) for block in self.blocks)
        yield from (keys.data_slice(uuid, physical) for physical in self.data)
        yield from (keys.engine_state(uuid, physical) for physical in self.checkpoints)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainNote:
    """Where the chain stands, as the head says: enough to go on from there, with what ``definition`` names.

    ``head``         the last block, ``length`` the number of blocks
    ``definition``   names the object with the blocks that still define the chain (``keys.definition``)
    ``system_time``  of the last block, and ``watermark``: RFC 3339
    ``offset``       of the last record, and ``last_slice``, which holds it; None if there is none
    ``checkpoint``   that the last data event left
    ``types``        which types the common columns of new slices have: ``kamu`` or ``spec``
    ``table``        whether the dataset has a table, which is the view of the chain
    ``sources``      kind and value of each source's state, by name
    ``inputs``       of a derivative dataset: block and offset up to which each input was consumed, by its id
    ``keyed_by``     columns, ascending, of which the table has each value once, in the last record that has it; None:
                     not known, as in heads that were written before there was this
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

    def to_json(self) -> dict[str, Any]:
        """As it stands in the head."""
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
        }

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError or ValueError if it is none."""
        sources = {str(name): (str(kind), str(value)) for name, (kind, value) in found["sources"].items()}
        inputs = {str(name): (block, offset) for name, (block, offset) in found.get("inputs", {}).items()}
        special = ("sources", "inputs", "keyed_by")
        plain = {name: found[name] for name in cls.__slots__ if name not in special and name in found}
        key = found.get("keyed_by")
        keyed_by = None if key is None else tuple(map(str, key))
        return checked(cls(**plain, sources=sources, inputs=inputs, keyed_by=keyed_by))


@dataclass(frozen=True, slots=True)
class LedgerChange:
    """The part of a change that concerns the chain: the move, and what the head says after it.

    ``rebuilds``  the table is made anew from the chain, whatever another program has made of it
    """

    move: ChainMove
    note: ChainNote
    rebuilds: bool = False
