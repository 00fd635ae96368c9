"""Keys that another writer chose: which of them are keys of the store, and below which prefixes."""

from __future__ import annotations

from typing import Any

import pytest

from kubothek.errors import InvalidKey
from kubothek.storage.foreign_keys import check_foreign_keys, foreign_key

ACCEPTED = (
    "d/table/x.parquet",
    "d/table/p=1/q=a%2Fb/x.parquet",
    "d/table/p=..%2F../x.parquet",
    "d/table/p=ü/..x/x..parquet",
    "d/.../%2e%2e%2e/x",
    ".kubothek/d/index/c/x.parquet",
    "d/" + "x" * 1022,
)
REFUSED: tuple[Any, ...] = (
    "",
    "d",
    "d/",
    "/d/x",
    "d//x",
    "d/./x",
    "d/../d/x",
    "d/..",
    "../x",
    "/etc/passwd",
    "d/%2e%2E/x",
    "d/.%2e/x",
    "d/%2e",
    "d/a\\..\\b",
    "d/a\0",
    "d/a\nb",
    "d/a\n",
    "d/\x7f",
    "d/\ud800",
    "dd/x",
    "other/table/x.parquet",
    ".kubothek/dd/x",
    "d/" + "x" * 1023,
    b"d/x",
    None,
    1,
    1 << 64,
    ["d/x"],
)


MANY = 30
"""More keys than are checked one by one."""


@pytest.mark.parametrize("key", ACCEPTED)
def test_foreign_key_within_allowed_prefix_is_returned(key: str) -> None:
    assert foreign_key(key, "d/", ".kubothek/d/") == key
    for count in (1, MANY):
        check_foreign_keys([key] * count, "d/", ".kubothek/d/")


@pytest.mark.parametrize("key", REFUSED, ids=repr)
def test_foreign_key_outside_allowed_prefixes_is_refused(key: object) -> None:
    with pytest.raises(InvalidKey) as one:
        foreign_key(key, "d/", ".kubothek/d/")
    for count in (1, MANY):
        with pytest.raises(InvalidKey) as many:
            check_foreign_keys([*["d/fine"] * count, key, "d/fine"], "d/", ".kubothek/d/")
        assert str(one.value) == str(many.value)
    assert repr(key)[:50] in str(one.value)


def test_empty_list_of_foreign_keys_is_accepted() -> None:
    check_foreign_keys([], "d/")
