"""The distinct texts of a column from the dictionary pages that Parquet's writer made of them anyway.

Arrow's writer numbers the values of a column until its dictionary reaches 1 MiB, and writes them plainly from there on.
A smaller dictionary thus holds all values of its row group, and takes a fraction of the time that hashing them again
would. Only of files that Kubothek has just written: others decide in other ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kubothek.table.skipping.columns import path_of
from kubothek.table.skipping.model import IndexDefinition

_OF_DISTINCT: Final = frozenset({"valuelist", "bloomfilter"})
"""Index types that ask which values there are, and nothing else."""
_LIMIT: Final = 1 << 20
_LENGTH_BYTES: Final = 4
"""Of each value in a dictionary page, beside its text."""


def told_by_dictionaries(definitions: Sequence[IndexDefinition], schema: pa.Schema) -> dict[str, list[IndexDefinition]]:
    """By column, the indices that dictionaries of files of this stored schema tell of."""
    found: dict[str, list[IndexDefinition]] = {}
    for definition in definitions:
        if definition.name in _OF_DISTINCT:
            name, *inner = path_of(schema, definition.columns[0])
            if not inner and pa.types.is_string(schema.field(name).type):
                found.setdefault(name, []).append(definition)
    return found


def distinct_texts(
    content: pa.Buffer, footer: pq.FileMetaData, columns: Sequence[str], groups: Sequence[int]
) -> Iterator[tuple[str, Any]]:
    """The distinct values of these columns in these row groups, as an array each; ``content``: the whole file."""
    file = pq.ParquetFile(pa.BufferReader(content), metadata=footer, read_dictionary=list(columns))
    places = {footer.schema.column(n).path: n for n in range(footer.num_columns)}
    for number in groups:
        group = footer.row_group(number)
        for name in columns:
            has_dictionary = group.column(places[name]).has_dictionary_page
            found = _first(file, number, name) if has_dictionary and group.num_rows else None
            if found is None or pc.sum(pc.binary_length(found)).as_py() + _LENGTH_BYTES * len(found) >= _LIMIT:
                plain = pq.ParquetFile(pa.BufferReader(content), metadata=footer)
                found = plain.read_row_group(number, columns=[name], use_threads=False).column(0).unique()
            yield name, found


def _first(file: pq.ParquetFile, group: int, column: str) -> Any:
    """The dictionary of a row group's column; None if it holds nothing but NULL."""
    batches = file.iter_batches(1, row_groups=[group], columns=[column], use_threads=False)
    found: Any = next(batches).column(0)
    dictionary = found.dictionary
    return dictionary if len(dictionary) else None
