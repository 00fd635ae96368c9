"""Where garbage collection searches, and which objects belong to the dataset. It leaves all others alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import partial
from operator import eq
from typing import Final

from kubothek.table.log.model import keys
from kubothek.table.skipping.names import is_own_key, is_pause, location, own_location

_INDEX_SUFFIX = ".by-dataset-index.parquet"
_ICEBERG = re.compile(r"v\d+\.metadata\.json|version-hint\.text|snap-\d+-[0-9a-f]{32}\.avro|[0-9a-f]{32}-m\.avro")
_PART = re.compile(r"[0-9a-f]{32}-([0-9a-f]{32}|state)")


class Kind(StrEnum):
    """The kind of an object, for reports."""

    DATA = "data"
    INDEX = "index"
    RECORDS = "records"
    CHECKPOINTS = "checkpoints"
    SKIPPING = "skipping"
    INTAKE = "intake"
    CHAIN = "chain"
    """Blocks, slices and checkpoints of a ledger, and the objects that define its chain."""
    JOBS = "jobs"
    PARTS = "parts"
    """Files that processes of a run left for each other when the run died."""
    PLANS = "plans"
    UPLOADS = "uploads"
    """Multipart uploads that a crash left unfinished: not objects yet, and of unknown size."""
    ICEBERG = "iceberg"
    """Iceberg metadata; :mod:`~.iceberg` decides which objects stay."""
    NOTES = "notes"
    """Notes derived from the table, kept for later inspections."""


OWN_TRACES: Final = frozenset({Kind.CHECKPOINTS, Kind.JOBS, Kind.PLANS, Kind.ICEBERG, Kind.NOTES})
"""Written without a reference on purpose, so a young one is not a trace of a failed writer."""


@dataclass(frozen=True, slots=True)
class Area:
    """Objects of one kind below one prefix; ``owns`` returns whether a key has the form of this kind."""

    kind: Kind
    prefix: str
    owns: Callable[[str], bool]


def areas(uuid: str, table: str) -> tuple[Area, ...]:
    """Return all areas of a dataset. Never collected: the head, ``_common_metadata``, markers, schemas, the claim.

    Schemas are named by their content: a writer that restores an old one writes the same key again, and a collector
    could delete it right after. They are few and small. Of several tables of another library, only the directory of
    the head's own table is an area.
    """
    return (
        Area(Kind.RECORDS, keys.records(uuid), lambda key: keys.parse_record(uuid, key) is not None),
        Area(Kind.CHECKPOINTS, keys.checkpoints(uuid), lambda key: keys.checkpoint_version(key) is not None),
        Area(Kind.INDEX, keys.native_indices(uuid), _ends_with(".json", ".parquet")),
        *(Area(Kind.SKIPPING, prefix, partial(_is_entries, uuid)) for prefix in (location(uuid), own_location(uuid))),
        Area(Kind.INTAKE, keys.intakes(uuid), _ends_with(".json", ".parquet")),
        *(Area(Kind.CHAIN, prefix, partial(_is_hash, prefix)) for prefix in chain_prefixes(uuid)),
        Area(Kind.JOBS, keys.jobs(uuid), _ends_with(".json")),
        Area(Kind.PARTS, keys.parts(uuid), _is_part),
        Area(Kind.ICEBERG, keys.iceberg_metadata(uuid), _is_iceberg),
        Area(Kind.PLANS, keys.collections(uuid), _ends_with(".json", ".parquet")),
        *(Area(Kind.NOTES, note, partial(eq, note)) for note in notes(uuid)),
        Area(Kind.INDEX, keys.indices(uuid), _ends_with(_INDEX_SUFFIX)),
        Area(Kind.DATA, keys.data_prefix(uuid, table), _ends_with(keys.DATA_SUFFIX)),
    )


def chain_prefixes(uuid: str) -> tuple[str, ...]:
    """Return the prefixes of a ledger's objects that are named by their content; ``refs/`` and ``info/`` stay."""
    return keys.block(uuid, ""), keys.data_slice(uuid, ""), keys.engine_state(uuid, ""), keys.definitions(uuid)


def notes(uuid: str) -> tuple[str, ...]:
    """Return the keys of all notes, which stay as long as there is a table."""
    return keys.inventory(uuid), keys.lost(uuid), keys.damage(uuid), keys.iceberg_problem(uuid)


class Turn(IntEnum):
    """The order of deletion: an object goes before the objects that it names, so a crash leaves no dangling names."""

    COMMITS = 0
    """Records, checkpoints and Iceberg's table metadata."""
    LISTS = 1
    """Manifests of native indices, manifest lists of Iceberg, pages of standing sources, blocks; also results and
    plans, which name nothing.
    """
    FILES = 2


def turn(kind: Kind, key: str) -> Turn:
    """Return the turn of an object."""
    if kind in (Kind.RECORDS, Kind.CHECKPOINTS) or key.endswith(".metadata.json"):
        return Turn.COMMITS
    if kind is Kind.ICEBERG:
        return Turn.FILES if key.endswith("-m.avro") else Turn.LISTS
    names_others = key.endswith(".json") or (kind is Kind.CHAIN and "/odf/blocks/" in key)
    return Turn.LISTS if names_others else Turn.FILES


def _is_entries(uuid: str, key: str) -> bool:
    """Return whether it is a file of entries. The sentinel that pauses Xskipper is not: it must outlast these files."""
    return is_own_key(uuid, key) and not is_pause(key)


def _is_hash(prefix: str, key: str) -> bool:
    name = key.removeprefix(prefix)
    return name.isascii() and name.isalnum()


def _is_iceberg(key: str) -> bool:
    return _ICEBERG.fullmatch(key.rpartition("/")[2]) is not None


def _is_part(key: str) -> bool:
    return _PART.fullmatch(key.rpartition("/")[2]) is not None


def _ends_with(*endings: str) -> Callable[[str], bool]:
    return lambda key: key.endswith(endings)
