"""Input and output of a poll."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pyarrow as pa

from kubothek.errors import SourceRefused
from kubothek.ingest.fetch.policy import UrlPolicy
from kubothek.odf.sources.readers.content import Content, ObjectContent
from kubothek.odf.sources.readers.preprocess import LIMITS
from kubothek.odf.spec.events import SourceState
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.sql import Limits
from kubothek.storage import Store, StoreConfig, open_store

SOURCE_NAME: Final = "default"
"""Name of the polling source, and of a push source without a name (SS-03)."""
ETAG: Final = "odf/etag"
LAST_MODIFIED: Final = "odf/last-modified"

Locate: TypeAlias = Callable[[str], tuple[Store, str]]
"""Returns the store of an s3:// URL, and the rest of the URL: a key or a pattern of keys. Raises SourceRefused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRun:
    """A container to run once; ``command`` and ``args`` as in Kubernetes.

    Its standard output is the data. ``env`` is its whole environment and names files below ``/opt/odf/out``, a writable
    directory.
    """

    image: str
    command: tuple[str, ...] | None
    args: tuple[str, ...] | None
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerOutput:
    """What a container wrote; a text is None if its file does not exist."""

    data: Content
    new_etag: str | None = None
    new_last_modified: str | None = None
    has_more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchContext:
    """What a source may use.

    ``policy``             allowed URLs, whether local files are allowed, and the largest size of a file in bytes
    ``now``                the system time of the poll
    ``env``                the only values for ``${{ env.NAME }}``, and for variables of containers without a value
    ``ingested``           the dataset has data of the source already
    ``fetch_uncacheable``  fetch again even from a source that gives neither ETag nor date (FE-07)
    ``locate``             finds object stores; without it s3:// is refused
    ``run_container``      runs containers, or raises SourceFailed; without it they are refused
    ``session``            names the dataset's session at a broker, the same in every poll
    ``allow_commands``     whether the prepare step Pipe may run a process here
    ``limits``             of preprocess
    """

    policy: UrlPolicy
    now: Timestamp
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    ingested: bool = False
    fetch_uncacheable: bool = False
    locate: Locate | None = None
    run_container: Callable[[ContainerRun], ContainerOutput] | None = None
    session: str = ""
    allow_commands: bool = False
    limits: Limits = LIMITS


@dataclass(frozen=True, slots=True, kw_only=True)
class UpToDate:
    """There is nothing new. ``uncacheable``: assumed without a request, as the source gives neither ETag nor date."""

    uncacheable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One fetched file. ``state`` is None if the source gives nothing to compare at the next poll.

    ``acknowledge``  tells the source that the chain has the file; it must have been committed after the state before
    """

    content: Content
    state: SourceState | None
    event_time: Timestamp
    has_more: bool = False
    acknowledge: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """New rows, not normalised yet; None if the file has none at all.

    ``name``        of the file, with unresolved variables as in the manifest
    ``state``       for the next poll, None if the source gives nothing to compare
    ``event_time``  of the source, to the millisecond: that of rows without one
    ``has_more``    another file follows
    ``stored``      the file, if it is an object of a store and needs no prepare step
    ``acknowledge`` as in :class:`File`
    """

    name: str
    rows: pa.RecordBatchReader | None
    state: SourceState | None
    event_time: Timestamp
    has_more: bool = False
    stored: ObjectContent | None = None
    acknowledge: Callable[[], None] | None = None


def state_of(kind: str, value: str) -> SourceState:
    """Return the state of the polling source."""
    return SourceState(source_name=SOURCE_NAME, kind=kind, value=value)


def in_stores(configs: Sequence[StoreConfig]) -> Locate:
    """Return a function that finds what is below the URLs of these stores, and refuses everything else."""
    opened: dict[str, Store] = {}

    def locate(url: str) -> tuple[Store, str]:
        for config in sorted(configs, key=lambda each: -len(each.url)):
            root = config.url.rstrip("/") + "/"
            if url.startswith(root):
                if config.url not in opened:
                    opened[config.url] = open_store(config)
                return opened[config.url], url.removeprefix(root)
        known = ", ".join(sorted(config.url for config in configs)) or "none"
        raise SourceRefused(f"{url!r} is in no store that this source may read (those are: {known})")

    return locate
