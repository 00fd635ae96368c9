"""Foreign writers: what to commit when plateau or kartothek has overwritten the head.

They read the head, write a new one, and PUT it blindly. Their change is adopted as one External commit, which notes
what they overwrote for :mod:`kubothek.table.log.interop.recover` (commit-protocol, "Foreign writers").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, Final

from kubothek.errors import HeadUnreadable
from kubothek.table.log.file_sizes import measure, size_of_removed
from kubothek.table.log.history.rebuild import rebuild
from kubothek.table.log.journal import Draft, Journal, Observed
from kubothek.table.log.legacy_heads import explicit, schema_of
from kubothek.table.log.model import keys
from kubothek.table.log.model.changes import Operation
from kubothek.table.log.model.deltas import difference, metadata_delta
from kubothek.table.log.model.head import DRIFT, LOST, OVERWRITTEN, OWN_PREFIX, TABLE, Head
from kubothek.table.log.model.record import Delta, Record, Totals, after, size_of
from kubothek.table.log.prepare.indexing import index_delta, index_metadata, indices_of_foreign
from kubothek.table.log.records import chain, parallel, records_from

FOREIGN: Final = "foreign writer"
_MAX_LISTED: Final = 100
_ADOPTED: Final = "external"


def understood(journal: Journal, seen: Observed) -> Observed:
    """Complete a foreign head: its partitions, its table's name, the record that it was built on."""
    head = explicit(journal, seen.head)
    return replace(seen, head=head, base=seen.base or _newest_known(journal, head))


def _newest_known(journal: Journal, foreign: Head) -> Record | None:
    """Return the record that a head was built on which names no commit.

    If it still lists files of the newest marked version: the newest commit whose effect it shows. That one may be
    unmarked, if its writer died after the swap. Otherwise the head replaces everything, and the newest marked version
    is what it replaces.
    """
    listed = list(records_from(journal, 0))[::-1]
    flags = parallel(lambda other: is_marked(journal, other), listed)
    marked = {other.key for other, is_there in zip(listed, flags, strict=True) if is_there}
    newest = next((journal.record(other.key) for other in listed if other.key in marked), None)
    known = rebuild(journal, newest) if newest else None
    if known and not any(known.holds(label, key) for label, key in foreign.files().items()):
        return newest
    for other in listed[:_MAX_LISTED]:
        record = journal.record(other.key)
        if _shows(foreign, record.delta, certainly=other.key not in marked):
            return record
    return newest


def is_marked(journal: Journal, record: keys.RecordKey) -> bool:
    """Return whether the marker of its commit names this very attempt."""
    marker = journal.markers.get(record.marker)
    return marker is not None and marker.record == record.key


def _shows(head: Head, delta: Delta, *, certainly: bool) -> bool:
    """Return whether the head looks as if the delta was applied; ``certainly``: removals alone do not suffice."""
    if not delta.added and (certainly or not delta.removed):
        return False
    moved = {file.label for file in delta.added}
    return all(head.holds(file.label, file.key) for file in delta.added) and not any(
        label in head.partitions for label, _ in delta.removed if label not in moved
    )


def preview(journal: Journal, seen: Observed) -> Observed:
    """Return a completed foreign head as its adoption would make it, except version and indices. Writes nothing.

    What it overwrote is listed as lost if a marker says that it was committed.
    """
    base, foreign = seen.base, seen.head
    before = rebuild(journal, base) if base else Head(journal.uuid)
    live = before.anew() if before.tombstone else before
    newer = list(records_from(journal, base.version if base else 0))
    others = [other for other in newer if base is None or not _is_of(journal, other, base)]
    flags = parallel(lambda other: is_marked(journal, other), others)
    lost = [other.key for other, is_there in zip(others, flags, strict=True) if is_there]
    metadata = _adopted_metadata(live, foreign, lost, {})
    changes_rows = before.files() != foreign.files()
    if live.chain is not None and live.drift is None and changes_rows:
        metadata[DRIFT] = live.commit
    table = foreign.table
    partitions = {label: {"files": {table: key}} for label, key in foreign.files().items()}
    return replace(seen, head=replace(foreign, partitions=partitions, metadata=metadata))


def adopt(journal: Journal, seen: Observed, live: Head | None = None) -> Draft:
    """Return the commit that adopts a completed foreign head. Writes void markers for what it overwrote unmarked.

    ``live``  the head in the store, where ``seen`` leaves out some of it

    Raises HeadUnreadable if there is no schema.
    """
    base, foreign = seen.base, seen.head
    before = rebuild(journal, base) if base else Head(journal.uuid)
    journal.confirm_base(seen)
    newer = list(records_from(journal, base.version if base else 0))
    others = [other for other in newer if base is None or not _is_of(journal, other, base)]
    lost = _lost(journal, others, before.epoch)
    doubtful = _doubtful(journal, others, lost, base, foreign)
    delta = _difference(journal, before, foreign, lost, doubtful)
    totals = base.totals if base else Totals()
    return Draft(
        id=journal.own_id(_ADOPTED),
        digest="",
        operation=Operation.EXTERNAL,
        by=FOREIGN,
        base=before,
        delta=delta,
        totals=after(
            totals,
            size_of(delta.added),
            size_of_removed(journal.store, delta.removed, before, totals),
            partitions=len(foreign.directories),
        ),
        floor=max((other.version for other in newer), default=0),
        replaced=_replaced(before, live or foreign, delta),
    )


def _difference(
    journal: Journal, before: Head, foreign: Head, lost: Sequence[str], doubtful: Mapping[str, str]
) -> Delta:
    labels, positions, removed = difference(before, foreign)
    live = before.anew() if before.tombstone else before
    ours = journal.schemas.get(live.schema_hash)
    schema = schema_of(journal, foreign, ours, keeps_files=lambda: len(removed) < len(before.partitions))
    if schema is None:
        raise HeadUnreadable(
            f"{keys.head(foreign.uuid)}: no schema at {keys.common_metadata(foreign.uuid, foreign.table)}; "
            "write it again with the library that wrote the dataset"
        )
    schema_hash = journal.schemas.put(schema, live.schema_hash)
    indices = indices_of_foreign(
        journal,
        live,
        foreign,
        added={label: foreign.file(label) for label in labels},
        removed=dict(removed),
        schema=schema,
    )
    metadata = _adopted_metadata(live, foreign, lost, doubtful) | index_metadata(indices)
    if live.chain is not None and live.drift is None and (labels or removed):
        metadata[DRIFT] = live.commit  # the last version whose table was that of the chain
    to_set, dropped = metadata_delta(before.metadata, {k: v for k, v in metadata.items() if v is not None})
    return Delta(
        added=measure(journal.store, [(label, foreign.file(label)) for label in labels]),
        positions=positions,
        removed=removed,
        indices=index_delta(before, indices),
        metadata=to_set,
        dropped=dropped,
        partition_keys=foreign.partition_keys if foreign.partition_keys != before.partition_keys else None,
        schema=schema_hash if schema_hash != live.schema_hash else None,
    )


def _replaced(before: Head, foreign: Head, delta: Delta) -> tuple[str, ...]:
    """Return the indices of the foreign head that the adopted head does not name.

    Readers may still hold the foreign head, so the collector must know them (commit-protocol, "What a collector may
    delete").
    """
    named = {key for key in {**before.indices, **delta.indices}.values() if isinstance(key, str)}
    return tuple(sorted({key for key in foreign.indices.values() if isinstance(key, str)} - named))


def _adopted_metadata(live: Head, foreign: Head, lost: Sequence[str], doubtful: Mapping[str, str]) -> dict[str, Any]:
    """Return their user metadata with our own keys; all of ours if they have none.

    Kartothek's index build erases all metadata by mistake.
    """
    own = {k: v for k, v in live.metadata.items() if k.startswith(OWN_PREFIX)}
    theirs = {k: v for k, v in foreign.metadata.items() if not k.startswith(OWN_PREFIX)}
    notes = {
        LOST: _pending(live, lost),
        OVERWRITTEN: {**live.overwritten, **doubtful},
        TABLE: foreign.table,
    }
    return without_noise((theirs or dict(live.metadata)) | own | notes)


def _pending(live: Head, lost: Sequence[str]) -> list[str]:
    """Return what is to be merged again: the newest record of each commit, as one may have been merged again before."""
    records = [record for key in (*live.lost, *lost) if (record := keys.parse_record(live.uuid, key))]
    newest = {record.marker: record.key for record in records}
    return sorted(newest.values())


def without_noise(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Remove those of our keys that say nothing: empty notes, the usual table name."""
    noise: dict[str, Any] = {LOST: [], OVERWRITTEN: {}, TABLE: keys.DEFAULT_TABLE}
    return {k: v for k, v in metadata.items() if k not in noise or noise[k] != v}


def _is_of(journal: Journal, other: keys.RecordKey, base: Record) -> bool:
    """Return whether it is an attempt at the same commit as the base, so that a head on this base includes it."""
    return other.marker == keys.marker(journal.uuid, base.id)


def _lost(journal: Journal, others: Sequence[keys.RecordKey], epoch: int) -> list[str]:
    """Return those that were committed. Void the others: their swap was overwritten, or will fail."""
    names = list(dict.fromkeys(other.marker for other in others))
    found = parallel(lambda key: journal.markers.decide(key, epoch=epoch), names)
    markers = dict(zip(names, found, strict=True))
    return [o.key for o in others if (marker := markers[o.marker]) and marker.record == o.key]


def _doubtful(
    journal: Journal,
    others: Sequence[keys.RecordKey],
    lost: Sequence[str],
    base: Record | None,
    foreign: Head,
) -> dict[str, str]:
    """Return the adoptions, now void, whose effect this foreign head lacks, with the reason to report; by record.

    The writer of a void commit commits it again, but a foreign change is never repeated. If the adoption was the
    head, this foreign head overwrote it. If it never was, the foreign writer may have undone the change itself, and
    merging it could restore what was meant to go. So it is only reported. An adoption whose files other commits
    know as well is only another attempt at the same change.
    """
    adoptions = f"{keys.markers(journal.uuid)}{keys.encode_id(f'{keys.OWN_ID_PREFIX}{_ADOPTED}:')}"
    void = [other for other in others if other.marker.startswith(adoptions) and other.key not in lost]
    committed = [journal.record(key) for key in lost] if void else []
    doubtful = {}
    for other in void:
        record = journal.record(other.key)
        missing = {(f.label, f.key) for f in record.delta.added if not foreign.holds(f.label, f.key)}
        undone = {item for item in record.delta.removed if foreign.holds(*item)}
        known = (each.delta.files for each in (*committed, *_since(journal, base, record)))
        if not (missing | undone).issubset(set[tuple[str, str]]().union(*known)):
            doubtful[other.key] = (
                "another program's change that was being adopted; whether it was, or was taken back, is not known"
            )
    return doubtful


def _since(journal: Journal, base: Record | None, adopted: Record) -> Iterable[Record]:
    """Return the commits from the base down to where the adoption started."""
    parent = keys.parse_record(journal.uuid, adopted.parent)
    lowest = parent.version if parent else 0
    return takewhile(lambda record: record.version > lowest, chain(journal, base)) if base else ()
