"""Options of the format ``kubothek``: which dataset, and what a read or a write of it does."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Self

from kubothek.catalog import Dataset, Lake
from kubothek.errors import InputError
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.expressions import TRUE, Predicate, parse
from kubothek.table.log import Snapshot, Version

_PLACE: Final = ("path", "uuid", "endpoint", "region", "credentialsDir")
_READ: Final = (*_PLACE, "columns", "where", "versionAsOf", "timestampAsOf", "tagAsOf")
_READ_STREAM: Final = (*_PLACE, "columns", "where", "startingVersion")
_WRITE: Final = (*_PLACE, "writer", "partitionBy", "mergeSchema", "commitId", "replaceWhere", "partitionOverwriteMode")
_WRITE_STREAM: Final = (*_PLACE, "writer", "partitionBy", "mergeSchema")
_OF_SPARK: Final = frozenset({"queryname", "checkpointlocation", "location", "owner", "provider"})
"""Options that Spark adds, in lower case: of streams, and of tables in its catalog."""
_PROGRAM: Final = "spark"
"""The author of commits of programs without a name as a writer, in commit records."""


@dataclass(frozen=True, slots=True)
class Place:
    """The store and the dataset that the options name; ``writer`` as for ``kubothek.open``."""

    store: StoreConfig
    uuid: str
    writer: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Self:
        """Read the options. Raises InputError for a missing one."""
        for name in ("path", "uuid"):
            if not given.get(name):
                raise InputError(
                    f"the option {name!r} is missing: path of the store, uuid of the dataset. Spark does not pass the "
                    "options of a catalog's table to writes; write to a temporary view, or INSERT INTO t WITH (…)"
                )
        config = StoreConfig(given["path"], given.get("endpoint"), given.get("region"), given.get("credentialsDir"))
        return cls(config, given["uuid"], given.get("writer"))

    def open(self) -> tuple[Store, Dataset]:
        """Return the store and the dataset, which need not exist."""
        lake = self.lake()
        return lake.store, Dataset(lake, self.uuid)

    def lake(self) -> Lake:
        """Return the lake of the store; the author of its commits is the writer, or ``spark``."""
        return Lake(open_store(self.store), self.writer, program=_PROGRAM)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What is read. ``columns`` None = all; ``starting`` is the first version of a stream, None = all rows first."""

    place: Place
    columns: tuple[str, ...] | None
    where: Predicate
    as_of: Version | None = None
    starting: int | None = None

    @classmethod
    def of(cls, given: Mapping[str, str], *, stream: bool = False) -> Self:
        """Validate options. Raises InputError for a missing, unknown or invalid one."""
        _require_known(given, _READ_STREAM if stream else _READ)
        columns = given.get("columns")
        return cls(
            Place.of(given),
            None if columns is None else _names(columns),
            parse(given["where"]) if "where" in given else TRUE,
            _as_of(given.get("versionAsOf"), given.get("timestampAsOf"), given.get("tagAsOf")),
            _starting(given.get("startingVersion")),
        )

    def snapshot(self) -> tuple[Store, Snapshot]:
        """Return the store and the snapshot of the requested version."""
        store, dataset = self.place.open()
        return store, dataset.snapshot(self.as_of)


class Mode(StrEnum):
    """What a write does with the rows of the table."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    REPLACE = "replace"
    """Replace the partitions that ``replaceWhere`` selects, or that the rows touch."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How rows are written.

    ``partition_on``  of a new dataset; None = none, and those of an existing dataset
    ``evolves``       the rows may have new columns
    ``commit_id``     permanent id of the write
    """

    place: Place
    mode: Mode
    partition_on: tuple[str, ...] | None = None
    evolves: bool = False
    commit_id: str | None = None
    replace_where: Predicate | None = None

    @classmethod
    def of(cls, given: Mapping[str, str], *, overwrite: bool, stream: bool = False) -> Self:
        """Validate options. Raises InputError for a missing, unknown or invalid one."""
        _require_known(given, _WRITE_STREAM if stream else _WRITE)
        dynamic = _choice(given, "partitionOverwriteMode", ("static", "dynamic")) == "dynamic"
        where = given.get("replaceWhere")
        if (dynamic or where is not None) and not overwrite:
            raise InputError("replaceWhere and partitionOverwriteMode need mode('overwrite')")
        if dynamic and where is not None:
            raise InputError("give replaceWhere or partitionOverwriteMode=dynamic, not both")
        replaces = dynamic or where is not None
        partition_on = given.get("partitionBy")
        return cls(
            Place.of(given),
            Mode.REPLACE if replaces else Mode.OVERWRITE if overwrite else Mode.APPEND,
            None if partition_on is None else _names(partition_on),
            _choice(given, "mergeSchema", ("false", "true")) == "true",
            given.get("commitId"),
            None if where is None else parse(where),
        )


def _require_known(given: Mapping[str, str], known: Collection[str]) -> None:
    names = {name.lower() for name in known} | _OF_SPARK
    for name in given:
        if name.lower() not in names and not name.lower().startswith("option."):
            raise InputError(f"unknown option {name!r}; there are {', '.join(known)}")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _choice(given: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """Return the value of an option, by default the first choice."""
    value = given.get(name, choices[0])
    if value.lower() not in choices:
        raise InputError(f"option {name} is {value!r}; use one of {', '.join(choices)}")
    return value.lower()


def _starting(version: str | None) -> int | None:
    if version is None:
        return None
    if not version.isdecimal() or int(version) < 1:
        raise InputError(f"startingVersion is {version!r}; it is the number of a version, from 1")
    return int(version)


def _as_of(version: str | None, timestamp: str | None, tag: str | None) -> Version | None:
    if sum(each is not None for each in (version, timestamp, tag)) > 1:
        raise InputError("give versionAsOf, timestampAsOf or tagAsOf, not both")
    try:
        if version is not None:
            return int(version)
        return tag if timestamp is None else datetime.fromisoformat(timestamp)
    except ValueError:
        raise InputError(
            f"versionAsOf {version!r}, timestampAsOf {timestamp!r}: a version is a number, a time is in ISO 8601"
        ) from None
