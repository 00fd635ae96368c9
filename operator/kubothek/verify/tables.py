"""A table without a look at rows one by one: every file of a version against the record of its commit.

The head says which files make the version, the records how many bytes and rows each has and what its bytes hash to
(decision 9), and the records together must add up to the head. Files that another program wrote, and those whose
record is below the horizon, have no hash: for them there is their size, if it is known, and whether they can be read.
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
"""So many findings are kept."""
_UNKNOWN: Final = -1
_PIECES_A_CORE: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVerdict:
    """What was verified of a table and what is wrong with it: history first, then files as the head lists them.

    ``files``     that were read, ``bytes`` in all; ``rows`` only if their records were looked at
    ``unproven``  files of the version for which no record has a hash
    ``wrong``     how many things are wrong; ``findings`` are the first of them
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
    """Verify a version of a table; of its files those that came after version ``since``.

    Nothing is written. Raises StoreError, and OSError if large files find no room on the disk.
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
    """The files that are to be verified, as they were committed, and what is wrong with the history of the version."""
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
    """Of a file that came, went and came back, the newest record that has its hash counts."""
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
        message=f"{why}; put the object back from a copy; kubothek heal makes a checkpoint of what is there",
    )
