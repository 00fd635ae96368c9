"""Tags: names of versions. A tagged version does not expire, and stays readable whatever a collector deletes.

Tags are in the head, so tagging and expiry swap the same object: one of them is first, and the other sees it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kubothek.errors import InputError, VersionTagged
from kubothek.table.log.history.rebuild import rebuild
from kubothek.table.log.history.versions import History
from kubothek.table.log.journal import Draft, Journal, Observed
from kubothek.table.log.metadata_commit import noted
from kubothek.table.log.model.changes import Operation
from kubothek.table.log.model.head import TAGS, Head, Tag

MOST_TAGS: Final = 64
"""For each dataset: every head contains all tags, and a collector has to read each tagged version."""
_NAME: Final = re.compile(r"[a-zA-Z]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?")


def versions_of(head: Head) -> dict[str, int]:
    """Return the tagged versions, by name."""
    return {name: tag.version for name, tag in head.tags.items()}


def retag(journal: Journal, seen: Observed, wanted: Mapping[str, int], *, by: str) -> Draft:
    """Return the commit after which the tags are these versions by name.

    Raises InputError for an invalid name, VersionNotFound for a version that never existed or has expired,
    VersionIncomplete for one that is not complete.
    """
    _check(wanted)
    tags = {name: _tag(journal, seen, version) for name, version in sorted(wanted.items())}
    metadata = {key: value for key, value in seen.head.metadata.items() if key != TAGS}
    if tags:
        metadata[TAGS] = {name: [tag.version, tag.record] for name, tag in tags.items()}
    return noted(journal, seen, metadata, what="tag", operation=Operation.TAG, by=by)


def require_untagged(head: Head, below: int, spared: frozenset[str] = frozenset()) -> None:
    """Raise VersionTagged if versions below this one have tags, except those of the ``spared`` records."""
    found = {name: tag for name, tag in head.tags.items() if tag.version < below and tag.record not in spared}
    if found:
        named = ", ".join(f"{name!r} (version {tag.version})" for name, tag in found.items())
        raise VersionTagged(
            f"versions of {head.uuid!r} that were to expire have tags: {named}. Nothing was changed; remove the tags "
            f"from spec.tags of the Dataset, or with kubothek tag {head.uuid} NAME --delete"
        )


def _tag(journal: Journal, seen: Observed, version: int) -> Tag:
    known = next((tag for tag in seen.head.tags.values() if tag.version == version), None)
    if known is not None:
        return known
    history = History(journal, seen)
    record = history.at(version)
    if version != seen.version:
        history.require_files(rebuild(journal, record), version)
    return Tag(version, record.key)


def _check(wanted: Mapping[str, int]) -> None:
    if bad := [name for name in wanted if not _NAME.fullmatch(name)]:
        raise InputError(
            f"tag {bad[0]!r}: a name is a letter, then up to 62 letters, digits, '-', '_' or '.', the last of them a "
            "letter or digit"
        )
    if len(wanted) > MOST_TAGS:
        raise InputError(f"{len(wanted)} tags: a dataset has at most {MOST_TAGS}; remove some")
