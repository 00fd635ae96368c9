"""Many blocks as one archive within a message: gzip over GNU tar, oldest first, each under its hash."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable
from typing import Any, Final, cast

from kubothek.lake.errors import ChainCorrupt, FormatInvalid
from kubothek.lake.exchange.smart.messages import Dialect, Message
from kubothek.lake.ledger.chain import Stored
from kubothek.lake.ledger.formats.blocks import LARGEST
from kubothek.lake.ledger.formats.multihash import Multihash

MOST_BYTES: Final = 1 << 30
"""Of all blocks of a batch together, unpacked."""
_GZIP: Final = b"\x1f\x8b"
_LEVEL: Final = 6


def batch_of(blocks: Iterable[Stored], dialect: Dialect) -> Message:
    """The blocks, oldest first, as they stand in a message."""
    packed, count = io.BytesIO(), 0
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=_LEVEL, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for block in blocks:
            entry = tarfile.TarInfo(str(block.hash))
            entry.size = len(block.data)
            archive.addfile(entry, io.BytesIO(block.data))
            count += 1
    payload = packed.getvalue()
    if dialect is Dialect.SPEC:
        return {
            "objects_count": count,
            "object_type": "MetadataBlock",
            "media_type": "application/tar+gzip",
            "encoding": "base64",
            "payload": b64encode(payload).decode(),
        }
    return {"num_blocks": count, "media_type": "application/tar+gzip", "encoding": "raw", "payload": [*payload]}


def blocks_of(batch: Any, most_bytes: int = MOST_BYTES) -> list[Stored]:
    """The blocks, oldest first, each with the bytes that its name says.

    Raises FormatInvalid for what is no such archive, or unpacks to too much; ChainCorrupt for a block under another
    block's name.
    """
    found: list[Stored] = []
    left = most_bytes
    try:
        count = batch["objects_count"] if "objects_count" in batch else batch["num_blocks"]
        payload = _payload(batch["payload"])
        source: Any = io.BytesIO(payload)
        if payload.startswith(_GZIP):
            source = gzip.GzipFile(fileobj=source)
        with tarfile.open(fileobj=cast("Any", _Limited(source, 2 * most_bytes)), mode="r|") as archive:
            for entry in archive:
                left -= entry.size
                if not entry.isreg() or entry.size > LARGEST or left < 0:
                    raise FormatInvalid(f"{entry.name[:100]!r} in an archive of blocks is no file, or too large")
                file = archive.extractfile(entry)
                assert file is not None, "it is a file"
                found.append(_block(entry.name, file.read()))
    except (KeyError, TypeError, ValueError, EOFError, OSError, tarfile.TarError, zlib.error, Base64Error) as error:
        raise FormatInvalid(f"no archive of blocks: {error!r}") from None
    if count != len(found):
        raise FormatInvalid(f"an archive of {len(found)} blocks is said to have {count!r}")
    return found


def _block(name: str, data: bytes) -> Stored:
    named = Multihash.parse(name.removeprefix("./"))
    if Multihash.sha3(data) != named:
        raise ChainCorrupt(f"the bytes of block {named} in an archive are not those that the hash names")
    return Stored(named, data)


def _payload(found: Any) -> bytes:
    if isinstance(found, str):
        return b64decode(found, validate=True)
    if not isinstance(found, list):  # of a number, bytes() would make as many zeros
        raise FormatInvalid("the payload of an archive is neither a text nor a list of bytes")
    return bytes(found)


class _Limited:
    """A stream that gives only so much: a few bytes of gzip can be gigabytes of nothing."""

    def __init__(self, source: Any, most: int) -> None:
        self._source = source
        self._left = most

    def read(self, size: int) -> bytes:
        data: bytes = self._source.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise FormatInvalid("an archive of blocks unpacks to too much")
        return data
