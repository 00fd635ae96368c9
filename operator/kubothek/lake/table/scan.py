"""Reading a table: the files that a head names, as one Arrow dataset with the stored schema.

What other writers stored is read as kartothek and plateau read it (kartothek-facts 1.4): a data file may have
narrower types, either string type, other column orders, columns too many (ignored) or too few (null); the
partition columns come from the path, also where a file contradicts it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import reduce
from operator import and_

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from kubothek.lake.commits.head import Head
from kubothek.lake.errors import InputError, LakeError, StoreError, VersionIncomplete
from kubothek.lake.store.base import Store
from kubothek.lake.table.filesystem import arrow_filesystem
from kubothek.lake.table.partitioning import parse_path

_BATCHES_AHEAD = 8
_FILES_AHEAD = 2
_GONE = ("No such file or directory", "Path does not exist")
_NO_MATCH = re.compile(r"No match for FieldRef\.Name\((.*?)\) in")


def arrow_dataset(store: Store, head: Head, schema: pa.Schema) -> ds.FileSystemDataset:
    """The files of a head as an Arrow dataset of the stored schema; nothing is read or listed yet.

    Filters on partition columns skip files by their path, others skip row groups by their statistics.
    """
    filesystem = arrow_filesystem(store)
    form = ds.ParquetFileFormat()
    partitions = _Partitions(schema)
    fragments = [
        form.make_fragment(key, filesystem, partition_expression=partitions.of(key)) for key in head.files().values()
    ]
    return ds.FileSystemDataset(fragments, schema, form, filesystem)


def scan(
    store: Store,
    dataset: ds.FileSystemDataset,
    columns: Sequence[str] | None = None,
    where: pc.Expression | None = None,
) -> pa.RecordBatchReader:
    """The rows in the order of the head's files, as a stream; a few batches are in memory at a time.

    ``columns``  names, in the order wanted; None = all
    ``where``    only rows for which this is true; a null is not

    Raises InputError for a column that is not there or a comparison that has no meaning, before any batch.
    The stream raises VersionIncomplete if a file is gone, StoreError if one cannot be read.
    """
    for name in columns or ():
        if name not in dataset.schema.names:
            raise _unknown_column(name, dataset.schema)
    try:
        scanner = dataset.scanner(
            columns=None if columns is None else list(columns),
            filter=where,
            batch_readahead=_BATCHES_AHEAD,
            fragment_readahead=_FILES_AHEAD,
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        if match := _NO_MATCH.search(str(error)):
            raise _unknown_column(match[1], dataset.schema) from error
        raise InputError(f"cannot filter by {where}: {error}") from error
    return pa.RecordBatchReader.from_batches(scanner.projected_schema, _batches(store, dataset, scanner))


def read_failure(store: Store, dataset: ds.FileSystemDataset, error: Exception) -> LakeError:
    """What to raise for a read that failed below Arrow, which has only words for it.

    Whether the store itself is in trouble is asked of the store.
    """
    if any(sign in str(error) for sign in _GONE):
        return VersionIncomplete(
            f"a file that the version needs is gone from {store.url}; read a newer version, or restore the "
            f"file: {error}"
        )
    try:
        store.stat(dataset.files[0])
    except StoreError as failure:
        return failure
    return StoreError(f"cannot read the table in {store.url}: {error}")


def _batches(store: Store, dataset: ds.FileSystemDataset, scanner: ds.Scanner) -> Iterator[pa.RecordBatch]:
    try:
        yield from scanner.to_batches()
    except (OSError, pa.ArrowException) as error:
        raise read_failure(store, dataset, error) from error


class _Partitions:
    """What is true of all rows of a file, from its key: ``<uuid>/<table>/<column>=<value>/…/<file>``.

    Directories repeat from file to file, so each is parsed once.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._parsed: dict[str, list[pc.Expression]] = {}

    def of(self, key: str) -> pc.Expression | None:
        directories = key.split("/")[2:-1]
        equalities = [equality for directory in directories for equality in self._parse(directory)]
        return reduce(and_, equalities) if equalities else None

    def _parse(self, directory: str) -> list[pc.Expression]:
        if (known := self._parsed.get(directory)) is None:
            known = self._parsed[directory] = [
                pc.field(name) == pa.scalar(value, self._schema.field(name).type)
                for name, value in parse_path(directory, self._schema).items()
            ]
        return known


def _unknown_column(name: str, schema: pa.Schema) -> InputError:
    near = get_close_matches(name, schema.names, n=3)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {', '.join(schema.names)}"
    return InputError(f"no column {name!r}; {hint}")
