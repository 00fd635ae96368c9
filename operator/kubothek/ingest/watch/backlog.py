"""What waits to be taken, and how it is cut into batches; pure.

The oldest files come first, by the store's clock and then by key: so a listing is read to its end, but only the
``limit`` oldest of what it shows are remembered, however much there is.
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
    """The files that wait: how many, their bytes, and the ``limit`` oldest of them (in ``LANDED``, by age)."""

    limit: int
    files: int = 0
    bytes: int = 0
    oldest: pa.Table = field(default_factory=LANDED.empty_table)

    def with_more(self, piece: pa.Table) -> Backlog:
        """Return the backlog with another piece of the listing that was not taken before."""
        if not piece.num_rows:
            return self
        together = pa.concat_tables([self.oldest, piece]).sort_by(_AGE).slice(0, self.limit).combine_chunks()
        size: int = pc.sum(piece["size"]).as_py()
        return replace(self, files=self.files + piece.num_rows, bytes=self.bytes + size, oldest=together)

    def since(self) -> datetime | None:
        """When the oldest file that waits landed; None if none waits."""
        moment: datetime | None = self.oldest["modified"][0].as_py() if self.oldest.num_rows else None
        return moment

    def without(self, keys: Sequence[str]) -> Backlog:
        """Return the backlog after these of its oldest files are done with."""
        gone = pc.is_in(self.oldest["key"], value_set=pa.array(keys, pa.string()))
        size: int = pc.sum(self.oldest.filter(gone)["size"]).as_py() or 0
        left = self.oldest.filter(pc.invert(gone))
        return replace(self, files=self.files - len(keys), bytes=self.bytes - size, oldest=left)

    def batches(self, max_files: int, max_bytes: int) -> Iterator[list[Landed]]:
        """The oldest files in order, cut so that no batch has more files or bytes; a larger file is one by itself."""
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
