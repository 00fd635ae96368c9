"""One Parquet file of metadata: its columns, and how entries are written (Xskipper's Metadatastore Spec).

Index columns are in the order of the definitions, after ``obj_name`` and the partition columns: Xskipper's refresh goes
by position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.table.skipping.bloom.index_type import BloomFilter, BloomParams
from kubothek.table.skipping.entries import EntrySchema
from kubothek.table.skipping.files import spark_schema
from kubothek.table.skipping.files.spark_schema import BLOOM_UDT, ROW_METADATA, SPARK_VERSION, Field
from kubothek.table.skipping.indexes import index_type
from kubothek.table.skipping.model import Encryption, IndexDefinition
from kubothek.table.skipping.names import OBJ_NAME, VIRTUAL

SPARK: Final = "4.0.0"
"""Tells Spark that dates and times use the modern calendar."""
OURS: Final = b"kubothek.skipping"
"""Footer key of files that Kubothek wrote, with the key of the root of the data files; Spark removes it."""
_UTC: Final = pa.timestamp("us", "UTC")
_NAIVE: Final = pa.timestamp("us")
_DAY: Final = 86_400_000_000
_STORED: Final[dict[pa.DataType, pa.DataType]] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}


# --- the columns -------------------------------------------------------------------------------------------------


def xskipper_fields(schema: EntrySchema, identifier: str, encryption: Encryption | None = None) -> list[Field]:
    """Return the columns of a file in Xskipper's directory; ``identifier``: that of the table.

    See Xskipper's Metadatastore Spec, "Version 0", ``obj_name``.
    """
    found = _common(schema, {"tableIdentifier": identifier, "version": spark_schema.VERSION})
    for definition, field in zip(schema.definitions, schema.indices, strict=True):
        if (kind := xskipper_type(definition, field.type)) is not None:
            is_bloom = isinstance(index_type(definition.type), BloomFilter)
            metadata = {"index": _index_metadata(definition)}
            found.append(Field(definition.column, kind, metadata, BLOOM_UDT if is_bloom else None))
    return _sealed(found, encryption)


def own_fields(schema: EntrySchema, identifier: str, encryption: Encryption | None = None) -> list[Field]:
    """Return the columns of the file for Kubothek only: those without an exact form in Xskipper."""
    found = _common(schema, {"tableIdentifier": identifier, "version": spark_schema.VERSION})
    for definition, field in zip(schema.definitions, schema.indices, strict=True):
        if _is_own(definition, field.type):
            found.append(Field(definition.column, field.type, {"index": _index_metadata(definition)}))
    return _sealed(found, encryption)


def pause_fields(schema: EntrySchema) -> list[Field]:
    """Return the columns of a sentinel file, which makes Xskipper skip nothing: it has no table and no indices."""
    return _common(schema, {"version": spark_schema.VERSION})


def xskipper_type(definition: IndexDefinition, entry_type: Any) -> pa.DataType | None:
    """Return the type of an index's column for Xskipper; None if Xskipper has no such index.

    Xskipper's timestamps cannot represent a time without zone: Spark since 3.4 compares it in the session's zone, older
    versions in UTC. Its bounds are therefore a day wider, which covers all zones, and it has no value lists. The exact
    values are in Kubothek's own file.
    """
    kind = index_type(definition.type)
    if not kind.foreign:
        return None
    if pa.types.is_struct(entry_type):
        value = _spark_form(entry_type.field(0).type)
        return pa.struct([("min", value), ("max", value)])
    if pa.types.is_list(entry_type):
        value = entry_type.value_type
        return None if value == _NAIVE else pa.list_(pa.field("element", _spark_form(value)))
    return entry_type if pa.types.is_binary(entry_type) else None


def _is_own(definition: IndexDefinition, entry_type: Any) -> bool:
    values = [entry_type.field(0).type] if pa.types.is_struct(entry_type) else []
    return _NAIVE in values or xskipper_type(definition, entry_type) is None


def _spark_form(value_type: pa.DataType) -> pa.DataType:
    return _UTC if value_type == _NAIVE else _STORED.get(value_type, value_type)


def _common(schema: EntrySchema, master: Mapping[str, Any]) -> list[Field]:
    partitions = [Field(VIRTUAL + name, data_type, {}) for name, data_type in schema.partitions.items()]
    return [Field(OBJ_NAME, pa.string(), master), *partitions]


def _index_metadata(definition: IndexDefinition) -> dict[str, Any]:
    found: dict[str, Any] = {"name": definition.name}
    params = dict(definition.params)
    if isinstance(index_type(definition.type), BloomFilter):
        params = BloomParams.of(definition).to_xskipper()
    if params:
        found["params"] = params
    found["cols"] = [column.lower() for column in definition.columns]
    if definition.key is not None:
        found["key_metadata"] = definition.key
    return found


# --- encryption ------------------------------------------------------------------------------------------------------


def column_keys(fields: Sequence[Field], footer_key: str) -> dict[str, list[str]]:
    """Return the leaves of the Parquet file by the label of their key; leaves outside indices have the footer's."""
    found: dict[str, list[str]] = {}
    for field in fields:
        index = field.metadata.get("index", {})
        if (label := index.get("key_metadata") if index else footer_key) is not None:
            found.setdefault(label, []).extend(_leaves(field.name, field.type))
    return found


def encryption_metadata(fields: Sequence[Field], encryption: Encryption) -> dict[str, str]:
    """Return what Xskipper needs to encrypt alike (specification, version 1): labels, never a key."""
    listed = column_keys(fields, encryption.footer_key).items()
    text = ";".join(f"{label}:{','.join(leaves)}" for label, leaves in listed)
    found = {"encryption.column.keys": text, "encryption.footer.key": encryption.footer_key}
    if encryption.plaintext_footer:
        found["encryption.plaintext.footer"] = "true"
    return found


def _sealed(fields: list[Field], encryption: Encryption | None) -> list[Field]:
    """Return the fields with the encryption metadata that readers need."""
    if encryption is None:
        return fields
    master = {**fields[0].metadata, "encryption": encryption_metadata(fields, encryption)}
    return [Field(OBJ_NAME, pa.string(), master), *fields[1:]]


def _leaves(path: str, data_type: Any) -> list[str]:
    if pa.types.is_struct(data_type):
        return [leaf for field in data_type for leaf in _leaves(f"{path}.{field.name}", field.type)]
    if pa.types.is_list(data_type):
        return _leaves(f"{path}.list.element", data_type.value_type)
    return [path]


# --- rows ------------------------------------------------------------------------------------------------------------


def render(
    fields: Sequence[Field],
    names: pa.Array[Any],
    entries: pa.Table,
    root: str,
    sealing: pq.FileEncryptionProperties | None = None,
) -> pa.Buffer:
    """Return the file of these entries. ``names``: their ``obj_name``; ``root``: key of the data files' directory."""
    columns = [names, *(_stored(entries.column(field.name).combine_chunks(), field.type) for field in fields[1:])]
    schema = pa.schema([pa.field(field.name, field.type) for field in fields])
    sink = pa.BufferOutputStream()
    has_naive = any(_holds_naive(field.type) for field in fields)
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
        store_decimal_as_integer=True,
        use_deprecated_int96_timestamps=not has_naive,
        encryption_properties=sealing,
    ) as writer:
        writer.write_table(pa.Table.from_arrays(columns, schema=schema))
        about = {ROW_METADATA: spark_schema.render(fields), SPARK_VERSION: SPARK.encode(), OURS: root.encode()}
        writer.add_key_value_metadata({name.decode(): text.decode() for name, text in about.items()})
    return sink.getvalue()


def _holds_naive(data_type: Any) -> bool:
    """Return whether the type has times without zone: Spark's INT96 form cannot state whether there is a zone."""
    if pa.types.is_struct(data_type):
        return any(_holds_naive(field.type) for field in data_type)
    if pa.types.is_list(data_type):
        return _holds_naive(data_type.value_type)
    return bool(data_type == _NAIVE)


def _stored(column: Any, wanted: Any) -> Any:
    if pa.types.is_struct(wanted) and column.type != wanted and column.type.field(0).type == _NAIVE:
        ends = [_shifted(column.field(0), -_DAY), _shifted(column.field(1), _DAY)]
        return pa.StructArray.from_arrays(ends, ["min", "max"], mask=column.is_null())
    return column if column.type == wanted else column.cast(wanted)


def _shifted(moments: Any, by: int) -> Any:
    """Return times without zone as times in UTC, shifted and clamped to the range of the type."""
    first, last = -(1 << 63), (1 << 63) - 1
    ticks = moments.fill_null(0).cast(pa.int64()).to_numpy()
    within = np.minimum(ticks, last - by) if by > 0 else np.maximum(ticks, first - by)
    mask = moments.is_null().to_numpy(zero_copy_only=False)
    return pa.array(within + by, pa.int64(), mask=mask).cast(_UTC)
