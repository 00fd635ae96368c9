"""The state of a plain location: one small index object that names all metadata, replaced by compare-and-swap.

Below ``.kubothek/++plain/<name>/``, ``index.json`` is that object and ``xskipper/`` is Xskipper's directory, without
other files. ``own/`` has entries of index types that Xskipper lacks, ``sidecar/`` has size and ETag of each file.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

import orjson
import pyarrow as pa

from kubothek.errors import InputError, InvalidKey, ObjectNotFound, SkippingUnreadable
from kubothek.external.files import PlainFiles, PlainTable
from kubothek.ingest import CsvOptions
from kubothek.storage import Store
from kubothek.storage.foreign_keys import check_foreign_keys
from kubothek.storage.urls import check_key
from kubothek.table.skipping.model import SkippingState
from kubothek.table.untrusted_parquet import DAMAGED

_ROOT: Final = ".kubothek/++plain/"
_FORMAT: Final = 1


def root(name: str) -> str:
    """Return the prefix of all objects of this name. Raises InputError for an invalid name."""
    if not name or "/" in name or name.startswith("."):
        raise InputError(f"{name!r} is no name of a plain location: no slash, no dot at its beginning")
    return check_key(f"{_ROOT}{name}") + "/"


@dataclass(frozen=True, slots=True)
class PlainPart:
    """Entries of some files: keys of the objects that hold them; ``xskipper`` and ``own`` may be None."""

    sidecar: str
    xskipper: str | None
    own: str | None
    rows: int
    bytes: int

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of all its objects."""
        return tuple(key for key in (self.sidecar, self.xskipper, self.own) if key)


@dataclass(frozen=True, slots=True)
class PlainIndex:
    """The metadata of a location.

    ``url``          of the store of the files
    ``table``        the files, and how to read them
    ``definitions``  of the indices, without parts
    ``parts``        the entries
    ``listed``       number of files in the last listing, of which ``described`` had entries
    """

    url: str
    table: PlainTable
    definitions: SkippingState
    parts: tuple[PlainPart, ...] = ()
    listed: int = 0
    described: int = 0
    left_out: tuple[str, ...] = ()

    def to_json(self) -> bytes:
        """Return the content of the index object."""
        files = self.table.files
        found = {
            "format": _FORMAT,
            "url": self.url,
            "files": {
                "prefix": files.prefix,
                "glob": files.glob,
                "format": files.format,
                "csv": asdict(files.csv),
                "columns": None if files.schema is None else _packed(files.schema),
            },
            "schema": _packed(self.table.schema),
            "partitions": list(self.table.partitions),
            "wish": self.definitions.to_json(),
            "parts": [asdict(part) for part in self.parts],
            "listed": self.listed,
            "described": self.described,
            "left_out": list(self.left_out),
        }
        return orjson.dumps(found, option=orjson.OPT_INDENT_2)

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Return the inverse of :meth:`to_json`. Raises ValueError, KeyError, TypeError for other content."""
        found: dict[str, Any] = orjson.loads(data)
        if found["format"] != _FORMAT:
            raise ValueError(f"format {found['format']}, of a newer Kubothek")
        files = found["files"]
        csv = CsvOptions(**files["csv"] | {"null_values": tuple(files["csv"]["null_values"])})
        columns = files["columns"]
        plain = PlainFiles(
            files["prefix"], files["format"], files["glob"], csv, None if columns is None else _unpacked(columns)
        )
        return cls(
            found["url"],
            PlainTable(plain, _unpacked(found["schema"]), tuple(found["partitions"])),
            SkippingState.from_json(found["wish"]),
            tuple(PlainPart(**part) for part in found["parts"]),
            found["listed"],
            found["described"],
            tuple(found["left_out"]),
        )


@dataclass(frozen=True, slots=True)
class Kept:
    """The metadata of a location with the ETag of its index object; ``index`` None: it does not exist yet."""

    index: PlainIndex | None = None
    etag: str | None = field(default=None, compare=False)


def read(store: Store, name: str) -> Kept:
    """Return the metadata of a name. Raises SkippingUnreadable."""
    key = f"{root(name)}index.json"
    try:
        data, info = store.get_with_info(key)
    except ObjectNotFound:
        return Kept()
    try:
        index = PlainIndex.from_json(data)
        check_foreign_keys([key for part in index.parts for key in part.keys], root(name))
        return Kept(index, info.etag)
    except (AttributeError, InputError, InvalidKey, *DAMAGED) as error:
        raise SkippingUnreadable(
            f"{key} cannot be read: {error}; delete it with `kubothek skipping drop`, then build it again"
        ) from error


def swap(store: Store, name: str, before: Kept, index: PlainIndex) -> None:
    """Replace the index object that was read. Raises PreconditionFailed if another writer replaced it first."""
    key = f"{root(name)}index.json"
    if before.etag is None:
        store.put_if_absent(key, index.to_json())
    else:
        store.put_if_match(key, index.to_json(), before.etag)


def names(store: Store) -> Iterator[str]:
    """Return the names of all plain locations whose metadata is in the store."""
    return (name.rstrip("/") for name in store.list_names(_ROOT) if name.endswith("/"))


def resolved(store: Store, name: str) -> str | None:
    """Return the full name of a location: the given one, or the one with the namespace of its resource in front.

    Raises InputError if several namespaces have it.
    """
    known = list(names(store))
    if name in known:
        return name
    found = [full for full in known if full.partition(".")[2] == name]
    if len(found) > 1:
        raise InputError(f"{name!r} is a plain location in several namespaces: say {' or '.join(found)}")
    return found[0] if found else None


def _packed(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def _unpacked(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
