"""Store the entries of plain files, with size and ETag of each file in a separate object."""

from __future__ import annotations

import io
from collections.abc import Collection
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.errors import ObjectNotFound, SkippingUnreadable
from kubothek.external.state import PlainPart, root
from kubothek.storage import Store
from kubothek.table.skipping import names
from kubothek.table.skipping.entries import KEY, MODIFIED, EntrySchema
from kubothek.table.skipping.files.encryption import MasterKeys
from kubothek.table.skipping.files.metadata_file import column_keys, own_fields, render, xskipper_fields
from kubothek.table.skipping.files.reading import load
from kubothek.table.skipping.files.spark_schema import Field
from kubothek.table.skipping.files.writing import object_names
from kubothek.table.skipping.model import Encryption, IndexDefinition, Part

SIZE: Final = "size"
ETAG: Final = "etag"
_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field(KEY, pa.string()),
    pa.field(MODIFIED, pa.int64()),
    pa.field(SIZE, pa.int64()),
    pa.field(ETAG, pa.string()),
]
VERSIONS: Final = pa.schema(_FIELDS)
"""The versions of the described files: ``modified`` in ms since the epoch, ``size`` in bytes."""


def location(name: str) -> str:
    """Return Xskipper's directory of a location: an ``EXPLICIT_LOCATION``."""
    return f"{root(name)}xskipper/"


def write(
    store: Store,
    name: str,
    identifier: str,
    prefix: str,
    schema: EntrySchema,
    entries: pa.Table,
    versions: pa.Table,
    encryption: Encryption | None = None,
) -> PlainPart:
    """Store entries, and the versions of the files in the same order, under new keys.

    ``identifier``  Xskipper's identifier of the location, whose key is ``prefix``

    Raises SkippingUnreadable if a master key is missing.
    """
    where, label = root(name), uuid4().hex
    found = object_names(entries, identifier, prefix)
    size = 0

    def put(fields: list[Field], directory: str) -> str | None:
        nonlocal size
        if not any("index" in field.metadata for field in fields):
            return None
        sealing = None
        if encryption is not None:
            sealing = MasterKeys.of(store).sealing(encryption, column_keys(fields, encryption.footer_key))
        data = render(fields, found, entries, prefix, sealing)
        key = f"{where}{directory}/part-{label}.parquet"
        store.put(key, memoryview(data))
        size += data.size
        return key

    xskipper = put(xskipper_fields(schema, identifier, encryption), "xskipper")
    own = put(own_fields(schema, identifier, encryption), "own")
    sidecar = f"{where}sidecar/part-{label}.parquet"
    sink = io.BytesIO()
    pq.write_table(versions.select(VERSIONS.names), sink, compression="zstd")
    store.put(sidecar, sink.getbuffer())
    return PlainPart(sidecar, xskipper, own, entries.num_rows, size + len(sink.getbuffer()))


def as_part(part: PlainPart) -> Part:
    """Return the part in the form of a dataset's part, to read its entries."""
    return Part(part.xskipper or "", part.rows, part.bytes, part.own)


def versions_of(store: Store, part: PlainPart) -> pa.Table:
    """Return the file versions that the part describes, in the order of its entries. Raises SkippingUnreadable."""
    try:
        table: pa.Table = pq.read_table(io.BytesIO(store.get(part.sidecar)), schema=VERSIONS)
    except ObjectNotFound as error:
        raise SkippingUnreadable(f"{part.sidecar} no longer exists: refresh the metadata") from error
    except (pa.ArrowException, OSError) as error:
        raise SkippingUnreadable(f"{part.sidecar}: {error}") from error
    if table.num_rows != part.rows:
        raise SkippingUnreadable(f"{part.sidecar} has {table.num_rows} rows, not {part.rows}: refresh the metadata")
    return table


def entries_of(store: Store, part: PlainPart, definitions: Collection[IndexDefinition] | None = None) -> pa.Table:
    """Return the entries of a part. Raises SkippingUnreadable."""
    return load(store, as_part(part), columns=definitions)


def identifier_of(url: str, prefix: str) -> str:
    """Return Xskipper's identifier of the directory of this key in the store of this URL."""
    return names.table_identifier(names.object_path(url, prefix))
