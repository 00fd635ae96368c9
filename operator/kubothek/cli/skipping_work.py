"""Work of the ``kubothek skipping`` commands, for datasets and for other files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from kubothek.cli.remembered import recent
from kubothek.errors import DatasetNotFound, SkippingUnreadable
from kubothek.external import state
from kubothek.external.files import PlainFiles, PlainFormat, keys_of, table_of
from kubothek.external.location import PlainLocation, open_location, with_metadata_of_xskipper
from kubothek.external.metadata import location
from kubothek.external.refresh import Place, chosen_for_files, describe_here, drop, refresh
from kubothek.jobs.skip import describe as dataset_message
from kubothek.jobs.skip_files import describe as files_message
from kubothek.storage import Store
from kubothek.table.expressions import Predicate, parse
from kubothek.table.log import DatasetLog
from kubothek.table.log.update_skipping import reskip, undescribed
from kubothek.table.maintenance.choosing import with_chosen
from kubothek.table.maintenance.retiming import retime
from kubothek.table.scan.plan import plan, skipped
from kubothek.table.skipping import names
from kubothek.table.skipping.model import Encryption, IndexDefinition, SkippingState
from kubothek.table.skipping.prune.aggregate import Skipped
from kubothek.table.skipping.prune.auto import Seen

_LEAST_QUERIES = 3
"""Least number of the user's recent queries with the same kind of comparison of a column, to choose an index for it."""


@dataclass(frozen=True, slots=True)
class Building:
    """The arguments of ``build``, and the author of its commit."""

    store: Store
    name: str
    indices: tuple[IndexDefinition, ...]
    auto: bool
    footer_key: str | None
    plaintext_footer: bool
    rebuild: bool
    author: str

    def of_dataset(self) -> str:
        """Build for a dataset. Raises LakeError."""
        log = log_of(self.store, self.name)
        wanted = self._definitions(log.snapshot().head.skipping)
        if self.auto:
            wanted = with_chosen(self.store, log.snapshot(), wanted, seen(self.store.url, self.name))
        done = reskip(self.store, log, wanted, rebuild=self.rebuild, by=self.author)
        return f"{self.name}: {dataset_message(done)}"

    def of_files(self, prefix: str, glob: str | None, form: PlainFormat) -> str:
        """Build for other files. Raises LakeError."""
        place, files = Place(self.store, self.store, self.name), PlainFiles(prefix, form, glob)
        before = state.read(self.store, self.name).index
        definitions = self._definitions(SkippingState() if before is None else before.definitions)
        if self.auto:
            definitions = chosen_for_files(place, files, definitions, seen(self.store.url, self.name))
        if not definitions.indices:
            raise click.UsageError("name the indices with --index, or let them be chosen with --auto")
        done = refresh(place, files, definitions, rebuild=self.rebuild, build=lambda _bytes: describe_here(place))
        return f"{self.name}: {files_message(done)}"

    def _definitions(self, before: SkippingState) -> SkippingState:
        if not self.indices and self.footer_key is None:
            return replace(before, parts=())
        secret = None if self.footer_key is None else Encryption(self.footer_key, self.plaintext_footer)
        return SkippingState(self.indices or before.indices, (), secret)


def log_of(store: Store, name: str) -> DatasetLog:
    """Return the log of a dataset, for writes."""
    return DatasetLog(store, name, conditional_writes=store.probe().conditional_writes)


def seen(url: str, name: str) -> Seen:
    """Return the columns, and kinds of comparison, by which enough of this user's recent queries filtered."""
    counts: dict[str, int] = {}
    for use in recent(url, name):
        for text in use.filters:
            counts[text] = counts.get(text, 0) + 1
    often = [text for text, count in counts.items() if count >= _LEAST_QUERIES]
    return [(column, kind) for column, _, kind in (text.rpartition(":") for text in often)]


def refreshed(store: Store, name: str, author: str) -> str:
    """Refresh the metadata; return a message. Raises LakeError."""
    if is_dataset(store, name):
        log = log_of(store, name)
        text = dataset_message(reskip(store, log, by=author))
        version = retime(store, log, by=author)
        return f"{name}: {text}" + ("" if version is None else f"; version {version}: the times of files for Xskipper")
    place, index = _existing(store, name)
    done = refresh(place, index.table.files, index.definitions, build=lambda _bytes: describe_here(place))
    return f"{place.name}: {files_message(done)}"


def dropped(store: Store, name: str, author: str) -> str:
    """Drop the metadata; return a message. Raises LakeError."""
    if is_dataset(store, name):
        done = reskip(store, log_of(store, name), SkippingState(), by=author)
        if done.version is None:
            return f"{name}: there was no skipping metadata"
        return f"{name}: version {done.version} has no skipping metadata"
    full = state.resolved(store, name)
    if full is None:
        raise DatasetNotFound(f"no dataset or skipping metadata {name!r} in {store.url}")
    return f"{full}: {drop(store, full)} objects deleted"


@dataclass(frozen=True, slots=True)
class Description:
    """The metadata of one name."""

    name: str
    indices: Sequence[IndexDefinition]
    files: int
    described: int
    bytes: int
    location: str

    def to_json(self) -> dict[str, Any]:
        """Return JSON-compatible data."""
        return {
            "name": self.name,
            "indices": [each.to_json() for each in self.indices],
            "files": self.files,
            "described": self.described,
            "bytes": self.bytes,
            "location": self.location,
        }


def description(store: Store, name: str) -> Description:
    """Return the description of the metadata. Raises LakeError."""
    if is_dataset(store, name):
        snapshot = DatasetLog(store, name).snapshot()
        found, files = snapshot.head.skipping, len(snapshot.head.partitions)
        described = files - undescribed(store, snapshot) if found.indices else 0
        size = sum(part.bytes for part in found.parts)
        return Description(name, found.indices, files, described, size, f"{store.url}/{names.location(name)}")
    place, index = _existing(store, name)
    now = open_location(store, place.name)
    files, size = now.plan().steps[0].files_left, sum(part.bytes for part in index.parts)
    where = f"{store.url}/{location(place.name)}"
    return Description(place.name, index.definitions.indices, files, now.known.described, size, where)


@dataclass(frozen=True, slots=True)
class Explained:
    """The files that a filter leaves, the numbers of files after each planning step, and Xskipper's sums."""

    keys: Sequence[str]
    steps: Sequence[tuple[str, int]]
    sums: Skipped

    def to_json(self) -> dict[str, Any]:
        """Return JSON-compatible data."""
        steps = [{"step": step, "files": files} for step, files in self.steps]
        return {"files": list(self.keys), "steps": steps, "stats": self.sums.to_xskipper()}


def explained(store: Store, name: str, where: str, metadata: str | None) -> Explained:
    """Return what the filter leaves of a dataset or of other files. Raises LakeError."""
    predicate = parse(where)
    if metadata is not None:
        files = PlainFiles(name.strip("/"))
        table = table_of(store, files, keys_of(files.listed(store)))
        place = with_metadata_of_xskipper(store, table, store, f"{metadata.strip('/')}/")
        return _of_location(place, predicate)
    if is_dataset(store, name):
        snapshot = DatasetLog(store, name).snapshot()
        planned = plan(store, snapshot, predicate)
        return Explained(
            [file.key for file in planned.files], planned.steps, skipped(store, snapshot, predicate, planned)
        )
    found = open_location(store, _existing(store, name)[0].name)
    return _of_location(found, predicate)


def _of_location(location: PlainLocation, where: Predicate) -> Explained:
    planned = location.plan(where)
    return Explained(planned.keys, planned.steps, location.skipped(where, planned))


def is_dataset(store: Store, name: str) -> bool:
    """Return whether there is a dataset of this name, deleted or not."""
    from kubothek.errors import InputError

    try:
        return DatasetLog(store, name).inspect().version is not None
    except InputError:  # not a valid name
        return False


def _existing(store: Store, name: str) -> tuple[Place, state.PlainIndex]:
    full = state.resolved(store, name)
    if full is None:
        raise DatasetNotFound(f"no dataset or skipping metadata {name!r} in {store.url}")
    index = state.read(store, full).index
    if index is None:
        raise SkippingUnreadable(f"the skipping metadata {full!r} is incomplete: build it again")
    if index.url != store.url:
        raise SkippingUnreadable(f"the files of {full!r} are in {index.url}: its SkippingIndex refreshes it")
    return Place(store, store, full), index
