"""Verification of secondary indices: whether an index lists for each file the values that the file holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kubothek.errors import IndexStale, ObjectNotFound
from kubothek.storage import Store
from kubothek.storage.parallel import Spread
from kubothek.table.indexes import kartothek
from kubothek.table.indexes.compact import stream
from kubothek.table.indexes.entries import merge
from kubothek.table.indexes.model import IndexKind, IndexState
from kubothek.table.indexes.native import Manifest, chains, read_manifest
from kubothek.table.log import Head
from kubothek.table.untrusted_parquet import DAMAGED
from kubothek.verify.finding import Finding
from kubothek.verify.values import Values, added, values_by_label

_ADVICE = "kubothek index --rebuild rebuilds the index"


@dataclass(frozen=True, slots=True)
class Index:
    """One index; plain data. ``listed``: a Kartothek index as the head has it; None: ``manifest`` describes it."""

    column: str
    stored: pa.DataType
    manifest: Manifest | None = None
    listed: Any = None


@dataclass(frozen=True, slots=True)
class Indexed:
    """The content of an index: values by label. ``uncovered`` are labels that it does not cover."""

    values: dict[str, Values]
    uncovered: frozenset[str] = frozenset()


def read_indices(
    store: Store, head: Head, schema: pa.Schema, spread: Spread
) -> tuple[dict[str, Indexed], list[Finding]]:
    """Return all indices of a head by column, and findings for unreadable ones. One task reads one index."""
    found: list[Index] = []
    findings: list[Finding] = []
    for column, kind in sorted(head.index_state.kinds().items()):
        try:
            found.append(_index(store, head.index_state, column, kind, schema))
        except IndexStale as error:
            findings.append(_unreadable(column, str(error)))
    whole: dict[str, Indexed] = {}
    for index, answer in zip(found, spread(read_index, found, "read indices"), strict=True):
        if isinstance(answer, str):
            findings.append(_unreadable(index.column, answer))
        else:
            whole[index.column] = Indexed(answer, index.manifest.uncovered if index.manifest else frozenset())
    return whole, findings


def _index(store: Store, state: IndexState, column: str, kind: IndexKind, schema: pa.Schema) -> Index:
    if column not in schema.names:
        raise IndexStale("the table has no such column")
    stored = schema.field(column).type
    if kind is IndexKind.KARTOTHEK:
        return Index(column, stored, listed=state.kartothek[column])
    return Index(column, stored, read_manifest(store, state.native[column]))


def read_index(store: Store, index: Index) -> dict[str, Values] | str:
    """Return the values in an index by label, or why it cannot be read. Raises StoreError."""
    try:
        if index.manifest is None:
            entries, _ = kartothek.read(store, index.column, index.listed, index.stored)
            return values_by_label(entries)
        # after a rollback, several files can have entries of one label: the merge counts each entry once
        streams = [stream(store, files, index.stored) for files in chains(index.manifest.files)]
        return added(values_by_label(piece) for piece in merge(streams))
    except ObjectNotFound as error:
        return f"one of its files no longer exists: {error}"
    except (IndexStale, *DAMAGED) as error:
        return str(error)


def compare(
    indices: Mapping[str, Indexed], held: Mapping[str, Mapping[str, Values]], keys: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield a finding for each index that disagrees with files, about the first such file.

    ``held``  the values of each column that was read, by label
    ``keys``  the keys of the files by label
    """
    for column, index in indices.items():
        wrong = [
            label
            for label, values in held.items()
            if label not in index.uncovered and index.values.get(label, Values()) != values[column]
        ]
        if wrong:
            label = wrong[0]
            said, found = index.values.get(label, Values()).number, held[label][column].number
            more = f" (and of {len(wrong) - 1:,} other files)" if len(wrong) > 1 else ""
            message = f"the index names {said:,} values of it, the file holds {found:,}"
            if said == found:
                message = f"the index names other values of it than the {found:,} that the file holds"
            yield Finding(code="IndexWrong", message=f"{message}{more}; {_ADVICE}", object=keys[label], column=column)


def indexed_columns(head: Head, schema: pa.Schema) -> Sequence[str]:
    """Return the columns that have an index and are in the schema."""
    return [column for column in sorted(head.index_state.kinds()) if column in schema.names]


def _unreadable(column: str, why: str) -> Finding:
    return Finding(code="IndexUnreadable", message=f"{why}; {_ADVICE}", column=column)
