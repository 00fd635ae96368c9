"""The head: a Kartothek v4 metadata file that also names its commit.

Format: Kartothek specification, "Attributes". Kubothek's own keys are in ``metadata``: only there do they survive an
update by a foreign writer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple, Self
from urllib.parse import unquote

import msgpack  # type: ignore[import-untyped]
import orjson
import zstandard

from kubothek.errors import HeadUnreadable, InvalidKey
from kubothek.storage.decompressing import decompress
from kubothek.storage.foreign_keys import check_foreign_keys, foreign_key
from kubothek.table.indexes.model import Dialect, IndexKind, IndexState
from kubothek.table.log.model import keys
from kubothek.table.log.model.ledgers import ChainNote
from kubothek.table.log.model.paths import count
from kubothek.table.log.model.writers import Grant
from kubothek.table.skipping.model import NONE, SkippingState

VERSION: Final = "kubothek_version"
COMMIT: Final = "kubothek_commit"
SCHEMA: Final = "kubothek_schema"
HORIZON: Final = "kubothek_horizon"
SINCE: Final = "kubothek_since"
FENCED: Final = "kubothek_fenced"
TOMBSTONE: Final = "kubothek_tombstone"
TABLE: Final = "kubothek_table"
LOST: Final = "kubothek_lost"
OVERWRITTEN: Final = "kubothek_overwritten"
LAYOUT: Final = "kubothek_layout"
EXPORT: Final = "kubothek_export"
WRITERS: Final = "kubothek_writers"
INDEX: Final = "kubothek_index"
DIALECT: Final = "kubothek_dialect"
PENDING: Final = "kubothek_index_pending"
SKIPPING: Final = "kubothek_skipping"
TAGS: Final = "kubothek_tags"
LEDGER: Final = "kubothek_ledger"
DRIFT: Final = "kubothek_drift"
INTAKE: Final = "kubothek_intake_"
"""The name of a standing source follows."""
OWN_PREFIX: Final = "kubothek_"
_VERSION_HINT: Final = "versionHint"

IcebergExports = Literal["Off", "Omit", "Refuse"]
"""Whether commits also write Iceberg metadata, and what happens to columns of types that Iceberg lacks: they are left
out, or nothing is exported.
"""

_FENCED_LIMIT = 16
LARGEST: Final = 1 << 30
"""Largest size in bytes of a head that was stored compressed."""
_VERSIONS = 1 << 62


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The deletion of a dataset: by which incarnation, and when by the writer's clock."""

    incarnation: str
    time: datetime
    of_nothing: bool = False
    """There was no version: it only fences first commits that never happened, and a writer may begin on top of it."""


@dataclass(frozen=True, slots=True)
class Tag:
    """A tagged version: its number, and the key of its record. It stays complete while it has a tag."""

    version: int
    record: str


class IcebergSetting(NamedTuple):
    """The export of Iceberg metadata after commits.

    ``version_hint``  whether exports also write ``version-hint.text``, by which readers of files alone find the table
    """

    exports: IcebergExports = "Off"
    version_hint: bool = True

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the head that sets the export to this; None removes it."""
        if self.exports == "Off":
            return {EXPORT: None}
        return {EXPORT: {"iceberg": self.exports, **({} if self.version_hint else {_VERSION_HINT: False})}}


@dataclass(frozen=True)
class Head:
    """A parsed head. The order of ``partitions`` is the order in which readers meet the rows.

    ``partitions`` maps a label to ``{"files": {table: key}}`` exactly as the file has it; the maps are shared
    between heads and never changed. ``implicit``: the file had no ``partitions``, so a reader must list.
    """

    uuid: str
    partitions: Mapping[str, Any] = field(default_factory=dict)
    partition_keys: tuple[str, ...] = ()
    indices: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    implicit: bool = False

    @classmethod
    def parse(cls, uuid: str, data: bytes) -> Self:
        """Parse the JSON form. Raises HeadUnreadable with what is wrong.

        All keys of data files and indices must be of this dataset: other code reads and deletes them unchecked.
        """
        try:
            document = orjson.loads(data)
        except orjson.JSONDecodeError:
            try:
                document = json.loads(data)  # other writers' metadata may hold NaN, which orjson rejects
                orjson.dumps(document)
            except (ValueError, TypeError) as error:
                raise HeadUnreadable(f"{keys.head(uuid)}: not JSON: {error}") from error
        return cls._of(uuid, keys.head(uuid), document)

    @classmethod
    def parse_packed(cls, uuid: str, data: bytes) -> Self:
        """Parse the packed form (msgpack.zstd), which plateau can write."""
        key = keys.packed_head(uuid)
        try:
            document = msgpack.unpackb(decompress(data, LARGEST))
        except (zstandard.ZstdError, ValueError, msgpack.UnpackException) as error:
            raise HeadUnreadable(f"{key}: not zstd-compressed msgpack: {error}") from error
        return cls._of(uuid, key, document)

    @classmethod
    def _of(cls, uuid: str, key: str, document: Any) -> Self:
        if not isinstance(document, dict):
            raise HeadUnreadable(f"{key}: not a JSON object")
        metadata = _typed(key, document, "metadata", dict, {})
        if document.get("dataset_metadata_version") != 4 and TOMBSTONE not in metadata:
            raise HeadUnreadable(f"{key}: dataset_metadata_version is not 4, the only one that is supported")
        if document.get("dataset_uuid") != uuid:
            raise HeadUnreadable(f"{key}: dataset_uuid is {document.get('dataset_uuid')!r}, not {uuid!r}")
        partitions = _typed(key, document, "partitions", dict, {})
        partition_keys = document.get("partition_keys")
        if partition_keys is None:
            partition_keys = _keys_of_first(partitions)
        if not isinstance(partition_keys, list) or not all(isinstance(name, str) for name in partition_keys):
            raise HeadUnreadable(f"{key}: partition_keys is not a list of names")
        indices = _typed(key, document, "indices", dict, {})
        _check_keys(uuid, key, partitions, indices, metadata)
        return cls(
            uuid=uuid,
            partitions=partitions,
            partition_keys=tuple(partition_keys),
            indices=indices,
            metadata=metadata,
            implicit="partitions" not in document,
        )

    def check_format(self) -> Self:
        """Return the head if all its data files are Parquet: other writers may differ. Raises HeadUnreadable."""
        for partition in self.partitions.values():
            for key in partition["files"].values():
                if not key.endswith(keys.DATA_SUFFIX):
                    raise HeadUnreadable(
                        f"{keys.head(self.uuid)}: {key!r} is not a {keys.DATA_SUFFIX} file; "
                        "store the dataset as Parquet"
                    )
        return self

    def render(self) -> bytes:
        """Return the JSON form. A tombstone has no ``dataset_metadata_version``: other libraries take it as absent.

        Found by experiment: plateau then raises KeyError, as for a missing dataset, and refuses to update it; cube
        discovery skips it.
        """
        document: dict[str, Any] = {} if self.tombstone else {"dataset_metadata_version": 4}
        document["dataset_uuid"] = self.uuid
        if self.indices:
            document["indices"] = self.indices
        document["metadata"] = self.metadata
        if not self.implicit:
            document["partitions"] = self.partitions
        document["partition_keys"] = self.partition_keys
        return orjson.dumps(document)

    @property
    def version(self) -> int:
        """The version of the commit that the head names; 0 if it names none."""
        return _number(self.metadata.get(VERSION))

    @property
    def commit(self) -> str | None:
        """The key of the record that made the head, or that a foreign writer built on; None if it names none."""
        record = keys.parse_record(self.uuid, self.metadata.get(COMMIT))
        return record.key if record else None

    @property
    def schema_hash(self) -> str | None:
        """The hash that names the schema object."""
        schema_hash = self.metadata.get(SCHEMA)
        return schema_hash if isinstance(schema_hash, str) else None

    @property
    def index_state(self) -> IndexState:
        """The secondary indices: Kartothek's and native ones. Ignores unknown kinds, and native indices of another
        dataset, which a copied head names.
        """
        native, pending = self.metadata.get(INDEX), self.metadata.get(PENDING)
        dialect, area, kinds = self.metadata.get(DIALECT), keys.native_indices(self.uuid), [*IndexKind]
        return IndexState(
            self.uuid,
            self.indices,
            {c: key for c, key in native.items() if _is_below(key, area)} if isinstance(native, dict) else {},
            Dialect.PLATEAU if dialect == Dialect.PLATEAU else Dialect.KARTOTHEK,
            {c: IndexKind(kind) for c, kind in pending.items() if kind in kinds} if isinstance(pending, dict) else {},
        )

    @cached_property
    def skipping(self) -> SkippingState:
        """The definition of the skipping metadata, and the files that hold it; none if it cannot be parsed."""
        found = self.metadata.get(SKIPPING)
        try:
            state = NONE if found is None else SkippingState.from_json(found)
            check_foreign_keys([key for part in state.parts for key in part.keys], keys.side(self.uuid))
        except (AttributeError, KeyError, TypeError, ValueError, InvalidKey):
            return NONE  # another program wrote it
        return state

    @property
    def iceberg(self) -> IcebergExports:
        """Whether commits also write Iceberg metadata; Off if the setting cannot be parsed."""
        return self.iceberg_setting.exports

    @property
    def iceberg_setting(self) -> IcebergSetting:
        """How commits write Iceberg metadata; they do not if the setting cannot be parsed."""
        found = self.metadata.get(EXPORT)
        if not isinstance(found, dict) or found.get("iceberg") not in ("Omit", "Refuse"):
            return IcebergSetting()
        return IcebergSetting(found["iceberg"], found.get(_VERSION_HINT) is not False)

    @property
    def grant(self) -> Grant | None:
        """What the owner permits other writers; None if there are none, or if it cannot be parsed."""
        return Grant.of_json(self.metadata.get(WRITERS))

    @property
    def horizon(self) -> int:
        """The oldest version that has not expired, except tagged ones."""
        return _number(self.metadata.get(HORIZON))

    @property
    def since(self) -> int:
        """The version of the tombstone below this incarnation of the dataset; 0 if it is the first."""
        return _number(self.metadata.get(SINCE))

    @property
    def fenced(self) -> tuple[str, ...]:
        """Incarnations that were deleted below this one."""
        return _texts(self.metadata.get(FENCED))

    @property
    def lost(self) -> tuple[str, ...]:
        """Records that a foreign writer overwrote and that are still to be merged again."""
        return tuple(key for key in _texts(self.metadata.get(LOST)) if keys.parse_record(self.uuid, key))

    @property
    def overwritten(self) -> Mapping[str, str]:
        """Records that a foreign writer overwrote, with why they cannot be merged again: a user must decide."""
        found = self.metadata.get(OVERWRITTEN)
        pairs = found.items() if isinstance(found, dict) else ()
        return {key: str(why) for key, why in pairs if keys.parse_record(self.uuid, key)}

    @property
    def tags(self) -> Mapping[str, Tag]:
        """The tagged versions, by name."""
        return tags_in(self.uuid, self.metadata)

    @property
    def tombstone(self) -> Tombstone | None:
        """The deletion; None if the dataset is not deleted."""
        found = self.metadata.get(TOMBSTONE)
        if not isinstance(found, dict):
            return None
        try:
            time = datetime.fromisoformat(str(found.get("time")))
        except ValueError:
            time = datetime.fromtimestamp(0, UTC)
        return Tombstone(str(found.get("incarnation", "")), time, of_nothing=self.version == 1)

    @property
    def table(self) -> str:
        """The name of the one table, from where kartothek takes it: the first partition."""
        first = next(iter(self.partitions.values()), None)
        return next(iter(first["files"])) if first else str(self.metadata.get(TABLE, keys.DEFAULT_TABLE))

    @property
    def tables(self) -> tuple[str, ...]:
        """All tables, in the order in which the partitions name them; only kartothek 5.3 writes more than one."""
        named = dict.fromkeys(name for partition in self.partitions.values() for name in partition["files"])
        return tuple(named) or (self.table,)

    def of_table(self, table: str) -> Head:
        """Return the head of one table: only the partitions that have a file of it."""
        partitions = {
            label: {"files": {table: files[table]}}
            for label, files in ((label, partition["files"]) for label, partition in self.partitions.items())
            if table in files
        }
        return replace(self, partitions=partitions, metadata={**self.metadata, TABLE: table})

    def intake(self, source: str) -> str | None:
        """Return the page of what a standing source has ingested; None if nothing. Raises HeadUnreadable."""
        page = self.metadata.get(INTAKE + source)
        try:
            return None if page is None else foreign_key(page, keys.intakes(self.uuid))
        except InvalidKey as error:  # read as None, it would ingest all rows again
            raise HeadUnreadable(f"{keys.head(self.uuid)}: metadata.{INTAKE}{source}: {error}") from error

    @property
    def intakes(self) -> Mapping[str, str]:
        """The page of what each standing source has ingested, by source."""
        names = [key.removeprefix(INTAKE) for key in self.metadata if key.startswith(INTAKE)]
        return {name: page for name in names if (page := self.intake(name)) is not None}

    @property
    def chain(self) -> ChainNote | None:
        """The state of a ledger's chain; None if the dataset is not a ledger. Raises HeadUnreadable if invalid."""
        found = self.metadata.get(LEDGER)
        try:
            return None if found is None else ChainNote.of_json(found)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise HeadUnreadable(
                f"{keys.head(self.uuid)}: metadata.{LEDGER} does not say where the chain is: {error!r}"
            ) from error

    @property
    def drift(self) -> str | None:
        """The record of the last version whose table was the chain's view, if another program changed it since."""
        record = keys.parse_record(self.uuid, self.metadata.get(DRIFT))
        return record.key if record else None

    @property
    def epoch(self) -> int:
        """The version of the tombstone that new commits belong above; differs between incarnations of a dataset."""
        return self.version if self.tombstone else self.since

    def file(self, label: str) -> str:
        """Return the key of a partition's file."""
        return str(next(iter(self.partitions[label]["files"].values())))

    @cached_property
    def directories(self) -> Mapping[str, int]:
        """The number of files in each directory of data files."""
        return count(next(iter(p["files"].values())) for p in self.partitions.values())

    def files(self) -> dict[str, str]:
        """Return all keys by label, in order."""
        return {label: next(iter(p["files"].values())) for label, p in self.partitions.items()}

    def holds(self, label: str, key: str) -> bool:
        """Return whether the head lists this file under this label."""
        return label in self.partitions and self.file(label) == key

    def anew(self) -> Head:
        """Return the start of a new incarnation: an empty table on top of this tombstone."""
        tombstone = self.tombstone
        assert tombstone is not None, "only a deleted dataset can start again"
        fenced = [*self.fenced, tombstone.incarnation][-_FENCED_LIMIT:]
        metadata = {SINCE: self.version, FENCED: fenced}
        kept = (VERSION, COMMIT, HORIZON)
        return Head(self.uuid, metadata={k: v for k, v in self.metadata.items() if k in kept} | metadata)

    def with_metadata(self, metadata: Mapping[str, Any]) -> Head:
        """Return the head with this metadata instead."""
        return replace(self, metadata=metadata)


def digest(data: bytes) -> str:
    """Return the digest by which a record identifies the head that it made."""
    return sha256(data).hexdigest()


def tags_in(uuid: str, metadata: Mapping[str, Any]) -> dict[str, Tag]:
    """Return the tags in a head's metadata; skips invalid ones, which foreign writers may leave."""
    found = metadata.get(TAGS)
    named = found.items() if isinstance(found, dict) else ()
    pairs = ((name, value) for name, value in named if isinstance(value, list) and len(value) == 2)
    records = ((name, keys.parse_record(uuid, key)) for name, (_, key) in pairs)
    return {name: Tag(record.version, record.key) for name, record in records if record is not None}


def partition_keys_in(key: str) -> tuple[str, ...]:
    """Return the names of the partition columns in a data file's key."""
    return tuple(unquote(part.split("=")[0]) for part in key.split("/")[2:-1] if part.count("=") == 1)


def _typed(key: str, document: dict[str, Any], name: str, kind: type[dict[str, Any]], default: Any) -> Any:
    value = document.get(name, default)
    if not isinstance(value, kind):
        raise HeadUnreadable(f"{key}: {name} is not a JSON object")
    return value


def _keys_of_first(partitions: Mapping[str, Any]) -> list[str]:
    """Return Kartothek's own fallback without ``partition_keys``: the columns in the first partition's path."""
    first = next(iter(partitions.values()), None)
    files = first.get("files") if isinstance(first, dict) else None
    return list(partition_keys_in(str(next(iter(files.values()))))) if isinstance(files, dict) and files else []


def _check_keys(
    uuid: str, place: str, partitions: Mapping[str, Any], indices: Mapping[str, Any], metadata: Mapping[str, Any]
) -> None:
    try:
        files = [partition["files"] for partition in partitions.values()]
        named = [key for each in files for key in each.values()]
        tables = {table for each in files for table in each}
    except (AttributeError, KeyError, TypeError):
        files, named, tables = [{}], [], set()
    if not all(files):
        label = next(label for label, partition in partitions.items() if not _names_files(partition))
        raise HeadUnreadable(f"{place}: partition {label!r} names no file")
    try:
        check_foreign_keys(named, *keys.data_prefixes(uuid))
        check_foreign_keys([index for index in indices.values() if not isinstance(index, dict)], keys.dataset(uuid))
        for table in (*tables, metadata.get(TABLE, keys.DEFAULT_TABLE)):
            check_table(uuid, table)
    except InvalidKey as error:
        raise HeadUnreadable(f"{place}: {error}; write the head again with keys of this dataset") from error


def check_table(uuid: str, table: object) -> None:
    """Raise InvalidKey unless this is the name of a table: one segment of a key."""
    if not isinstance(table, str) or "/" in table:
        raise InvalidKey(f"{table!r:.200} is not the name of a table")
    foreign_key(keys.common_metadata(uuid, table), keys.dataset(uuid))


def _names_files(partition: object) -> bool:
    files = partition.get("files") if isinstance(partition, dict) else None
    return isinstance(files, dict) and bool(files)


def _is_below(key: object, prefix: str) -> bool:
    try:
        foreign_key(key, prefix)
    except InvalidKey:
        return False
    return True


def _number(value: object) -> int:
    """Return the number of a version; 0 for what cannot be one."""
    return value if type(value) is int and 0 <= value < _VERSIONS else 0


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else ()
