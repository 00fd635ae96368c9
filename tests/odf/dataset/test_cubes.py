"""Ledgers and cubes: rows of the one change with its chain, rows of the other with all of its datasets."""

from __future__ import annotations

import pytest

from kubothek.errors import CubeInvalid
from kubothek.odf.dataset import create, creating, export, import_chain
from kubothek.storage import Store
from kubothek.table.log import DatasetLog
from tests.cube.small import build, cube_in, state
from tests.odf.dataset.planes import APPEND, OWNER, begun, made, push, source

pytestmark = pytest.mark.slow

ANOTHER = "dataset 'more' is a ledger, .* cannot be in a cube"


def test_ledger_named_like_cube_dataset_is_refused(store: Store, other: Store) -> None:
    log = DatasetLog(store, "geo++planes")
    with pytest.raises(CubeInvalid, match=r"'geo\+\+planes' would be 'planes' of cube 'geo', .* without '\+\+'"):
        create(store, log, begun(source(APPEND)), OWNER)
    assert not [*store.list("")]
    root = made(store, APPEND)
    push(store, {1: "Airbus"})
    export(root, other)
    before = {info.key for info in store.list("")}
    with pytest.raises(CubeInvalid, match="cannot be in a cube"):
        import_chain(store, log, other)
    assert {info.key for info in store.list("")} == before


def test_cube_with_existing_ledger_dataset_refuses_commits(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """One under such a name can only be an older one's: neither may it come to a cube, nor a cube to it."""
    monkeypatch.setattr(creating, "memberships", lambda uuid: iter(()))
    build(store)
    before = state(store)
    with pytest.raises(CubeInvalid, match=ANOTHER):
        create(store, DatasetLog(store, "geo++more"), begun(source(APPEND)), OWNER)
    assert state(store) == before
    assert cube_in(store).snapshot().members.keys() == before.keys()


def test_cube_build_over_existing_ledger_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creating, "memberships", lambda uuid: iter(()))
    create(store, DatasetLog(store, "geo++more"), begun(source(APPEND)), OWNER)
    before = {info.key for info in store.list("")}
    with pytest.raises(CubeInvalid):
        build(store)
    assert {info.key for info in store.list("")} == before
