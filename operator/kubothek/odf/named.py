"""The objects that blocks name: slices and checkpoints, by the hash of their bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kubothek.errors import ChainCorrupt, FormatInvalid
from kubothek.odf.chain import Stored
from kubothek.odf.spec.events import AddData, ExecuteTransform
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.multihash import Codec, Multihash
from kubothek.words import count

KEPT: Final = 100
"""The most missing objects that the result of a job names."""


class Kind(StrEnum):
    """The kind of an object; the value is its directory in the layout (LY-02)."""

    DATA = "data"
    CHECKPOINT = "checkpoints"


@dataclass(frozen=True, slots=True)
class Named:
    """An object of a chain. ``size`` in bytes, as its block says; ``hash`` is that of all its bytes."""

    kind: Kind
    hash: Multihash
    size: int

    def key(self, layout: Layout) -> str:
        """Return the key of the object."""
        return layout.data(self.hash) if self.kind is Kind.DATA else layout.checkpoint(self.hash)

    def __str__(self) -> str:
        return f"{self.kind.value}/{self.hash}"


def named_by(blocks: Iterable[Stored]) -> list[Named]:
    """Return the objects that the blocks name, each once, in their order.

    Raises ChainCorrupt for a block that cannot be read, or that names an object by anything but SHA3-256 (HS-01).
    """
    found: dict[tuple[Kind, Multihash], Named] = {}
    for stored in blocks:
        try:
            event = stored.decode().content.event
        except FormatInvalid as error:
            raise ChainCorrupt(f"block {stored.hash}: {error}") from error
        if not isinstance(event, AddData | ExecuteTransform):
            continue
        for kind, each in ((Kind.DATA, event.new_data), (Kind.CHECKPOINT, event.new_checkpoint)):
            if each is None:
                continue
            if each.physical_hash.codec != Codec.SHA3_256:
                raise ChainCorrupt(f"block {stored.hash} names {kind.value} by {each.physical_hash.codec.name}")
            found.setdefault((kind, each.physical_hash), Named(kind, each.physical_hash, each.size))
    return [*found.values()]


def fetched_text(objects: int, verb: str = "fetched") -> str:
    """Return a part of a message about a transfer without new blocks: linked objects that were lacking before."""
    were = "was" if objects == 1 else "were"
    return f"; {count(objects, 'linked object')} {verb} that {were} missing" if objects else ""


def missing_text(missing: Sequence[Multihash | str]) -> str:
    """Return the end of a message about a transfer: which linked objects (RFC-017) its source lacks."""
    if not missing:
        return ""
    least = "at least " if len(missing) == KEPT else ""
    return f"; the source lacks {least}{count(len(missing), 'linked object')}, such as data/{missing[0]}"
