"""Read metadata: a part of Kubothek by its columns, or a whole directory of any writer."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute

from kubothek.errors import ObjectNotFound, SkippingUnreadable
from kubothek.storage import Store
from kubothek.table.skipping.entries import KEY, MODIFIED
from kubothek.table.skipping.files.encryption import MasterKeys
from kubothek.table.skipping.files.read_file import MetadataFile
from kubothek.table.skipping.model import IndexDefinition, Part
from kubothek.table.skipping.names import OBJ_NAME, VIRTUAL

pc: Final[Any] = pyarrow.compute
"""The stubs do not know that texts can be joined with scalars."""
PATH: Final = "path"
_THREADS: Final = 16
_READ_AT_ONCE_BYTES: Final = 1 << 20
_HIDDEN: Final = ("_", ".")


# --- Kubothek's own parts --------------------------------------------------------------------------------------------


def load(store: Store, part: Part, *, columns: Collection[IndexDefinition] | None = None) -> pa.Table:
    """Return the entries of a part, in the form of :mod:`..entries`; row order does not depend on ``columns``.

    ``columns``  indices to read; None: all, and the partition columns. An index that the part lacks is left out

    Raises SkippingUnreadable, naming the object, if it is missing, damaged or encrypted with unavailable keys.
    """
    keys = MasterKeys.of(store)
    wanted = None if columns is None else {each.column for each in columns}
    found: pa.Table | None = None
    for key in reversed(part.keys):  # the own file first: it has the exact form of what is in both
        file = MetadataFile(_source(store, key, part.bytes), key, keys)
        if file.schema.root is None:
            raise SkippingUnreadable(f"{key}: not written by Kubothek; rebuild the skipping metadata")
        present = {n: d.column for n, d in file.schema.definitions.items() if wanted is None or d.column in wanted}
        have = () if found is None else found.column_names
        missing = [n for n, column in present.items() if column not in have]
        virtual = [n for n in file.schema.virtual if wanted is None and n not in have]
        if found is not None and not missing and not virtual:
            continue
        table = file.read([*missing, *virtual])
        if found is None:
            found = _keyed(table, file.schema.identifier, file.schema.root)
        elif table.num_rows != found.num_rows:
            raise SkippingUnreadable(f"{key}: not of the same files as {part.own}; rebuild the skipping metadata")
        for name in table.column_names[1:]:
            found = found.append_column(name, table.column(name)) if name not in found.column_names else found
    assert found is not None, "a part has an object"
    return found


def _keyed(table: pa.Table, identifier: str, root: str) -> pa.Table:
    """Return the table with the data files' keys, relative to the store wherever it was at the time, and times."""
    paths, moments = split_names(table.column(OBJ_NAME).combine_chunks())
    keys = pc.binary_join_element_wise(root, pc.utf8_slice_codeunits(paths, len(identifier)), "")
    columns = [keys, moments, *(table.column(name) for name in table.column_names[1:])]
    return pa.Table.from_arrays(columns, [KEY, MODIFIED, *table.column_names[1:]])


def split_names(names: pa.Array[Any]) -> tuple[pa.Array[Any], pa.Array[Any]]:
    """Return the paths and times in ms of ``obj_name`` values; the time follows the last ``#``, 0 if there is none."""
    found: Any = pc.extract_regex(names, "(?s)^(?P<path>.*)#(?P<moment>[0-9]{1,18})$")
    paths, moments = pc.struct_field(found, ["path"]), pc.struct_field(found, ["moment"])
    return pc.coalesce(paths, names), pc.fill_null(moments.cast(pa.int64()), 0)


# --- a directory of any writer ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Metadata:
    """All metadata of one directory.

    ``version``      of the specification, the oldest in the files
    ``definitions``  indices, in the order of their columns; entries are null where a file lacks the index
    ``rows``         ``obj_name``, ``path``, ``modified`` (ms), ``virtual_…``, then indices. Each ``obj_name`` occurs
                     once, so that path and time identify the entry of a file
    """

    version: int
    identifier: str
    definitions: tuple[IndexDefinition, ...]
    rows: pa.Table


def load_location(store: Store, prefix: str) -> Metadata:
    """Return the metadata in a directory of a store (``prefix`` ends with ``/``), of any writer and version.

    Entries of older versions get the names and parameters of version 4; they have no partition columns. Raises
    SkippingUnreadable if there is none, or one of an unsupported version.
    """
    names = [name for name in store.list_names(prefix) if not name.startswith(_HIDDEN) and not name.endswith("/")]
    found = [prefix + name for name in names if name.endswith(".parquet")]
    if not found:
        raise SkippingUnreadable(f"{store.url}/{prefix} has no metadata: it has no .parquet file")
    keys = MasterKeys.of(store)
    with ThreadPoolExecutor(min(_THREADS, len(found))) as pool:
        files = list(pool.map(lambda key: MetadataFile(_source(store, key), key, keys), found))
    definitions: dict[str, IndexDefinition] = {}
    for file in files:
        definitions |= {each.column: each for each in file.schema.definitions.values()}
    tables = [file.read([*file.schema.definitions, *file.schema.virtual]) for file in files]
    try:
        rows = distinct(pa.concat_tables(tables, promote_options="permissive"), OBJ_NAME)
    except pa.ArrowException as error:
        raise SkippingUnreadable(f"{prefix}: columns have other types in other files: {error}") from error
    paths, moments = split_names(rows.column(OBJ_NAME).combine_chunks())
    virtual = [name for name in rows.column_names if name.startswith(VIRTUAL)]
    names = [OBJ_NAME, PATH, MODIFIED, *virtual, *definitions]
    columns: dict[str, Any] = {PATH: paths, MODIFIED: moments}
    rows = pa.Table.from_arrays([columns[n] if n in columns else rows.column(n) for n in names], names)
    version = min(file.schema.version for file in files)
    identifier = next((file.schema.identifier for file in files if file.schema.identifier), "")
    return Metadata(version, identifier, tuple(definitions.values()), rows)


def distinct(table: pa.Table, name: str) -> pa.Table:
    """Return the table with each value of a column once: its last row."""
    column = table.column(name)
    if pc.count_distinct(column).as_py() == table.num_rows:
        return table
    numbered = pa.Table.from_arrays([column, pa.array(np.arange(table.num_rows))], ["value", "row"])
    last = numbered.group_by("value").aggregate([("row", "max")]).column("row_max")
    return table.take(last.combine_chunks().sort())


def current(metadata: Metadata, files: Iterable[tuple[str, int]]) -> pa.Array[Any]:
    """Return for each file, by path and modification time in ms, the number of its row; null for a file without one.

    An entry of another time is stale and does not count.
    """
    wanted = pa.array([f"{path}#{moment}" for path, moment in files], pa.string())
    found: pa.Array[Any] = pc.index_in(wanted, metadata.rows.column(OBJ_NAME).combine_chunks())
    return found


def _source(store: Store, key: str, size: int = 0) -> pa.NativeFile:
    """Return the object; a large one is opened, so that only the requested columns are fetched."""
    try:
        if size > _READ_AT_ONCE_BYTES:
            return pa.PythonFile(store.open(key), mode="r")
        return pa.BufferReader(store.get(key))
    except ObjectNotFound as error:
        raise SkippingUnreadable(f"{key}: the skipping metadata no longer exists; rebuild it") from error
