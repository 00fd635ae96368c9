"""Batch of blocks in a message: a gzipped GNU tar, oldest first, each block under its hash."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from typing import Any, Final

from kubothek.errors import ChainCorrupt, FormatInvalid
from kubothek.odf.chain import Stored
from kubothek.odf.spec.blocks import LARGEST
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.sync.smart.messages import Dialect, Message

MOST_BYTES: Final = 1 << 30
"""Largest unpacked size of all blocks of a batch."""
_SMALL: Final = 64 << 20
_RATIO: Final = 100
"""Largest compression ratio of an archive that unpacks to more than ``_SMALL``: hashes do not compress."""
_UNIT: Final = 512
_GZIP: Final = b"\x1f\x8b"
_LEVEL: Final = 6


def batch_of(blocks: Iterable[Stored], dialect: Dialect) -> Message:
    """Return the blocks, given oldest first, in the form for a message."""
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
    """Return the blocks, oldest first; the bytes of each match its name.

    Raises FormatInvalid for an invalid archive, or one that unpacks to too much; ChainCorrupt for a block with another
    hash than its name.
    """
    found: dict[Multihash, Stored] = {}
    try:
        count = batch["objects_count"] if "objects_count" in batch else batch["num_blocks"]
        payload = _payload(batch["payload"])
        source: Any = io.BytesIO(payload)
        if payload.startswith(_GZIP):
            source = gzip.GzipFile(fileobj=source)
        most = min(most_bytes, max(_SMALL, _RATIO * len(payload)))
        for name, data in _entries(_Limited(source, most)):
            block = _block(name, data)
            if len(found) == count or block.hash in found:
                raise FormatInvalid(f"block {block.hash} comes twice in an archive, or beyond the {count!r} announced")
            found[block.hash] = block
    except (KeyError, TypeError, ValueError, EOFError, OSError, zlib.error) as error:
        raise FormatInvalid(f"no archive of blocks: {error!r}") from None
    if count != len(found):
        raise FormatInvalid(f"an archive of {len(found)} blocks is said to have {count!r}")
    return [*found.values()]


def _entries(archive: _Limited) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a tar archive (POSIX.1-1988, GNU): names and contents. Only plain files are allowed.

    The standard library's reader also accepts links, sparse files and unlimited extension headers.
    """
    while (header := archive.exactly(_UNIT)).strip(b"\0"):
        size_text, check_text = header[124:136].strip(b" \0"), header[148:156].strip(b" \0")
        if int(check_text, 8) != sum(header[:148]) + sum(header[156:]) + 8 * ord(" "):
            raise FormatInvalid("a header of an archive of blocks is damaged")
        name, size = header[:100].rstrip(b"\0").decode("ascii"), int(size_text, 8)
        if header[156:157] not in (b"0", b"\0") or not 0 <= size <= LARGEST:
            raise FormatInvalid(f"{name!r} in an archive of blocks is no file, or too large")
        yield name, archive.exactly(size)
        archive.exactly(-size % _UNIT)


def _block(name: str, data: bytes) -> Stored:
    named = Multihash.parse(name.removeprefix("./"))
    if Multihash.sha3(data) != named:
        raise ChainCorrupt(f"the bytes of block {named} in an archive are not those that the hash names")
    return Stored(named, data)


def _payload(found: Any) -> bytes:
    if isinstance(found, str):
        return b64decode(found, validate=True)
    if not isinstance(found, list):  # bytes(number) would create that many zeros
        raise FormatInvalid("the payload of an archive is neither a text nor a list of bytes")
    return bytes(found)


class _Limited:
    """A stream with a size limit: a few bytes of gzip can unpack to gigabytes."""

    def __init__(self, source: Any, most: int) -> None:
        self._source = source
        self._left = most

    def exactly(self, size: int) -> bytes:
        """Return the next ``size`` bytes. Raises FormatInvalid beyond the limit, EOFError if there are fewer."""
        self._left -= size
        if self._left < 0:
            raise FormatInvalid("an archive of blocks unpacks to too much")
        data: bytes = self._source.read(size)
        if len(data) < size:
            raise EOFError("it is cut off")
        return data
