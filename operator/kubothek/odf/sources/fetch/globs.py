"""The fetch step for files that match a pattern: one file per poll (FE-02, FE-09)."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from kubothek.errors import InputError, SourceNotFound, SourceRefused
from kubothek.odf.sources.fetch.context import ETAG, FetchContext, File, UpToDate, state_of
from kubothek.odf.sources.fetch.event_times import of_path
from kubothek.odf.sources.readers.content import Content, FileContent, ObjectContent
from kubothek.odf.sources.readers.globs import fixed_part, fixed_start, matcher
from kubothek.odf.spec.events import SourceState
from kubothek.odf.spec.sources import EventTimeSourceFromPath, FetchStepFilesGlob, SourceOrdering
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.storage import Store
from kubothek.storage.beneath import Beneath


def fetch_next(step: FetchStepFilesGlob, state: SourceState | None, context: FetchContext) -> File | UpToDate:
    """Return the first file after the one that ``state`` names, and whether there are more.

    Names are relative to the part of the pattern without wildcards. The state excludes that part, so files can move.
    Raises SourceRefused, InputError (event time), StoreError.
    """
    done = state.value if state is not None and state.kind == ETAG else None
    place = _place(step.path, context)
    names = place.names(done if step.order is not SourceOrdering.BY_EVENT_TIME else None)
    if step.order is SourceOrdering.BY_EVENT_TIME:
        found = _by_event_time(step, list(names), done, context.now)
    else:
        found = names if isinstance(place, _Objects) else iter(sorted(names))
    if (name := next(found, None)) is None:
        return UpToDate()
    return File(
        content=place.open(name),
        state=state_of(ETAG, name),
        event_time=of_path(step.event_time, place.root + name, context.now),
        has_more=next(found, None) is not None,
    )


def _by_event_time(step: FetchStepFilesGlob, names: list[str], done: str | None, now: Timestamp) -> Iterator[str]:
    if not isinstance(step.event_time, EventTimeSourceFromPath):
        raise InputError("fetch.order ByEventTime needs fetch.eventTime FromPath: nothing else orders files by time")
    order = {name: (of_path(step.event_time, name, now), name) for name in names}
    after = None if done is None else (of_path(step.event_time, done, now), done)
    return iter(sorted((name for name in names if after is None or order[name] > after), key=order.__getitem__))


class _Files:
    """Files of this machine. Below the fixed part of the pattern, symbolic links are not followed: the program that
    writes into the directory must not select files elsewhere.
    """

    def __init__(self, pattern: str) -> None:
        self.root = fixed_part(pattern)
        self._beneath = Beneath(Path(self.root))
        self._matches = matcher(pattern)
        self._pattern = pattern

    def names(self, after: str | None) -> Iterator[str]:
        """Return the matching names greater than ``after``, in no order."""
        for path in glob.iglob(self._pattern, recursive=True):  # noqa: PTH207 - absolute patterns
            name = path.removeprefix(self.root)
            if (after is None or name > after) and self._matches(path) and self._is_file(name):
                yield name

    def open(self, name: str) -> Content:
        """Open one of them. Raises SourceNotFound."""
        try:
            return FileContent(self.root + name, open(name, "rb", opener=self._beneath.open))
        except OSError as error:
            raise SourceNotFound(
                f"{self.root + name!r} cannot be read: {error.strerror}; correct the path or its permissions"
            ) from None

    def _is_file(self, name: str) -> bool:
        try:
            with self._beneath.parent(name) as (place, last):
                return stat.S_ISREG(os.stat(last, dir_fd=place, follow_symlinks=False).st_mode)
        except OSError:
            return False


class _Objects:
    """Objects of a store; ``pattern`` is relative to the store."""

    def __init__(self, store: Store, pattern: str) -> None:
        self.root = fixed_part(pattern)
        self._start = fixed_start(pattern)
        self._store = store
        self._matches = matcher(pattern)

    def names(self, after: str | None) -> Iterator[str]:
        """Return the matching names greater than ``after``, in order; the listing is lazy."""
        start_after = "" if after is None else self.root + after
        for info in self._store.list(self._start, start_after):
            if self._matches(info.key):
                yield info.key.removeprefix(self.root)

    def open(self, name: str) -> Content:
        """Open one of them. Raises SourceNotFound."""
        key = self.root + name
        return ObjectContent.of(f"{self._store.url.rstrip('/')}/{key}", self._store, key)


def _place(pattern: str, context: FetchContext) -> _Files | _Objects:
    if pattern.startswith("s3://"):
        if context.locate is None:
            raise SourceRefused(f"{pattern!r}: this source may read no object store")
        return _Objects(*context.locate(pattern))
    if not context.policy.allow_local:
        raise SourceRefused(
            f"{pattern!r}: files are read outside a cluster only; put them into an ObjectStore and write s3://bucket/…"
        )
    local = pattern.removeprefix("file://")
    if not Path(local).is_absolute():
        raise InputError(f"fetch.path {pattern!r} must be absolute, or an s3:// URL")
    return _Files(local)
