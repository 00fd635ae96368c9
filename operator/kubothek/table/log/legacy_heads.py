"""Heads of other libraries as one table: fill in what they leave out, and select one of several tables.

Kartothek writes heads that Kubothek never does: *implicit* ones, whose partitions are the files below the dataset, and
ones with several tables (Kartothek specification, "Filenames" and "Attributes"). Kubothek reads both as they are, and
writes them only after a user has them converted: users who drop files into a directory, or who read the other tables,
would lose what they rely on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from kubothek.errors import HeadUnreadable, InputError, NeedsConversion, ObjectNotFound, SchemaMismatch
from kubothek.table.log.journal import Journal
from kubothek.table.log.model import keys
from kubothek.table.log.model.head import TABLE, Head, partition_keys_in
from kubothek.table.schema import merge, parse_common_metadata

_SCHEMA_FILE = "_common_metadata"


def explicit(journal: Journal, head: Head) -> Head:
    """Return the head with its partitions and its table's name; lists the dataset's files if the head lacks these.

    Files of one partition in several tables share a label. A directory without ``_common_metadata`` is not a table:
    unrelated files may lie below the dataset, and a reader would fail on them.
    """
    if not head.implicit and (head.partitions or TABLE in head.metadata):
        return head
    found = list(_files(journal, head.uuid))
    tables = sorted(table for table, name in found if name == _SCHEMA_FILE)
    if head.implicit:
        partitions: dict[str, Any] = {}
        for table, name in found:
            if table in tables and name.endswith(keys.DATA_SUFFIX):
                label = name.removesuffix(keys.DATA_SUFFIX)
                partition = partitions.setdefault(label, {"files": {}})
                partition["files"][table] = f"{keys.data_prefix(head.uuid, table)}{name}"
        head = replace(head, partitions=partitions, implicit=False, partition_keys=_partition_keys(head, partitions))
    if head.partitions or TABLE in head.metadata or not tables:
        return head
    return head.with_metadata({**head.metadata, TABLE: tables[0]})


def one_table(head: Head, table: str | None) -> Head:
    """Return the head of one table. Raises InputError if there are several and none is named, or no such table."""
    if table is None and len(head.tables) == 1:
        return head
    if table is None:
        names = ", ".join(map(repr, head.tables))
        raise InputError(
            f"dataset {head.uuid!r} has the tables {names}; name one, as {head.uuid}/{head.tables[0]}, in Python with "
            f'table="{head.tables[0]}", in kubothek adopt --convert with --table {head.tables[0]}'
        )
    if table not in head.tables:
        raise InputError(f"dataset {head.uuid!r} has no table {table!r}; it has {', '.join(map(repr, head.tables))}")
    return head.of_table(table) if len(head.tables) > 1 else head


def require_writable(stored: Head, understood: Head) -> None:
    """Raise NeedsConversion for a foreign head that is read only; ``understood`` is what :func:`explicit` returned.

    A head without any file passes: the first write makes it explicit, as in kartothek itself.
    """
    why = None
    if len(understood.tables) > 1:
        why = f"has the tables {', '.join(map(repr, understood.tables))}"
    elif stored.implicit and understood.partitions:
        why = "does not list its partitions, which are whatever files lie there"
    if why:
        raise NeedsConversion(
            f"dataset {stored.uuid!r} {why}: Kubothek reads it, and writes it once it is converted: "
            f"kubothek adopt --convert {stored.uuid}"
        )


def schema_of(
    journal: Journal, head: Head, ours: pa.Schema | None, *, keeps_files: Callable[[], bool]
) -> pa.Schema | None:
    """Return the schema of a foreign head: theirs, merged with ours if they fit (null columns may have gained a type).

    ``keeps_files``  whether files written with our schema remain; if so, ours wins over one that does not fit
    """
    key = keys.common_metadata(head.uuid, head.table)
    try:
        theirs = parse_common_metadata(journal.store.get(key))
    except ObjectNotFound:
        return ours
    except SchemaMismatch as error:
        raise HeadUnreadable(f"{key}: {error}") from error
    if ours is None:
        return theirs
    try:
        return merge(ours, theirs)
    except SchemaMismatch:
        return ours if keeps_files() else theirs


def _files(journal: Journal, uuid: str) -> Iterator[tuple[str, str]]:
    """Yield table and name of each object below the dataset that can belong to a table."""
    for info in journal.store.list(f"{uuid}/"):
        table, slash, name = info.key.removeprefix(f"{uuid}/").partition("/")
        if slash and not info.key.startswith(keys.indices(uuid)):
            yield table, name


def _partition_keys(head: Head, partitions: Mapping[str, Any]) -> tuple[str, ...]:
    first = next((key for partition in partitions.values() for key in partition["files"].values()), None)
    return head.partition_keys or (partition_keys_in(first) if first else ())
