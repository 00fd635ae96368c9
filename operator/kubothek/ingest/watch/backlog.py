"""The files that wait for ingestion, and their division into batches; pure.

The oldest files come first, by the store's clock and then by key. A listing is therefore read to its end, but memory
holds only the ``limit`` oldest files, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.ingest.watch.landing import LANDED, Landed

_AGE: Final[list[tuple[str, Literal["ascending", "descending"]]]] = [("modified", "ascending"), ("key", "ascending")]

_PIECE: Final = 1000


@dataclass(frozen=True, slots=True)
class Backlog:
    """The waiting files: their number and bytes, and the ``limit`` oldest of them (in ``LANDED``, by age)."""

    limit: int
    files: int = 0
    bytes: int = 0
    oldest: pa.Table = field(default_factory=LANDED.empty_table)

    def with_more(self, piece: pa.Table) -> Backlog:
        """Return the backlog with another piece of files from the listing that are not ingested yet."""
        if not piece.num_rows:
            return self
        together = pa.concat_tables([self.oldest, piece]).sort_by(_AGE).slice(0, self.limit).combine_chunks()
        size: int = pc.sum(piece["size"]).as_py()
        return replace(self, files=self.files + piece.num_rows, bytes=self.bytes + size, oldest=together)

    def since(self) -> datetime | None:
        """Return when the oldest waiting file landed; None if no file waits."""
        moment: datetime | None = self.oldest["modified"][0].as_py() if self.oldest.num_rows else None
        return moment

    def without(self, keys: Sequence[str]) -> Backlog:
        """Return the backlog without these of its oldest files, which are ingested or in quarantine."""
        done = pc.is_in(self.oldest["key"], value_set=pa.array(keys, pa.string()))
        size: int = pc.sum(self.oldest.filter(done)["size"]).as_py() or 0
        left = self.oldest.filter(pc.invert(done))
        return replace(self, files=self.files - len(keys), bytes=self.bytes - size, oldest=left)

    def batches(self, max_files: int, max_bytes: int) -> Iterator[list[Landed]]:
        """Yield the oldest files in order, in batches of limited files and bytes; a larger file is a batch alone."""
        batch: list[Landed] = []
        size = 0
        rows = (row for piece in self.oldest.to_batches(max_chunksize=_PIECE) for row in piece.to_pylist())
        for file in (Landed(**row) for row in rows):
            if batch and (len(batch) == max_files or size + file.size > max_bytes):
                yield batch
                batch, size = [], 0
            batch.append(file)
            size += file.size
        if batch:
            yield batch
