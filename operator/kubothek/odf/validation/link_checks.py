"""Checks of links to large objects (RFC-017): their form batch by batch, and then the objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import FormatInvalid, ObjectNotFound
from kubothek.odf.chain import ADVICE
from kubothek.odf.problems import Problem, Severity
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.multihash import Codec, Multihash
from kubothek.odf.spec.object_links import LinkPath
from kubothek.odf.validation.linked import texts_of, values_at
from kubothek.storage import Store
from kubothek.storage.hashed import hashed_each
from kubothek.words import count

_MOST: Final = 1 << 20
"""The most different links of a slice whose objects are checked."""


class LinkChecks:
    """Collects the links of a slice; ``start`` is the offset of its first record."""

    def __init__(self, columns: Sequence[LinkPath], start: int) -> None:
        self.links: set[Multihash] = set()
        self._columns = columns
        self._rows = start
        self._found: dict[str, Problem] = {}
        self._all = True

    def update(self, rows: pa.RecordBatch) -> None:
        """Read the links of the next rows."""
        for path in self._columns:
            column, name = values_at(rows, path), ".".join(path)
            for text in texts_of(column):
                try:
                    link = Multihash.parse(text)
                except FormatInvalid as error:
                    row = self._rows + pc.index(column.cast(pa.string()), text).as_py()
                    problem = Problem("LinkForm", "OL-02", f"no link: {error}", Severity.REFUSED, column=name, row=row)
                    self._found.setdefault(name, problem)
                    continue
                if len(self.links) < _MOST or link in self.links:
                    self.links.add(link)
                else:
                    self._all = False
        self._rows += rows.num_rows

    def finish(self) -> Iterator[Problem]:
        """Yield the problems; no rows may follow."""
        yield from self._found.values()
        if not self._all:
            message = f"the objects of the first {_MOST:,} links are checked, those of all further ones are not"
            yield Problem("LinkedObjectUnchecked", "OL-03", message, Severity.NOTE)


def check_linked(store: Store, layout: Layout, links: Sequence[Multihash]) -> Iterator[Problem]:
    """Yield the objects whose bytes are not those of their link, and a note on those that are not in the store.

    Copies of a chain by an implementation without RFC-017 have none.
    """
    missing: list[Multihash] = []
    keys = [layout.data(link) for link in links]
    with closing(hashed_each(store, keys)) as objects:
        for link, key, found in zip(links, keys, objects, strict=True):
            if isinstance(found, ObjectNotFound) or link.codec != Codec.SHA3_256:
                missing.append(link)  # objects are named by SHA3-256 only (HS-01)
            elif found.digest != link.digest:
                yield Problem("LinkedObject", "OL-03", f"{key}: its bytes are not those that the link names; {ADVICE}")
    if missing:
        message = (
            f"{count(len(missing), 'linked object')} of this slice cannot be verified: they are not in this store, "
            f"such as {layout.data(missing[0])}. Pull from a source that has them"
        )
        yield Problem("LinkedObjectMissing", "OL-03", message, Severity.NOTE)
