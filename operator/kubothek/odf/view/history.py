"""The slices of a chain as one stream of records, with the current names and columns of the chain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby
from typing import Any, Final, Self, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from kubothek.errors import VersionNotFound
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.validation.row_checks import CORRECT_FROM, RETRACT
from kubothek.odf.validation.state import Vocabulary
from kubothek.storage import Store
from kubothek.table.filesystem import arrow_filesystem
from kubothek.table.scan.read import read_failure

OFFSET_TYPE: Final[pa.DataType] = pa.int64()
OP_TYPE: Final[pa.DataType] = pa.int32()
_BATCHES_AHEAD: Final = 8
_FILES_AHEAD: Final = 4
_FILES_AT_ONCE: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One slice. ``key`` is that of the object in the store; ``system_time`` and ``block`` are those of its block."""

    key: str
    start: int
    end: int
    vocabulary: Vocabulary
    system_time: datetime
    block: Multihash


@dataclass(frozen=True, slots=True)
class History:
    """All records of a chain, or of its first blocks.

    ``parts``       the slices, oldest first; may be found lazily
    ``vocabulary``  the current names of columns, which all results have
    ``schema``      of slices, as the last SetDataSchema says; None before the first
    ``records``     their number
    """

    store: Store = field(repr=False)
    parts: Iterable[Part]
    vocabulary: Vocabulary
    schema: pa.Schema | None
    records: int

    @property
    def columns(self) -> pa.Schema:
        """``[event_time, data…]``."""
        ours = (self.vocabulary.offset, self.vocabulary.op, self.vocabulary.system_time)
        return pa.schema([f for f in (self.schema or ()) if f.name not in ours])

    def until_block(self, block: Multihash, blocks: Sequence[Multihash]) -> Self:
        """Return the history up to this block; ``blocks`` are the whole chain, oldest first. Raises VersionNotFound."""
        if block not in blocks:
            raise VersionNotFound(f"block {block} is not one of this chain")
        known = frozenset(blocks[: blocks.index(block) + 1])
        return self._of(part for part in self.parts if part.block in known)

    def until_time(self, moment: datetime) -> Self:
        """Return the history as it was known at this system time."""
        return self._of(part for part in self.parts if part.system_time <= moment)

    def scan(self, columns: Sequence[str], where: pc.Expression | None = None) -> Iterator[pa.RecordBatch]:
        """Yield columns of all records in the order of their offsets; a column is NULL before it was added.

        ``where``  in the current names. Raises VersionIncomplete if a slice is gone, StoreError
        """
        wanted = self.as_read(columns)
        filesystem = arrow_filesystem(self.store)
        for vocabulary, alike in groupby(self.parts, key=lambda part: part.vocabulary):
            names = dict(zip(self.vocabulary.names, vocabulary.names, strict=True))
            parts = list(alike)
            for start in range(0, len(parts), _FILES_AT_ONCE):
                keys = [part.key for part in parts[start : start + _FILES_AT_ONCE]]
                self.store.check_no_links(keys)
                yield from self._read(filesystem, keys, names, wanted, where)

    def last(self, limit: int, skip: int = 0) -> pa.RecordBatchReader:
        """Return the ``limit`` records before the last ``skip``, in the order of offsets; there must be a schema."""
        assert self.schema is not None, "a slice comes after a schema"
        stop = max(0, self.records - skip)
        start = max(0, stop - limit)
        near = replace(self, parts=[part for part in self.parts if part.end >= start and part.start < stop])
        names, offset = self.schema.names, pc.field(self.vocabulary.offset)
        return pa.RecordBatchReader.from_batches(
            self.as_read(names), near.scan(names, (offset >= start) & (offset < stop))
        )

    def as_read(self, columns: Sequence[str]) -> pa.Schema:
        """Return the types of these columns, whatever types of offsets and operations slices have."""
        types = {self.vocabulary.offset: OFFSET_TYPE, self.vocabulary.op: OP_TYPE}
        schema = self.schema or pa.schema([])
        return pa.schema([pa.field(name, types.get(name) or schema.field(name).type) for name in columns])

    def retracting(self) -> bool:
        """Return whether any record retracts another one; reads one column."""
        op = self.vocabulary.op
        return any(batch.num_rows for batch in self.scan([op], self.takes_back()))

    def takes_back(self) -> pc.Expression:
        """Return the condition for a retraction or the first half of a correction."""
        return pc.field(self.vocabulary.op).isin(pa.array([RETRACT, CORRECT_FROM], OP_TYPE))

    def _of(self, parts: Iterable[Part]) -> Self:
        chosen = tuple(parts)
        return replace(self, parts=chosen, records=chosen[-1].end + 1 if chosen else 0)

    def _read(
        self, filesystem: Any, keys: list[str], names: dict[str, str], wanted: pa.Schema, where: pc.Expression | None
    ) -> Iterator[pa.RecordBatch]:
        everything = self.as_read((self.schema or pa.schema([])).names)
        inside = pa.schema([field.with_name(names.get(field.name, field.name)) for field in everything])
        form = ds.ParquetFileFormat()
        dataset = ds.FileSystemDataset([form.make_fragment(key, filesystem) for key in keys], inside, form, filesystem)
        # The filter uses current names, so a projection below the requested one renames the columns.
        renamed = {new: pc.field(old) for new, old in ((f.name, names.get(f.name, f.name)) for f in everything)}
        try:
            source: Any = dataset
            if inside.names != everything.names:
                batches = dataset.scanner(columns=cast("Any", renamed), batch_readahead=_BATCHES_AHEAD).to_batches()
                source = ds.Scanner.from_batches(batches, schema=everything, columns=wanted.names, filter=where)
                yield from source.to_batches()
                return
            yield from source.scanner(
                columns=wanted.names,
                filter=where,
                batch_readahead=_BATCHES_AHEAD,
                fragment_readahead=_FILES_AHEAD,
            ).to_batches()
        except (OSError, pa.ArrowException) as error:
            raise read_failure(self.store, dataset, error) from error
