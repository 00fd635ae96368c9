"""Store entries: a row for each data file, in Xskipper's directory, and in an own one for what Xskipper lacks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import ObjectNotFound
from kubothek.storage import Store
from kubothek.table.skipping import names
from kubothek.table.skipping.entries import KEY, MODIFIED, EntrySchema, complete, definitions_tag
from kubothek.table.skipping.files.encryption import MasterKeys
from kubothek.table.skipping.files.metadata_file import column_keys, own_fields, render, xskipper_fields
from kubothek.table.skipping.files.spark_schema import Field
from kubothek.table.skipping.model import Encryption, Part

_THREADS: Final = 16


def write(
    store: Store,
    uuid: str,
    table: str,
    schema: EntrySchema,
    entries: pa.Table,
    *,
    encryption: Encryption | None = None,
) -> Part:
    """Store entries of a dataset's files under new keys; Kubothek ignores them until a head names the part.

    Real Xskipper reads them at once, which is harmless: an entry is true for its file, referenced or not. Entries that
    lack one of Xskipper's indices are left out, because Xskipper reads null as "no values". Raises SkippingUnreadable
    if a master key is missing.
    """
    entries = entries.filter(complete(schema, entries))
    root = f"{uuid}/{table}"
    identifier = names.table_identifier(names.object_path(store.url, root))
    found = object_names(entries, identifier, root)
    tag = definitions_tag(schema, encryption)
    key, own, size = "", None, 0
    fields = xskipper_fields(schema, identifier, encryption)
    own_columns = own_fields(schema, identifier, encryption)
    has_own = any("index" in field.metadata for field in own_columns)
    if any("index" in field.metadata for field in fields) or not has_own:
        key = names.new_key(names.location(uuid), tag)
        size += _put(store, key, fields, found, entries, root, encryption)
    if has_own:
        own = names.new_key(names.own_location(uuid), tag)
        size += _put(store, own, own_columns, found, entries, root, encryption)
    return Part(key, entries.num_rows, size, own)


def object_names(entries: pa.Table, identifier: str, root: str) -> pa.Array[Any]:
    """Return ``obj_name`` of each entry: Hadoop's path of the file, and its modification time.

    ``identifier``  the path of the directory whose key is ``root``
    """
    keys: Any = entries.column(KEY).combine_chunks()
    paths = pc.binary_join_element_wise(identifier, pc.utf8_slice_codeunits(keys, len(root)), "")
    found: pa.Array[Any] = pc.binary_join_element_wise(
        paths, entries.column(MODIFIED).combine_chunks().cast(pa.string()), "#"
    )
    return found


def modified(store: Store, keys: Iterable[str]) -> dict[str, int]:
    """Return each object's modification time, in whole ms since the epoch as in Spark; absent objects are left out.

    One request a key, many at a time. Only Xskipper needs it; Kubothek's planner does not.
    """

    def one(key: str) -> int | None:
        try:
            moment = store.stat(key).modified
        except ObjectNotFound:
            return None
        return int(moment.timestamp()) * 1000 + moment.microsecond // 1000

    wanted = list(keys)
    with ThreadPoolExecutor(max(1, min(_THREADS, len(wanted)))) as pool:
        found = zip(wanted, pool.map(one, wanted), strict=True)
        return {key: moment for key, moment in found if moment is not None}


def _put(
    store: Store,
    key: str,
    fields: Sequence[Field],
    found: pa.Array[Any],
    entries: pa.Table,
    root: str,
    encryption: Encryption | None,
) -> int:
    sealing = None
    if encryption is not None:
        keys = column_keys(fields, encryption.footer_key)
        sealing = MasterKeys.of(store).sealing(encryption, keys)
    data = render(fields, found, entries, root, sealing)
    store.put(key, memoryview(data))
    return data.size
