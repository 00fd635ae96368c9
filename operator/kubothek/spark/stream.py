"""Streams over versions: which data files the commits after one version added, up to another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kubothek.catalog import Dataset
from kubothek.errors import InputError, VersionIncomplete, VersionNotFound
from kubothek.table.log.history.versions import missing_files

_RESTART = "start a new query with a new checkpoint"


def latest_version(dataset: Dataset, read: int) -> int:
    """Return the current version. Raises VersionNotFound if it is before the last version that a stream has read."""
    version = dataset.version
    if version < read:
        raise VersionNotFound(
            f"the stream has read version {read} of {dataset.name!r}, and the current version is {version}: the "
            f"dataset was deleted and made again; {_RESTART}"
        )
    return version


@contextmanager
def restarted_if_expired() -> Iterator[None]:
    """Add to VersionNotFound, for commits that a stream has not read yet, how to go on."""
    try:
        yield
    except VersionNotFound as error:
        raise VersionNotFound(
            f"{error}. The stream has not read these commits: {_RESTART}, and retain versions for longer than a "
            "stream can be behind"
        ) from error


def new_files(dataset: Dataset, after: int, to: int) -> list[str]:
    """Return the keys of the files that commits above version ``after`` added, up to version ``to``, in their order.

    Compactions add no rows and are skipped. Raises InputError for a commit that removed rows, since a stream without a
    change feed has no form for them; VersionNotFound if a commit in between has expired.
    """
    commits = dataset._log().changed_files(after, to).commits
    if removing := next((commit for commit in commits if commit.removed), None):
        raise InputError(
            f"version {removing.version} of {dataset.name!r} removed rows, and a stream has rows that were added "
            f"only; {_RESTART}, which begins with all rows, or with the option startingVersion {removing.version + 1}, "
            "or with readChangeFeed, which has the removed rows as well"
        )
    return [key for commit in commits for key in commit.added]


def require_no_loss(dataset: Dataset, files: Sequence[str]) -> None:
    """Raise VersionIncomplete if one of these files was replaced, for example by a compaction, and then collected."""
    head = dataset.snapshot().head
    current = set(head.files().values())
    if gone := missing_files(dataset._log().journal, head, [key for key in files if key not in current]):
        raise VersionIncomplete(
            f"{len(gone)} files that commits added to {dataset.name!r} no longer exist, among them {gone[0]}; "
            f"{_RESTART}, and retain versions for longer than a stream can be behind"
        )
