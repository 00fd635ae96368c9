"""Where the objects of a chain are, relative to its root: the layout of the simple transfer protocol (LY-02)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kubothek.errors import FormatInvalid, InputError
from kubothek.odf.spec.multihash import Codec, Multihash

HEAD_BYTES: Final = 69
"""Of ``refs/head``: ``f1620``, 64 hexadecimal digits, no newline."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The keys of one dataset; ``root`` is empty or ends with ``/``."""

    root: str = ""

    def __post_init__(self) -> None:
        if self.root and not self.root.endswith("/"):
            raise InputError(f"the root of a chain, {self.root!r}, must be empty or end with '/'")

    @property
    def head(self) -> str:
        """What names the last block."""
        return f"{self.root}refs/head"

    @property
    def blocks(self) -> str:
        """The directory of blocks."""
        return f"{self.root}blocks/"

    def block(self, block: Multihash) -> str:
        """A block."""
        return f"{self.blocks}{block}"

    @property
    def slices(self) -> str:
        """The directory of slices."""
        return f"{self.root}data/"

    @property
    def checkpoints(self) -> str:
        """The directory of checkpoints."""
        return f"{self.root}checkpoints/"

    def data(self, physical: Multihash) -> str:
        """A slice."""
        return f"{self.slices}{physical}"

    def checkpoint(self, physical: Multihash) -> str:
        """A checkpoint."""
        return f"{self.checkpoints}{physical}"


def head_bytes(block: Multihash) -> bytes:
    """What ``refs/head`` holds."""
    return str(block).encode()


def parse_head(data: bytes) -> Multihash:
    """The block that ``refs/head`` names, in any final base (HS-05). Raises FormatInvalid.

    Base16 must be as it is written, all in one case: every changed byte shows.
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
