"""The columns of a slice, a few rows at a time: decoded values are hashed while they are in the processor's caches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.errors import InputError
from kubothek.odf.spec.digest_values import is_listed
from kubothek.table.untrusted_parquet import open_parquet_file

_VALUES: Final = 1 << 20
"""Values that are decoded at a time, of all columns together: some megabytes."""
_LEAST_ROWS: Final = 1 << 12
_OPEN: Final[Any] = pq.ParquetFile  # the stubs lack some of its options


class SliceColumns:
    """The columns of a Parquet file, by number.

    ``schema``  of the file; a UUID is 16 bytes, as for the reference
    ``rows``    the number of rows in its metadata
    """

    def __init__(self, file: Any) -> None:
        """``file`` must stay open. Raises what Arrow raises for a file that is not Parquet."""
        parquet = open_parquet_file(file, arrow_extensions_enabled=False)
        self.schema: pa.Schema = parquet.schema_arrow
        self.rows: int = parquet.metadata.num_rows
        if coded := _coded(parquet):
            known = parquet.metadata
            parquet = _OPEN(file, metadata=known, read_dictionary=coded, arrow_extensions_enabled=False)
        self._reader = parquet.reader
        self._groups = list(range(parquet.metadata.num_row_groups))
        self._leaves = list[range]()
        for field in self.schema:
            start = self._leaves[-1].stop if self._leaves else 0
            self._leaves.append(range(start, start + _leaves(field.type)))

    def batches(self, numbers: Sequence[int] | None = None, *, threads: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the rows of these columns (None: all); texts may be dictionary-encoded.

        ``threads``  decode in threads of Arrow

        Raises InputError if their number is not that of the file's rows, and what Arrow raises if they cannot be read.
        """
        numbers = range(len(self.schema)) if numbers is None else numbers
        names, rows = [self.schema.names[number] for number in numbers], 0
        leaves = [leaf for number in numbers for leaf in self._leaves[number]]
        size = max(_LEAST_ROWS, _VALUES // max(1, len(leaves)))
        for batch in self._reader.iter_batches(size, self._groups, column_indices=leaves, use_threads=threads):
            if batch.schema.names != names:
                raise InputError(f"there are columns {', '.join(batch.schema.names)}, not {', '.join(names)}")
            rows += batch.num_rows
            yield batch
        if rows != self.rows:
            raise InputError(f"there are {rows} values, and the file has {self.rows} rows")


def _leaves(kind: Any) -> int:
    """Return the number of Parquet columns of a column."""
    if is_listed(kind):
        return _leaves(kind.value_type)
    if pa.types.is_struct(kind):
        return sum(_leaves(kind.field(number).type) for number in range(kind.num_fields))
    return 1


def _coded(parquet: Any) -> list[str]:
    """Return the text columns that are dictionary-encoded throughout: they are hashed without being decoded."""
    texts = {field.name for field in parquet.schema_arrow if field.type in (pa.string(), pa.binary())}
    named = [number for number, name in enumerate(parquet.schema.names) if name in texts]
    places = [number for number in named if parquet.schema.column(number).path in texts]  # not within another column
    metadata = parquet.metadata
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return [
        parquet.schema.column(number).path
        for number in places
        if all(_is_coded(group.column(number).encodings) for group in groups)
    ]


def _is_coded(encodings: Sequence[str]) -> bool:
    return "PLAIN_DICTIONARY" in encodings and "PLAIN" not in encodings
