"""The check of keys that another writer may have chosen.

Any object of a store can come from another program: a head with its file keys, a record, an index manifest, a page, an
entry of skipping metadata. The parser of such an object passes each key in it through :func:`foreign_key`, or many at
once through :func:`check_foreign_keys`, with the prefixes that the format permits. Later code then uses the key
unchecked. For the keys of a dataset, the prefixes are ``keys.dataset(uuid)`` and ``keys.side(uuid)``.

    try:
        key = foreign_key(document["key"], keys.dataset(uuid))
    except InvalidKey as error:
        raise HeadUnreadable(f"{place}: {error}") from error
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import InvalidKey
from kubothek.storage.urls import check_key

_REFUSED: Final = r"(?:^|/)(?:\.|%2[eE]){0,2}(?:/|$)|[\x00-\x1f\x7f\\]"
"""An empty, ``.`` or ``..`` segment, also percent-encoded; a control character; a backslash."""
_REFUSED_IN_ONE: Final = re.compile(_REFUSED.replace("$", r"\Z"))
_SURELY_SHORT: Final = 256
"""Characters: never more bytes than a key may have."""
_FEW: Final = 16
"""Keys that are checked one by one sooner (4 µs each) than they are converted (70 µs and more)."""


def foreign_key(key: object, *prefixes: str) -> str:
    """Return the key if it is valid for the store and below one of the prefixes. Raises InvalidKey.

    A prefix ends with ``/``; ``""`` permits the whole store. Percent signs are permitted and never decoded, but no
    segment may decode to ``.`` or ``..``.
    """
    if not isinstance(key, str):
        raise InvalidKey(f"{key!r:.200} is not an object key: not a string")
    if _REFUSED_IN_ONE.search(key):
        raise InvalidKey(
            f"{key!r:.200} is not an object key: it has an empty, '.' or '..' segment, "
            "a backslash or a control character"
        )
    if not key.startswith(prefixes):
        raise InvalidKey(f"{key!r:.200} is outside of {' and '.join(map(repr, prefixes))}")
    return check_key(key)


def check_foreign_keys(keys: Collection[object], *prefixes: str) -> None:
    """Raise InvalidKey, naming the first one, unless :func:`foreign_key` accepts each of these keys."""
    if len(keys) <= _FEW or not _are_surely_fine(keys, prefixes):
        for key in keys:
            foreign_key(key, *prefixes)


def _are_surely_fine(keys: Collection[object], prefixes: tuple[str, ...]) -> bool:
    """Decide without a Python step per key: a head has a hundred thousand of them."""
    try:
        texts: Any = pa.array(keys)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return False
    if texts.type != pa.string() or texts.null_count or (pc.max(pc.binary_length(texts)).as_py() or 0) > _SURELY_SHORT:
        return False
    below = [pc.all(pc.starts_with(texts, prefix)).as_py() for prefix in prefixes]
    return any(below) and not pc.any(pc.match_substring_regex(texts, _REFUSED)).as_py()
