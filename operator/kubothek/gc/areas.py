"""Where garbage is looked for, and what there can be attributed to the dataset. Anything else is left alone."""

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
_PART = re.compile(r"[0-9a-f]{32}-([0-9a-f]{32}|state)")


class Kind(StrEnum):
    """What an object is, for reports."""

    DATA = "data"
    INDEX = "index"
    RECORDS = "records"
    CHECKPOINTS = "checkpoints"
    SKIPPING = "skipping"
    INTAKE = "intake"
    CHAIN = "chain"
    """Blocks, slices and checkpoints of a ledger, and what defines it."""
    JOBS = "jobs"
    PARTS = "parts"
    """What processes of a run left for each other, which died before its end."""
    PLANS = "plans"
    UPLOADS = "uploads"
    """In parts, which a crash has left unfinished: objects that are not there yet, of a size that nobody knows."""
    NOTES = "notes"
    """What was worked out of the table, and is kept for the next look."""


OWN_TRACES: Final = frozenset({Kind.CHECKPOINTS, Kind.JOBS, Kind.PLANS, Kind.NOTES})
"""Written on purpose without a reference, so a young one is no trace of a writer that failed."""


@dataclass(frozen=True, slots=True)
class Area:
    """Objects of one kind below one prefix; ``owns`` tells whether an object's key has the form of this kind's."""

    kind: Kind
    prefix: str
    owns: Callable[[str], bool]


def areas(uuid: str, table: str) -> tuple[Area, ...]:
    """All of a dataset but what is never collected: head, ``_common_metadata``, markers, schemas, the claim.

    Schemas are named by their content: a writer that brings an old one back writes the same key again, and nothing
    could keep a collector from deleting it right after. They are few and small. Of several tables that another
    library made, only the head's own directory is looked at.
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
        Area(Kind.PLANS, keys.collections(uuid), _ends_with(".json", ".parquet")),
        *(Area(Kind.NOTES, note, partial(eq, note)) for note in notes(uuid)),
        Area(Kind.INDEX, keys.indices(uuid), _ends_with(_INDEX_SUFFIX)),
        Area(Kind.DATA, keys.data_prefix(uuid, table), _ends_with(keys.DATA_SUFFIX)),
    )


def chain_prefixes(uuid: str) -> tuple[str, ...]:
    """Where the objects of a ledger are that are named by their content; ``refs/`` and ``info/`` stay."""
    return keys.block(uuid, ""), keys.data_slice(uuid, ""), keys.engine_state(uuid, ""), keys.definitions(uuid)


def notes(uuid: str) -> tuple[str, ...]:
    """The keys of all notes: they stay as long as there is a table."""
    return keys.inventory(uuid), keys.lost(uuid), keys.damage(uuid)


class Turn(IntEnum):
    """When an object goes: what names others goes before these, so that what a crash leaves names nothing gone."""

    COMMITS = 0
    """Records and checkpoints."""
    LISTS = 1
    """Manifests of native indices, pages of standing sources, blocks; results and plans name nothing."""
    FILES = 2


def turn(kind: Kind, key: str) -> Turn:
    """The turn of an object."""
    if kind in (Kind.RECORDS, Kind.CHECKPOINTS):
        return Turn.COMMITS
    names_others = key.endswith(".json") or (kind is Kind.CHAIN and "/odf/blocks/" in key)
    return Turn.LISTS if names_others else Turn.FILES


def _is_entries(uuid: str, key: str) -> bool:
    """What keeps real Xskipper from mixing files of two wishes stays until these are gone."""
    return is_own_key(uuid, key) and not is_pause(key)


def _is_hash(prefix: str, key: str) -> bool:
    name = key.removeprefix(prefix)
    return name.isascii() and name.isalnum()


def _is_part(key: str) -> bool:
    return _PART.fullmatch(key.rpartition("/")[2]) is not None


def _ends_with(*endings: str) -> Callable[[str], bool]:
    return lambda key: key.endswith(endings)
