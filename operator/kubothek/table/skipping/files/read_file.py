"""One Parquet file of metadata, of any version of the specification from 1 to 4.

See Xskipper's Metadatastore Spec, "Version 1" to "Version 4". Doubtful values of other writers are resolved here, so
that entries mean the same whichever program wrote them: an uncertain value becomes null, "unknown".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kubothek.errors import SkippingUnreadable
from kubothek.table.skipping.files import spark_schema
from kubothek.table.skipping.files.encryption import MasterKeys
from kubothek.table.skipping.files.metadata_file import OURS
from kubothek.table.skipping.indexes import index_type, is_known
from kubothek.table.skipping.model import IndexDefinition
from kubothek.table.skipping.names import OBJ_NAME, VIRTUAL
from kubothek.table.untrusted_parquet import DAMAGED, ColumnsEncrypted, checked_footer

_IN_FOOTERS: Final = frozenset({"byte", "short", "integer", "long", "float", "double"})
"""Types of which Xskipper takes bounds from footers, if no index is on any other type.

See Xskipper's Metadatastore Spec, "Version 1"; bounds as in Xskipper 1.7.
"""
_VERSIONS: Final = range(1, 5)
_ENCRYPTED: Final = b"PARE"
_LEGACY: Final = ("spark.ibm.metaindex.index.", "com.ibm.metaindex.index.")
_PREFIX: Final = "io.xskipper.index."
_FORMS: Final[dict[str, Callable[[Any], bool]]] = {
    "minmax": lambda kind: pa.types.is_struct(kind) and [field.name for field in kind] == ["min", "max"],
    "valuelist": pa.types.is_list,
    "bloomfilter": pa.types.is_binary,
}


@dataclass(frozen=True, slots=True)
class FileSchema:
    """The self-description of a metadata file.

    ``identifier``   of the table
    ``root``         key of the directory of the data files, if Kubothek wrote the file; else None
    ``definitions``  by the column's name in the file
    ``virtual``      the columns that hold partition values
    """

    version: int
    identifier: str
    root: str | None
    definitions: Mapping[str, IndexDefinition]
    virtual: tuple[str, ...]


class MetadataFile:
    """An opened file. Raises SkippingUnreadable, naming it, for any defect, here and in :meth:`read`."""

    def __init__(self, source: pa.NativeFile, where: str, keys: MasterKeys) -> None:
        self._where = where
        self._source = source
        self._keys = keys
        is_sealed = source.read(len(_ENCRYPTED)) == _ENCRYPTED
        self._file = self._open(sealed=is_sealed)
        footer = self._file.metadata.metadata or {}
        try:
            fields = spark_schema.parse(footer, where)
            self._spark = {field["name"]: field for field in fields}
            master = self._spark[OBJ_NAME]["metadata"]
            version = master.get("version", 0)
        except (KeyError, TypeError, AttributeError) as error:
            raise SkippingUnreadable(f"{where}: not Xskipper's metadata: {error!r}") from error
        if "encryption" in master and not is_sealed:
            self._file = self._open(sealed=True)  # its footer is not encrypted, its columns are
        root = footer.get(OURS)
        try:
            base = None if root is None else root.decode()
        except UnicodeDecodeError as error:
            raise SkippingUnreadable(f"{where}: the root of its keys is not UTF-8; rebuild the index") from error
        if version not in _VERSIONS:
            remedy = "rebuild the index" if version == 0 else "it needs a newer Kubothek"
            raise SkippingUnreadable(f"{where}: version {version!r} of Xskipper's metadata: {remedy}")
        columns = [field for field in self._file.schema_arrow if field.name in self._spark]
        if not any(field.name == OBJ_NAME and pa.types.is_string(field.type) for field in columns):
            raise SkippingUnreadable(f"{where}: its column {OBJ_NAME} is missing, or not of strings; rebuild the index")
        found = {field.name: _definition(self._spark[field.name]["metadata"], field.type) for field in columns}
        self.schema = FileSchema(
            version,
            str(master.get("tableIdentifier", "")),
            base,
            {name: definition for name, definition in found.items() if definition is not None},
            tuple(name for name in found if name.startswith(VIRTUAL) and version == _VERSIONS[-1]),
        )

    @property
    def rows(self) -> int:
        """The number of entries."""
        found: int = self._file.metadata.num_rows
        return found

    def read(self, columns: Collection[str]) -> pa.Table:
        """Return ``obj_name`` and these columns, named as in version 4; times in microseconds, Spark's in UTC."""
        stored = [*self.schema.definitions, *self.schema.virtual]
        wanted = [OBJ_NAME, *(name for name in self._file.schema_arrow.names if name in columns and name in stored)]
        try:
            return self._named(self._file.read(columns=wanted, use_threads=False), wanted)
        except (SkippingUnreadable, *DAMAGED) as error:
            raise SkippingUnreadable(f"{self._where}: {error}") from error

    def _named(self, table: pa.Table, wanted: Sequence[str]) -> pa.Table:
        found, names = [], []
        for name in wanted:
            column: Any = table.column(name).combine_chunks()
            definition = self.schema.definitions.get(name)
            if definition is not None:
                column = _typed(column, self._spark[name]["type"])
                if self.schema.root is None:
                    column = trusted(column, from_footers=self._from_footers)
            elif name.startswith(VIRTUAL):
                column = _typed(column, self._spark[name]["type"])
            found.append(column)
            names.append(name if definition is None else definition.column)
        return pa.Table.from_arrays(found, names)

    @cached_property
    def _from_footers(self) -> bool:
        """Whether Xskipper may have taken bounds from Parquet's footers: only if no index needed the values."""
        indices = [field for field in self._spark.values() if "index" in field["metadata"]]
        return all(
            isinstance(field["type"], dict)
            and field["type"].get("type") == "struct"
            and all(each["type"] in _IN_FOOTERS for each in field["type"]["fields"])
            for field in indices
        )

    def _open(self, *, sealed: bool) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(
                self._source,
                metadata=None if sealed else self._checked_footer(),
                coerce_int96_timestamp_unit="us",
                decryption_properties=self._keys.opening() if sealed else None,
            )
        except (SkippingUnreadable, *DAMAGED) as error:
            if not sealed:
                raise SkippingUnreadable(f"{self._where}: not a Parquet file: {error}") from error
            raise SkippingUnreadable(f"{self._where} is encrypted: {error}") from error

    def _checked_footer(self) -> pq.FileMetaData | None:
        try:
            return checked_footer(self._source)
        except ColumnsEncrypted:
            return None


def _definition(metadata: Mapping[str, Any], stored: pa.DataType) -> IndexDefinition | None:
    """Return the index of a column; None for a column of no index, or of an unknown index type."""
    index = metadata.get("index")
    if not isinstance(index, dict) or not is_known(str(index.get("name"))):
        return None
    name = str(index["name"])
    if not _FORMS.get(name, lambda _: True)(stored):
        return None
    params = index.get("params") or {}
    if isinstance(params, list):  # versions 1 and 2
        params = dict(str(text).partition(":")[::2] for text in params)
    params = {_modern(param): str(text) for param, text in params.items()}
    columns = tuple(str(column).lower() for column in index.get("cols", ()))
    return IndexDefinition(index_type(name).name, columns, params, index.get("key_metadata")) if columns else None


def _modern(param: str) -> str:
    for prefix in _LEGACY:
        if param.startswith(prefix):
            return _PREFIX + param.removeprefix(prefix)
    return param


def _typed(column: Any, spark: Any) -> Any:
    """Return times with the zone that Spark means, at any depth; Parquet's older form does not state it."""
    if isinstance(spark, dict) and spark.get("type") == "struct" and pa.types.is_struct(column.type):
        fields = {field["name"]: field["type"] for field in spark["fields"]}
        ends = [_typed(pc.struct_field(column, [f.name]), fields.get(f.name)) for f in column.type]
        return pa.StructArray.from_arrays(ends, [f.name for f in column.type], mask=column.is_null())
    if isinstance(spark, dict) and spark.get("type") == "array" and pa.types.is_list(column.type):
        values = _typed(column.values, spark["elementType"])
        kind = pa.list_(pa.field("element", values.type))
        return pa.ListArray.from_arrays(column.offsets, values, type=kind, mask=column.is_null())
    if spark == "timestamp":
        return column.cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    return column


# Trust in entries of other writers: real Xskipper stores some that are wrong (verified with Xskipper 1.7).


_ABOVE_SURROGATES: Final = "[\\x{E000}-\\x{FFFF}]"
_SUPPLEMENTARY: Final = "[\\x{10000}-\\x{10FFFF}]"


def trusted(column: Any, *, from_footers: bool) -> Any:
    """Return an index column, null ("unknown") where it may be wrong; ``from_footers``: bounds may be from footers."""
    if pa.types.is_struct(column.type) and [field.name for field in column.type] == ["min", "max"]:
        low, high = pc.struct_field(column, ["min"]), pc.struct_field(column, ["max"])
        if pa.types.is_floating(low.type):
            return _floats(column, low, high) if from_footers else column
        if pa.types.is_string(low.type):
            return _texts(column, low, high)
    if pa.types.is_list(column.type):
        return _lists(column)
    return column


def _floats(column: Any, low: Any, high: Any) -> Any:
    """Return bounds with NaN as the greatest value, because Parquet's footers leave NaN out.

    An entry with null bounds becomes null: all of its values may be NaN.
    """
    highs = pc.if_else(high.is_valid(), pa.scalar(float("nan"), high.type), high)
    mask = pc.or_(column.is_null(), pc.or_(low.is_null(), high.is_null()))
    return pa.StructArray.from_arrays([low, highs], ["min", "max"], mask=mask)


def _texts(column: Any, low: Any, high: Any) -> Any:
    """Return bounds without those that Java's comparison of UTF-16 may have made wrong.

    In UTF-16, characters beyond U+FFFF sort before those from U+E000 on. A text with one of the former may thus be
    above a ``max`` with one of the latter, or the other way round below a ``min``; all other texts compare alike.
    """
    wrong = pc.or_(
        pc.fill_null(pc.match_substring_regex(high, _ABOVE_SURROGATES), False),
        pc.fill_null(pc.match_substring_regex(low, _SUPPLEMENTARY), False),
    )
    return pa.StructArray.from_arrays([low, high], ["min", "max"], mask=pc.or_(column.is_null(), wrong))


def _lists(column: Any) -> Any:
    """Return the lists; null for a list that contains NULL, because one of its values is unknown."""
    values = column.flatten()
    if not values.null_count:
        return column
    parents = pc.list_parent_indices(column).filter(values.is_null())
    rows = pa.array(np.arange(len(column)))
    mask = pc.or_(column.is_null(), pc.is_in(rows, parents.cast(pa.int64())))
    return pa.ListArray.from_arrays(column.offsets, column.values, type=column.type, mask=mask)
