"""Spark's schema JSON, which carries all that Xskipper knows of a metadata file.

See Xskipper's Metadatastore Spec, metadata of ``obj_name``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from kubothek.errors import SkippingUnreadable

ROW_METADATA: Final = b"org.apache.spark.sql.parquet.row.metadata"
SPARK_VERSION: Final = b"org.apache.spark.version"
VERSION: Final = 4
"""The version of the specification that Kubothek writes."""
BLOOM_UDT: Final = (
    "io.xskipper.metadatastore.parquet.ParquetBaseClauseTranslator$BloomFilterMetaDataTypeUDT"  # a class in Xskipper
)
_NAMES: Final[dict[pa.DataType, str]] = {
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.bool_(): "boolean",
    pa.date32(): "date",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
}


@dataclass(frozen=True, slots=True)
class Field:
    """One column of a metadata file. ``udt``: the class of the objects that its binary values hold."""

    name: str
    type: pa.DataType
    metadata: Mapping[str, Any]
    udt: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return Spark's form."""
        kind = spark_type(self.type) if self.udt is None else _udt(self.udt)
        return {"name": self.name, "type": kind, "nullable": True, "metadata": dict(self.metadata)}


def spark_type(data_type: pa.DataType) -> Any:
    """Return Spark's name of an Arrow type, as in its JSON; an object for nested types."""
    if (name := _NAMES.get(data_type)) is not None:
        return name
    if pa.types.is_decimal(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    if pa.types.is_struct(data_type):
        return {"type": "struct", "fields": [Field(each.name, each.type, {}).to_json() for each in data_type]}
    if pa.types.is_list(data_type):
        return {"type": "array", "elementType": spark_type(data_type.value_type), "containsNull": True}
    raise TypeError(f"Spark has no type for {data_type}")


def render(fields: Sequence[Field]) -> bytes:
    """Return the value of :data:`ROW_METADATA`."""
    document = {"type": "struct", "fields": [each.to_json() for each in fields]}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def parse(footer: Mapping[bytes, bytes] | None, where: str) -> list[dict[str, Any]]:
    """Return the fields in a file's footer. Raises SkippingUnreadable if there are none."""
    text = (footer or {}).get(ROW_METADATA)
    if text is None:
        raise SkippingUnreadable(f"{where}: not written by Xskipper: its footer has no {ROW_METADATA.decode()}")
    try:
        fields = json.loads(text)["fields"]
        return [{**field, "metadata": dict(field.get("metadata") or {})} for field in fields]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SkippingUnreadable(f"{where}: {ROW_METADATA.decode()} is not a schema of Spark: {error!r}") from error


def _udt(name: str) -> dict[str, Any]:
    return {"type": "udt", "class": name, "pyClass": None, "sqlType": "binary"}
