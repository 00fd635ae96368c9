"""The table at a version, rebuilt from the nearest checkpoint at or below it and the deltas since.

The result is compared with the digest in the version's record (commit-protocol, "History").
"""

from __future__ import annotations

from collections.abc import Container

import zstandard

from kubothek.errors import ObjectNotFound, VersionIncomplete
from kubothek.storage.decompressing import decompress
from kubothek.table.log.journal import Journal
from kubothek.table.log.model import keys
from kubothek.table.log.model.deltas import apply
from kubothek.table.log.model.head import LARGEST, Head, digest
from kubothek.table.log.model.record import Record
from kubothek.table.log.records import chain


def has_checkpoint(journal: Journal, record: Record) -> bool:
    """Return whether this version can be rebuilt without records."""
    return _checkpoint_data(journal, record) is not None


def rebuild(journal: Journal, record: Record) -> Head:
    """Return the head as this commit made it. Raises VersionIncomplete if its records do not add up to it."""
    while True:
        checkpoints = _checkpoints(journal)
        try:
            return _rebuilt(journal, record, checkpoints)
        except VersionIncomplete:
            # A collector writes a checkpoint before it deletes the records below.
            if _checkpoints(journal) == checkpoints:
                raise


def _rebuilt(journal: Journal, record: Record, checkpoints: Container[int]) -> Head:
    head = Head(journal.uuid)
    pending: list[Record] = []
    for step in chain(journal, record, lambda step: step.content_parent):
        if step.version in checkpoints and (checkpoint := _checkpoint(journal, step)):
            head = checkpoint
            break
        pending.append(step)
    for step in reversed(pending):
        try:
            head = apply(head, step.delta, step.version, step.key)
        except KeyError as error:
            raise VersionIncomplete(f"{step.key} removes {error}, which does not exist") from error
    if digest(head.render()) != record.head_digest:
        raise VersionIncomplete(f"version {record.version}: its records do not add up to the head it had")
    return head


def _checkpoints(journal: Journal) -> set[int]:
    listed = journal.store.list(keys.checkpoints(journal.uuid))
    return {version for info in listed if (version := keys.checkpoint_version(info.key)) is not None}


def _checkpoint(journal: Journal, record: Record) -> Head | None:
    data = _checkpoint_data(journal, record)
    return None if data is None else Head.parse(journal.uuid, data)


def _checkpoint_data(journal: Journal, record: Record) -> bytes | None:
    """Return the bytes; None if they are gone, or of another attempt at the same version. Raises VersionIncomplete."""
    key = keys.checkpoint(journal.uuid, record.version)
    try:
        data = decompress(journal.store.get(key), LARGEST)
    except ObjectNotFound:
        return None
    except zstandard.ZstdError as error:
        raise VersionIncomplete(f"{key}: not a checkpoint: {error}; restore it from a backup") from error
    return data if digest(data) == record.head_digest else None
