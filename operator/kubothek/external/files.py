"""Plain files: their selection, their schema, and their rows.

The location is a directory of a store, with or without ``column=value`` directories below. Files are selected as for
landing files: none with a name, or a directory above it, that begins with ``.`` or ``_``, and none that is empty or
unfinished.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import Any, Final, Literal
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import csv

from kubothek.errors import InputError, SchemaMismatch, SourceCorrupt
from kubothek.ingest import CsvOptions
from kubothek.ingest.watch.landing import LANDED, Landing
from kubothek.storage import Store
from kubothek.table.filesystem import arrow_filesystem

FORMATS: Final = ("Parquet", "ORC", "CSV", "JSONLines")
PlainFormat = Literal["Parquet", "ORC", "CSV", "JSONLines"]
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_BATCH_ROWS: Final = 65_536


@dataclass(frozen=True, slots=True)
class PlainFiles:
    """The selection of files, and how to read them.

    ``prefix``  the directory, without a slash at either end
    ``glob``    of keys below it: ``*`` and ``?`` within a name, ``**`` across; None = all
    ``schema``  of the rows in the files; None: that of the first file
    """

    prefix: str
    format: PlainFormat = "Parquet"
    glob: str | None = None
    csv: CsvOptions = field(default_factory=CsvOptions)
    schema: pa.Schema | None = None

    def listed(self, store: Store) -> pa.Table:
        """Return the existing files, in the order of their keys, as ``LANDED``."""
        root = f"{self.prefix}/"
        pattern = None
        if self.glob is not None:
            below = Landing.of(glob=self.glob).pattern
            assert below is not None, "it is made of a glob"
            pattern = re.compile(re.escape(root) + below.pattern, re.DOTALL)
        pieces = list(Landing(root, pattern, foreign=(".kubothek/",)).listed(store))
        return pa.concat_tables(pieces) if pieces else LANDED.empty_table()

    def form(self) -> ds.FileFormat:
        """Return the format for Arrow."""
        match self.format:
            case "Parquet":
                return ds.ParquetFileFormat()
            case "ORC":
                return ds.OrcFileFormat()
            case "JSONLines":
                return ds.JsonFileFormat()
        options = self.csv
        names = None if options.header or self.schema is None else self.schema.names
        return ds.CsvFileFormat(
            parse_options=csv.ParseOptions(delimiter=options.delimiter, quote_char=options.quote),
            read_options=csv.ReadOptions(
                column_names=names, autogenerate_column_names=not options.header and not names
            ),
            convert_options=csv.ConvertOptions(null_values=list(options.null_values), strings_can_be_null=True),
        )


@dataclass(frozen=True, slots=True)
class PlainTable:
    """Plain files with all that is needed to read any of them.

    ``schema``      of the rows, with the partition columns at the end
    ``partitions``  columns whose values are in the directory names, outermost first
    """

    files: PlainFiles
    schema: pa.Schema
    partitions: tuple[str, ...] = ()

    def partition_of(self, key: str) -> dict[str, Any]:
        """Return the values in the directory names of a file; None for NULL. Raises SourceCorrupt for a bad value."""
        found = _named(self.files.prefix, key)
        if tuple(found) != self.partitions:
            there = "/".join(found) or "none"
            raise SourceCorrupt(f"{key}: its directories name the columns {there}, others {'/'.join(self.partitions)}")
        return {name: _value(key, text, self.schema.field(name).type) for name, text in found.items()}

    def dataset(self, store: Store, keys: Sequence[str]) -> ds.FileSystemDataset:
        """Return these files as an Arrow dataset of the schema; nothing is read yet. Raises SourceCorrupt."""
        store.check_no_links(keys)
        filesystem, form = arrow_filesystem(store), self.files.form()
        known: dict[str, pc.Expression | None] = {}
        fragments = []
        for key in keys:
            directory = key.rpartition("/")[0]
            if directory not in known:
                known[directory] = self._expression(key)
            fragments.append(form.make_fragment(key, filesystem, partition_expression=known[directory]))
        return ds.FileSystemDataset(fragments, self.schema, form, filesystem)

    def batches(self, store: Store, key: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one file, without partition columns."""
        inside = pa.schema([each for each in self.schema if each.name not in self.partitions])
        store.check_no_links([key])
        fragment = self.files.form().make_fragment(key, arrow_filesystem(store))
        yield from fragment.to_batches(schema=inside, columns=list(columns), batch_size=_BATCH_ROWS)

    def _expression(self, key: str) -> pc.Expression | None:
        values = self.partition_of(key)
        equal = [
            pc.field(name).is_null()
            if value is None
            else pc.field(name) == pa.scalar(value, self.schema.field(name).type)
            for name, value in values.items()
        ]
        return reduce(and_, equal) if equal else None


def keys_of(listed: pa.Table) -> list[str]:
    """Return the keys of a listing."""
    found: Any = listed.column("key").to_pylist()
    return list(found)


def table_of(store: Store, files: PlainFiles, keys: Sequence[str]) -> PlainTable:
    """Return the files as a table. Raises InputError if no file gives a schema, SourceCorrupt, SchemaMismatch."""
    inside = files.schema
    if inside is None:
        if not keys:
            raise InputError(f"there is no file in {store.url}/{files.prefix} yet: name the columns, or put one there")
        inside = _stored_schema(store, files, keys[0])
    partitions = _partition_types(files.prefix, keys)
    if twice := [name for name in partitions if name in inside.names]:
        inside = pa.schema([each for each in inside if each.name not in twice])
    if clash := {name.lower() for name in inside.names} & {name.lower() for name in partitions}:
        raise SchemaMismatch(f"column {sorted(clash)[0]!r} is in the files and, in another case, in the directories")
    schema = pa.schema([*inside, *(pa.field(name, kind) for name, kind in partitions.items())])
    return PlainTable(files, schema, tuple(partitions))


def _stored_schema(store: Store, files: PlainFiles, key: str) -> pa.Schema:
    store.check_no_links([key])
    try:
        found: pa.Schema = files.form().make_fragment(key, arrow_filesystem(store)).physical_schema
    except (OSError, pa.ArrowException) as error:
        raise SourceCorrupt(f"{key} cannot be read as {files.format}: {error}") from error
    return found.remove_metadata()


def _partition_types(prefix: str, keys: Sequence[str]) -> Mapping[str, pa.DataType]:
    """Return the columns in directory names: int32 if all values are such numbers, else strings."""
    directories = dict.fromkeys(key.rpartition("/")[0] for key in keys)
    found: dict[str, bool] = {}
    for directory in directories:
        for name, text in _named(prefix, f"{directory}/").items():
            found[name] = found.get(name, True) and (text == _NULL or _is_int(text))
    return {name: pa.int32() if numbers else pa.string() for name, numbers in found.items()}


def _named(prefix: str, key: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in key[len(prefix) + 1 :].split("/")[:-1] if "=" in part)
    return {unquote(name): unquote(text) for name, _, text in pairs}


def _is_int(text: str) -> bool:
    return re.fullmatch(r"-?(0|[1-9][0-9]{0,8})", text) is not None


def _value(key: str, text: str, data_type: pa.DataType) -> Any:
    if text == _NULL:
        return None
    if not pa.types.is_integer(data_type):
        return text
    if not _is_int(text):
        raise SourceCorrupt(f"{key}: its directories name {text!r} where others name numbers; refresh the metadata")
    return int(text)
