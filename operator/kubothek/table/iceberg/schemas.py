"""Schemas, partition specs and sort orders of Iceberg for stored schemas, with field ids that never change.

Iceberg specification, "Schemas and Data Types" and "Schema Evolution". The id of a field belongs to its path: data
files have no field ids, so readers find a column by its name (``schema.name-mapping.default``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.table.sorting import NullOrder, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimeType,
)

from kubothek.errors import SchemaMismatch
from kubothek.table.schema import type_name

Path = tuple[str, ...]

_ELEMENT: Final = "element"
_PRIMITIVE: Final[dict[pa.DataType, IcebergType]] = {
    pa.bool_(): BooleanType(),
    pa.int64(): LongType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.date32(): DateType(),
    pa.time64("us"): TimeType(),
    pa.timestamp("us"): TimestampType(),
}


class Schemas:
    """All schemas and partition specs of one export, in the order of their ids.

    ``known``, ``known_specs``, ``known_names``  those of an earlier export, whose ids stay
    """

    def __init__(
        self,
        known: Sequence[Schema] = (),
        known_specs: Sequence[PartitionSpec] = (),
        known_names: Iterable[MappedField] = (),
    ) -> None:
        self.schemas = list(known)
        self.specs = list(known_specs)
        self._ids: dict[Path, int] = {}
        self.last_column_id = 0
        """The highest field id that was given to a column."""
        self._note((), known_names)

    @property
    def last_partition_id(self) -> int:
        """The highest field id that was given to a partition field."""
        return max((spec.last_assigned_field_id for spec in self.specs), default=PARTITION_FIELD_ID_START - 1)

    @property
    def name_mapping(self) -> NameMapping:
        """The mapping from the names of columns in data files to the ids of all schemas."""
        below = defaultdict[Path, list[Path]](list)
        for path in self._ids:
            below[path[:-1]].append(path)
        return NameMapping(self._mapped(below, ()))

    def name_columns(self, names: Iterable[str]) -> None:
        """Include columns of data files in the mapping; pyiceberg reads no file with a column that it lacks.

        The index that pandas adds to files of plateau is no column of the table.
        """
        for name in names:
            self._id((name,))

    def schema(self, stored: pa.Schema, *, omit_unsupported: bool = False) -> Schema:
        """Return the Iceberg schema for a stored one.

        Raises SchemaMismatch that names every column whose type Iceberg lacks, unless they are to be left out.
        """
        unsupported = {field.name: field for field in stored if not _has_equal(field.type)}
        if unsupported and not omit_unsupported:
            raise SchemaMismatch(
                "Iceberg has no equal of the type of "
                + ", ".join(f"column {field.name!r} ({type_name(field.type)})" for field in unsupported.values())
                + "; convert them, or export the table without them: --omit-unsupported (omit_unsupported=True)"
            )
        fields = [self._field((field.name,), field.type) for field in stored if field.name not in unsupported]
        same = (known for known in self.schemas if known.fields == tuple(fields))
        found = next(same, None) or Schema(*fields, schema_id=len(self.schemas))
        if found.schema_id == len(self.schemas):
            self.schemas.append(found)
        return found

    def spec(self, partition_keys: Sequence[str], schema: Schema) -> PartitionSpec:
        """Return the identity spec for these columns, without those that the schema lacks."""
        keys = [key for key in partition_keys if (key,) in self._ids and key in schema.column_names]
        fields = [self._partition_field(key) for key in keys]
        same = (known for known in self.specs if known.fields == tuple(fields))
        found = next(same, None) or PartitionSpec(*fields, spec_id=len(self.specs))
        if found.spec_id == len(self.specs):
            self.specs.append(found)
        return found

    def _field(self, path: Path, data_type: Any) -> NestedField:
        return NestedField(self._id(path), path[-1], self._type(path, data_type), required=False)

    def _type(self, path: Path, data_type: Any) -> IcebergType:
        if pa.types.is_struct(data_type):
            return StructType(*(self._field((*path, field.name), field.type) for field in data_type))
        if pa.types.is_list(data_type):
            inner = (*path, _ELEMENT)
            element_id = self._id(inner)
            return ListType(element_id, self._type(inner, data_type.value_type), element_required=False)
        if pa.types.is_decimal128(data_type):
            return DecimalType(data_type.precision, data_type.scale)
        return _PRIMITIVE[data_type]

    def _id(self, path: Path) -> int:
        if path not in self._ids:
            self._ids[path] = self.last_column_id = self.last_column_id + 1
        return self._ids[path]

    def _partition_field(self, key: str) -> PartitionField:
        source = self._ids[(key,)]
        known = (field for spec in self.specs for field in spec.fields if field.source_id == source)
        return next(known, None) or PartitionField(
            source_id=source, field_id=PARTITION_FIELD_ID_START + source, transform=IdentityTransform(), name=key
        )

    def _note(self, above: Path, fields: Iterable[MappedField]) -> None:
        for field in fields:
            assert field.field_id is not None, "every entry of the mapping of an export has an id"
            path = (*above, field.names[0])
            self._ids[path] = field.field_id
            self.last_column_id = max(self.last_column_id, field.field_id)
            self._note(path, field.fields)

    def _mapped(self, below: Mapping[Path, Sequence[Path]], above: Path) -> list[MappedField]:
        return [
            MappedField(field_id=self._ids[path], names=[path[-1]], fields=self._mapped(below, path))
            for path in below.get(above, ())
        ]


def sort_order(columns: Sequence[str], schema: Schema) -> SortOrder:
    """Return the order of rows within the files: ascending, nulls last, as far as the schema has the columns."""
    fields = []
    for column in columns:
        if column not in schema.column_names:
            break
        source = schema.find_field(column).field_id
        fields.append(SortField(source_id=source, transform=IdentityTransform(), null_order=NullOrder.NULLS_LAST))
    return SortOrder(*fields, order_id=1 if fields else 0)


def rescaled(before: Schema, after: Schema) -> list[str]:
    """Return the columns whose decimals got another scale, which no Iceberg reader applies to old files."""
    types = {field.field_id: field.field_type for field in before.fields}
    return [
        field.name
        for field in after.fields
        if _scales(types.get(field.field_id, field.field_type)) != _scales(field.field_type)
    ]


def _scales(found: IcebergType) -> object:
    if isinstance(found, ListType):
        return _scales(found.element_type)
    return found.scale if isinstance(found, DecimalType) else None


def _has_equal(data_type: Any) -> bool:
    if pa.types.is_struct(data_type):
        return all(_has_equal(field.type) for field in data_type)
    if pa.types.is_list(data_type):
        return _has_equal(data_type.value_type)
    return pa.types.is_decimal128(data_type) or data_type in _PRIMITIVE
