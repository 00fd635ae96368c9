"""Verification of a table without reading single rows: every file of a version against the record of its commit.

The head says which files make up the version. The records have the bytes, rows and hash of each (decision 9), and must
together add up to the head. Files of other programs, and those whose record is below the horizon, have no hash: only
their size, if known, and their readability are verified.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from kubothek.errors import VersionIncomplete
from kubothek.odf import Level
from kubothek.storage import Store
from kubothek.storage.parallel import Spread
from kubothek.table.log import DatasetLog, PartitionFile, Record, Snapshot
from kubothek.table.log.history.rebuild import rebuild
from kubothek.verify.files import FileCheck, FileFacts, portions
from kubothek.verify.finding import Finding
from kubothek.verify.indices import compare, indexed_columns, read_indices

KEPT: Final = 100
"""Maximum number of findings in a verdict."""
_UNKNOWN: Final = -1
_PIECES_A_CORE: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVerdict:
    """The result of verifying a table: findings about its history first, then about files in the order of the head.

    ``files``     number of files that were read, ``bytes`` of all; ``rows`` only at level FULL
    ``unproven``  files of the version without a hash in any record
    ``wrong``     number of findings; ``findings`` are the first of them
    """

    version: int
    files: int = 0
    rows: int = 0
    bytes: int = 0
    unproven: int = 0
    wrong: int = 0
    findings: tuple[Finding, ...] = ()


def verify_table(
    store: Store,
    log: DatasetLog,
    snapshot: Snapshot,
    spread: Spread,
    *,
    level: Level = Level.FULL,
    since: int = 0,
    cores: int | None = None,
) -> TableVerdict:
    """Verify a version of a table; of its files, those added after version ``since``.

    Writes nothing. Raises StoreError, and OSError if the disk has no room for large files.
    """
    files, findings = _committed(log, snapshot, since)
    if level is Level.CHAIN:
        return _verdict(snapshot, files, [], findings)
    at_least = _PIECES_A_CORE * (cores or os.cpu_count() or 1)
    schema = snapshot.schema
    indexed = tuple(indexed_columns(snapshot.head, schema)) if schema is not None else ()
    check = FileCheck(
        level,
        schema,
        tuple(name for name in schema.names if name not in snapshot.head.partition_keys) if schema is not None else (),
        indexed if level is Level.FULL else (),
    )
    pieces = portions(files, at_least)
    facts = [each for piece in spread(check, pieces, "verify files") for each in piece]
    findings += [each.finding for each in facts if each.finding is not None]
    if level is Level.FULL and schema is not None and indexed:
        indices, unreadable = read_indices(store, snapshot.head, schema, spread)
        held = {each.label: each.values for each in facts if each.finding is None}
        findings += [*unreadable, *compare(indices, held, {file.label: file.key for file in files})]
    return _verdict(snapshot, files, facts, findings)


def _verdict(
    snapshot: Snapshot, files: list[PartitionFile], facts: list[FileFacts], findings: list[Finding]
) -> TableVerdict:
    return TableVerdict(
        version=snapshot.version,
        files=len(facts),
        rows=sum(each.rows for each in facts),
        bytes=sum(each.bytes for each in facts),
        unproven=sum(file.sha3 is None for file in files),
        wrong=len(findings),
        findings=tuple(findings[:KEPT]),
    )


def _committed(log: DatasetLog, snapshot: Snapshot, since: int) -> tuple[list[PartitionFile], list[Finding]]:
    """Return the files to verify, as they were committed, and findings about the history of the version."""
    labels = {key: label for label, key in snapshot.head.files().items()}
    known: dict[str, PartitionFile] = {}
    findings: list[Finding] = []
    old: set[str] = set()
    try:
        for record in log.history():
            if record.version > snapshot.version:
                continue
            if record.version == snapshot.version:
                findings += _adds_up(log, record)
            elif len(known) + len(old) == len(labels):
                break
            if record.version <= since:
                old.update(labels.keys() - known.keys())
                break
            _note(known, labels, record.delta.added)
    except VersionIncomplete as error:
        findings.append(_history(str(error)))
    wanted = (file for file in labels.items() if file[0] not in old)
    unknown = PartitionFile("", "", _UNKNOWN, _UNKNOWN)
    return [known.get(key) or replace(unknown, label=label, key=key) for key, label in wanted], findings


def _note(known: dict[str, PartitionFile], labels: dict[str, str], added: Iterable[PartitionFile]) -> None:
    """Note files by key. For a file that was removed and added again, the newest record with its hash counts."""
    for file in added:
        if file.key in labels and (file.key not in known or (known[file.key].sha3 is None and file.sha3 is not None)):
            known[file.key] = replace(file, label=labels[file.key])


def _adds_up(log: DatasetLog, record: Record) -> Iterable[Finding]:
    try:
        rebuild(log.journal, record)
    except VersionIncomplete as error:
        yield _history(str(error))


def _history(why: str) -> Finding:
    return Finding(
        code="HistoryBroken",
        message=f"{why}; restore the object from a copy; kubothek heal makes a checkpoint of the present head",
    )
