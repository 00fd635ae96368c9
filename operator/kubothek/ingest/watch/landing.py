"""Which objects of a store are files that landed for a source, listed in bounded memory.

A listing holds everything that an upload left behind. Not every object is a file to take:

* nothing below a name that starts with ``.`` or ``_``: markers (``_SUCCESS``), work in progress (``_temporary/``) and
  Kubothek's own side files, as in every tool around Hadoop and Spark;
* no name that ends like an unfinished upload (``UNFINISHED``): writers rename when they are done;
* nothing without bytes: a "directory" of a web console, or a writer that has only just begun. With bytes in it the
  object has another ETag, and is taken then;
* no name that is no key of a store (``store.urls``): nothing could read it.

An S3 upload in parts shows in no listing before it is complete. On a file system a program that writes in place
shows half a file: it has to write to such a name first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from kubothek.errors import InvalidKey
from kubothek.storage import ObjectInfo, Store
from kubothek.storage.urls import check_key

UNFINISHED: Final = (".tmp", ".temp", ".part", ".partial", ".filepart", ".crdownload", "._COPYING_", ".inprogress")
"""Ends of names that are given to files while they are written."""
_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("key", pa.string()),
    pa.field("etag", pa.string()),
    pa.field("size", pa.int64()),
    pa.field("modified", pa.timestamp("us", tz="UTC")),
]
LANDED: Final = pa.schema(_FIELDS)
"""A piece of a listing: ``size`` in bytes, ``modified`` by the store's clock."""

_PIECE: Final = 10_000
_WILD: Final = re.compile(r"\*\*/|\*\*|[*?]")
_REPEATED: Final = re.compile(r"(?:\*\*/){2,}")
_WILD_MEANS: Final = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


@dataclass(frozen=True, slots=True)
class Landed:
    """One version of a file: key and ETag are its identity."""

    key: str
    etag: str
    size: int
    modified: datetime


@dataclass(frozen=True, slots=True)
class Landing:
    """Where files land. ``foreign`` are prefixes that are never looked at: what Kubothek itself writes there."""

    prefix: str
    pattern: re.Pattern[str] | None = None
    foreign: tuple[str, ...] = ()

    @classmethod
    def of(cls, prefix: str = "", glob: str = "", foreign: tuple[str, ...] = ()) -> Landing:
        """All keys that begin with ``prefix``, or that match ``glob``: ``*`` and ``?`` within a name, ``**`` across."""
        if not glob:
            return cls(prefix, None, foreign)
        first = _WILD.search(glob)
        return cls(glob[: first.start()] if first else glob, _translate(glob), foreign)

    def holds(self, info: ObjectInfo) -> bool:
        """Return whether this object of the listing is a file to take."""
        key = info.key
        if not info.size or key.endswith(UNFINISHED) or key.startswith(self.foreign):
            return False
        below = key[self.prefix.rfind("/") + 1 :]
        if below.startswith((".", "_")) or "/." in below or "/_" in below:
            return False
        return (self.pattern is None or self.pattern.fullmatch(key) is not None) and _is_key(key)

    def listed(self, store: Store) -> Iterator[pa.Table]:
        """Yield all files that are there, in the order of their keys (UTF-8), as pieces of ``LANDED``."""
        held = (info for info in store.list(self.prefix) if self.holds(info))
        while piece := list(islice(held, _PIECE)):
            yield pa.table(
                {
                    "key": [info.key for info in piece],
                    "etag": [info.etag for info in piece],
                    "size": [info.size for info in piece],
                    "modified": [info.modified for info in piece],
                },
                schema=LANDED,
            )


def _is_key(key: str) -> bool:
    try:
        check_key(key)
    except InvalidKey:
        return False
    return True


def _translate(glob: str) -> re.Pattern[str]:
    glob = _REPEATED.sub("**/", glob)  # means the same; each more would multiply the time
    parts, at = [], 0
    for wild in _WILD.finditer(glob):
        parts += [re.escape(glob[at : wild.start()]), _WILD_MEANS[wild.group()]]
        at = wild.end()
    return re.compile("".join([*parts, re.escape(glob[at:])]), re.DOTALL)
