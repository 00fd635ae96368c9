"""Merge the files of a native index, so that a lookup opens few of them.

A commit merges only small files (:func:`tidied`): its cost does not grow with the table. Maintenance and
``kubothek index`` merge the rest (:func:`compacted`) as streams: memory is bounded by the number of files read at the
same time, not by their size.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa

from kubothek.storage import Store
from kubothek.table.indexes.entries import Stream, merge, with_labels
from kubothek.table.indexes.model import IndexFile
from kubothek.table.indexes.native import Manifest, chains, read_pieces, write_files

FILES_AT_ONCE: Final = 8
"""Number of files of one size class that are merged into one."""
_COMMIT_ROWS: Final = 1 << 18
"""Maximum entries that a commit merges: a fraction of a second."""
_MANY: Final = 32
"""Maximum files that a lookup opens: more than commits leave of the small classes."""
_FAN_IN: Final = 32
"""Maximum streams that are merged at once: each holds a row group, some MiB."""


def tidied(store: Store, uuid: str, manifest: Manifest) -> Manifest:
    """Return the index with its smallest files merged, if there are many of one size class; bounded work.

    An entry is merged again only when its file's class is full, which makes a file of a higher class. Amortized, a
    commit costs the logarithm of the index size, and a lookup opens that many files.
    """
    classes: dict[int, list[IndexFile]] = {}
    for file in manifest.files:
        classes.setdefault(_size_class(file), []).append(file)
    for _, files in sorted(classes.items()):
        if len(files) >= FILES_AT_ONCE and sum(file.rows for file in files) <= _COMMIT_ROWS:
            merged = _merged(store, uuid, manifest, [[file] for file in files], None)
            kept = tuple(file for file in manifest.files if file not in files)
            return replace(manifest, files=kept + merged)
    return manifest


def compacted(store: Store, uuid: str, manifest: Manifest, labels: Collection[str]) -> Manifest:
    """Return the index as files with disjoint values, with entries of these labels only."""
    lines = chains(manifest.files)
    while len(lines) > _FAN_IN:
        lines = [*lines[_FAN_IN:], list(_merged(store, uuid, manifest, lines[:_FAN_IN], labels))]
    files = _merged(store, uuid, manifest, lines, labels)
    return replace(manifest, files=files, uncovered=manifest.uncovered.intersection(labels))


def needs_compaction(manifest: Manifest) -> bool:
    """Return whether a lookup may have to open many files, or must accept uncovered files as matches."""
    return bool(manifest.uncovered) or len(chains(manifest.files)) >= _MANY


def stream(store: Store, files: Sequence[IndexFile], value_type: pa.DataType) -> Stream:
    """Return the entries of files with consecutive values as a stream. Raises IndexStale for a damaged one."""

    def pieces() -> Iterator[pa.Table]:
        for file in files:
            yield from read_pieces(store, file, value_type)

    return pieces


def _merged(
    store: Store,
    uuid: str,
    manifest: Manifest,
    lines: Sequence[Sequence[IndexFile]],
    labels: Collection[str] | None,
) -> tuple[IndexFile, ...]:
    pieces = merge([stream(store, line, manifest.type) for line in lines])
    if labels is not None:
        wanted = labels if isinstance(labels, set | frozenset | dict) else frozenset(labels)
        pieces = map(partial(_of_labels, wanted), pieces)
    return write_files(store, uuid, manifest.column, pieces)


def _of_labels(labels: Collection[str], piece: pa.Table) -> pa.Table:
    return with_labels(piece, labels)


def _size_class(file: IndexFile) -> int:
    """Return the size class; files of one class differ in size by a factor of eight at most."""
    return max(0, file.rows.bit_length() - 10) // 3
