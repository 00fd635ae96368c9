"""The keys of a chain's objects, relative to its root: the layout of the simple transfer protocol (LY-02)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kubothek.errors import FormatInvalid, InputError
from kubothek.odf.spec.multihash import Codec, Multihash

HEAD_BYTES: Final = 69
"""The size of ``refs/head``: ``f1620``, 64 hexadecimal digits, no newline."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The keys of one dataset; ``root`` is empty or ends with ``/``."""

    root: str = ""

    def __post_init__(self) -> None:
        if self.root and not self.root.endswith("/"):
            raise InputError(f"the root of a chain, {self.root!r}, must be empty or end with '/'")

    @property
    def head(self) -> str:
        """The key of the reference to the last block."""
        return f"{self.root}refs/head"

    @property
    def blocks(self) -> str:
        """The directory of blocks."""
        return f"{self.root}blocks/"

    def block(self, block: Multihash) -> str:
        """Return the key of a block."""
        return f"{self.blocks}{block}"

    @property
    def slices(self) -> str:
        """The directory of slices."""
        return f"{self.root}data/"

    @property
    def checkpoints(self) -> str:
        """The directory of checkpoints."""
        return f"{self.root}checkpoints/"

    @property
    def missing_links(self) -> str:
        """The key of the list of linked objects that the chain's source lacked; not part of any protocol."""
        return f"{self.root}info/missing-links"

    def data(self, physical: Multihash) -> str:
        """Return the key of a slice."""
        return f"{self.slices}{physical}"

    def checkpoint(self, physical: Multihash) -> str:
        """Return the key of a checkpoint."""
        return f"{self.checkpoints}{physical}"


def head_bytes(block: Multihash) -> bytes:
    """Return the content of ``refs/head``."""
    return str(block).encode()


def parse_head(data: bytes) -> Multihash:
    """Return the block that ``refs/head`` names, in any final base (HS-05). Raises FormatInvalid.

    Base16 must be all in one case, as it is written, so that every changed byte is found.
    """
    if len(data) > 2 * HEAD_BYTES:
        raise FormatInvalid(f"refs/head has {len(data)} bytes; a block's hash has {HEAD_BYTES}")
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError:
        raise FormatInvalid(f"refs/head is no text: {data!r}") from None
    if text != text.strip():
        raise FormatInvalid("refs/head has white space around the hash; not even a newline may follow it")
    found = Multihash.parse(text)
    if found.codec != Codec.SHA3_256:
        raise FormatInvalid(f"refs/head names a block by {found.codec.name}, not by SHA3-256")
    if text[0] in "fF" and text not in (str(found), str(found).upper()):
        raise FormatInvalid(f"refs/head mixes cases: {text}")
    return found
