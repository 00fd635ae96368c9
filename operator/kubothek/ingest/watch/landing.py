"""Selection of the objects of a store that are landed files of a source, listed in bounded memory.

A listing contains everything that uploads left behind. These objects are no files to ingest:

* those below a name that starts with ``.`` or ``_``: markers (``_SUCCESS``), work in progress (``_temporary/``) and
  Kubothek's own side files, as in all tools of Hadoop and Spark;
* names with the ending of an unfinished upload (``UNFINISHED``): writers rename complete files;
* empty objects: a "directory" of a web console, or a file that is just being written. With content, the object
  has another ETag and is ingested then;
* names that are not valid keys of a store (:mod:`kubothek.storage.urls`), which cannot be read.

A multipart upload to S3 is not listed before it is complete. On a file system, a program that writes in place shows
half a file: it must write to a name with such an ending first.
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
"""Endings of names that files have while they are written."""
_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("key", pa.string()),
    pa.field("etag", pa.string()),
    pa.field("size", pa.int64()),
    pa.field("modified", pa.timestamp("us", tz="UTC")),
]
LANDED: Final = pa.schema(_FIELDS)
"""Schema of a piece of a listing: ``size`` in bytes, ``modified`` by the store's clock."""

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
    """The place where files land. ``foreign``: excluded prefixes, under which Kubothek itself writes."""

    prefix: str
    pattern: re.Pattern[str] | None = None
    foreign: tuple[str, ...] = ()

    @classmethod
    def of(cls, prefix: str = "", glob: str = "", foreign: tuple[str, ...] = ()) -> Landing:
        """Return a landing of keys with ``prefix``, or matching ``glob``: ``*``, ``?`` within a name, ``**`` across."""
        if not glob:
            return cls(prefix, None, foreign)
        first = _WILD.search(glob)
        return cls(glob[: first.start()] if first else glob, _translate(glob), foreign)

    def holds(self, info: ObjectInfo) -> bool:
        """Return whether this object of the listing is a file to ingest."""
        key = info.key
        if not info.size or key.endswith(UNFINISHED) or key.startswith(self.foreign):
            return False
        below = key[self.prefix.rfind("/") + 1 :]
        if below.startswith((".", "_")) or "/." in below or "/_" in below:
            return False
        return (self.pattern is None or self.pattern.fullmatch(key) is not None) and _is_key(key)

    def listed(self, store: Store) -> Iterator[pa.Table]:
        """Yield all landed files, in the order of their keys (UTF-8), as pieces of ``LANDED``."""
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
    glob = _REPEATED.sub("**/", glob)  # equivalent; each repetition would multiply the time
    parts, at = [], 0
    for wild in _WILD.finditer(glob):
        parts += [re.escape(glob[at : wild.start()]), _WILD_MEANS[wild.group()]]
        at = wild.end()
    return re.compile("".join([*parts, re.escape(glob[at:])]), re.DOTALL)
