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
from kubothek.table.log.model.record import utc

_PLACE: Final = ("path", "uuid", "endpoint", "region", "credentialsDir")
_READ: Final = (*_PLACE, "columns", "where", "versionAsOf", "timestampAsOf", "tagAsOf", "readChangeFeed")
_READ_STREAM: Final = (*_PLACE, "columns", "where", "readChangeFeed", "startingVersion", "startingTimestamp")
_FEED_STREAM: Final = (*_PLACE, "columns", "key", "readChangeFeed", "startingVersion", "startingTimestamp")
_ENDS: Final = ("endingVersion", "endingTimestamp")
_FEED: Final = (*_FEED_STREAM, *_ENDS)
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
    """What is read.

    ``columns``   None = all
    ``as_of``     version to read, the last one of a change feed; None = the current version
    ``starting``  first version, or time of the first commit, of a stream or a feed; None = a stream has all rows first
    ``feed``      read the rows that commits changed
    ``key``       columns that identify a row of the feed
    """

    place: Place
    columns: tuple[str, ...] | None
    where: Predicate
    as_of: Version | None = None
    starting: int | datetime | None = None
    feed: bool = False
    key: tuple[str, ...] = ()

    @classmethod
    def of(cls, given: Mapping[str, str], *, stream: bool = False) -> Self:
        """Validate options. Raises InputError for a missing, unknown or invalid one."""
        feed = _choice(given, "readChangeFeed", ("false", "true")) == "true"
        if feed:
            _require_known(given, _FEED_STREAM if stream else _FEED)
        else:
            _require_known(given, _READ_STREAM if stream else _READ, needs_feed=("key", *_FEED))
        starting = _starting(given)
        if feed and not stream and starting is None:
            raise InputError(
                "readChangeFeed needs startingVersion or startingTimestamp: the first version whose changes are read"
            )
        columns = given.get("columns")
        return cls(
            Place.of(given),
            None if columns is None else _names(columns),
            parse(given["where"]) if "where" in given else TRUE,
            _ending(given, starting) if feed else _version(given, "versionAsOf", "timestampAsOf", "tagAsOf"),
            starting,
            feed,
            _names(given.get("key", "")),
        )

    @classmethod
    def of_either(cls, given: Mapping[str, str]) -> Self:
        """Validate options of a read or of a stream, for what is the same in both."""
        starts = any(name in given for name in ("readChangeFeed", "startingVersion", "startingTimestamp"))
        return cls.of(given, stream=starts and not any(name in given for name in _ENDS))

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


def _require_known(given: Mapping[str, str], known: Collection[str], *, needs_feed: Collection[str] = ()) -> None:
    names = {name.lower() for name in known} | _OF_SPARK
    for name in given:
        if name.lower() not in names and not name.lower().startswith("option."):
            if name.lower() in {each.lower() for each in needs_feed}:
                raise InputError(f"the option {name!r} needs readChangeFeed=true")
            raise InputError(f"unknown option {name!r}; there are {', '.join(known)}")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _choice(given: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """Return the value of an option, by default the first choice."""
    value = given.get(name, choices[0])
    if value.lower() not in choices:
        raise InputError(f"option {name} is {value!r}; use one of {', '.join(choices)}")
    return value.lower()


def _starting(given: Mapping[str, str]) -> int | datetime | None:
    starting = _version(given, "startingVersion", "startingTimestamp")
    if isinstance(starting, int) and starting < 1:
        raise InputError(f"startingVersion is {starting}; it is the number of a version, from 1")
    return None if isinstance(starting, str) else starting


def _ending(given: Mapping[str, str], starting: int | datetime | None) -> Version | None:
    """Return the last version of a feed. Raises InputError if it is visibly before the first one."""
    ending = _version(given, "endingVersion", "endingTimestamp")
    numbers = isinstance(starting, int) and isinstance(ending, int) and ending < starting
    times = isinstance(starting, datetime) and isinstance(ending, datetime) and utc(ending) < utc(starting)
    if numbers or times:
        raise InputError(f"the feed ends at {ending}, before it starts at {starting}; swap them")
    return ending


def _version(given: Mapping[str, str], number: str, time: str, tag: str | None = None) -> Version | None:
    """Return the version that one of these options names; None if none is given."""
    names = [name for name in (number, time, tag) if name is not None and name in given]
    if len(names) > 1:
        raise InputError(f"give {' or '.join(names)}, not both")
    if not names:
        return None
    name, value = names[0], given[names[0]]
    try:
        if name == number:
            return int(value)
        return value if name == tag else datetime.fromisoformat(value)
    except ValueError:
        form = "the number of a version, from 1" if name == number else "a time in ISO 8601, like 2026-11-21T14:00Z"
        raise InputError(f"{name} is {value!r}; it is {form}") from None
