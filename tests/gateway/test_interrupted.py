"""Transfers that are cut off at every stage, by both protocols and into stores: what arrived is not sent again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from kubothek.errors import DatasetNotFound
from kubothek.gateway.access import Tokens
from kubothek.odf import Layout, verify
from kubothek.odf.dataset import Root
from kubothek.odf.sync import Reach, Web, pull_remote, push_remote
from kubothek.odf.sync.smart.client import Conversation
from kubothek.odf.sync.transfer import Progress
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys
from tests.faultstore import WRITES, Crash, Fault, FaultStore
from tests.gateway.running import Running, running
from tests.odf.dataset.planes import LEDGER, made, opened, push

pytestmark = pytest.mark.slow

TOKEN = "token-of-everybody-0003"
TOKENS = {"name": "all", "token": TOKEN, "pull": ["*"], "push": ["*"]}
SLOWLY = Reach(token=TOKEN, objects_at_once=1)


class Wire:
    """What a client asks of servers; ``dies`` is the number of the question before which its process does."""

    def __init__(self) -> None:
        self.asked = 0
        self.dies: int | None = None

    def __call__(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            self.asked += 1
            if self.dies is not None and self.asked >= self.dies:
                raise Crash
            return call(*args, **options)

        return counted


@contextmanager
def wire() -> Iterator[Wire]:
    found = Wire()
    with (
        patch.object(Web, "ask", found(Web.ask)),
        patch.object(Conversation, "ask", found(Conversation.ask)),
        patch.object(Conversation, "tell", found(Conversation.tell)),
    ):
        yield found


def filled(store: Store) -> Root:
    made(store, LEDGER, table=None)
    for number in range(3):
        push(store, {number: "x"})
    return opened(store)


def data_of(store: Store, name: str) -> set[str]:
    """Names of slices that are in the store."""
    layout = Layout(keys.chain(name))
    return {info.key.rpartition("/")[2] for info in store.list(layout.root) if "/data/" in info.key}


def sent_once(gateway: Running, method: str) -> None:
    """No object went over the wire twice."""
    found = Counter(line["path"] for line in gateway.lines if "/data/" in line["path"] and line["method"] == method)
    assert found
    assert set(found.values()) == {1}, found
    gateway.lines.clear()


@pytest.fixture
def gateway(other: Store) -> Iterator[Running]:
    with running(other, access=Tokens([TOKENS])) as gateway:
        yield gateway


@pytest.mark.parametrize("scheme", ["", "odf+"])
def test_pull_interrupted_at_any_request_or_write_resumes(
    store: Store, other: Store, gateway: Running, scheme: str
) -> None:
    root = filled(other)

    def pull(name: str, into: Store) -> None:
        pull_remote(into, DatasetLog(into, name), f"{scheme}{gateway.url()}", reach=SLOWLY)

    kept: set[str] = set()
    with wire() as asked:
        counting = FaultStore(store)
        pull("first", counting)
        questions, writes = asked.asked, sum(call.name in WRITES for call in counting.calls)
        gateway.lines.clear()
        for name, dies, fault in [
            *((f"asked-{number}", number, None) for number in range(1, questions + 1) if scheme),  # else test_pull.py
            *((f"wrote-{number}", None, Fault(WRITES, number)) for number in range(1, writes + 1)),
        ]:
            asked.asked, asked.dies = 0, dies
            try:
                pull(name, FaultStore(store, fault))
            except Crash:
                pass
            else:  # several objects are asked for at a time
                assert dies is not None
                assert asked.asked < dies
            asked.dies = None
            there = data_of(store, name)
            gateway.lines.clear()
            pull(name, store)
            assert Root(store, DatasetLog(store, name)).state == root.state
            came = Counter(line["path"].rpartition("/")[2] for line in gateway.lines if "/data/" in line["path"])
            assert there.isdisjoint(came)
            assert came == Counter(data_of(store, name) - there)
            kept |= there
        assert verify(store, Layout(keys.chain(name))).sound
    assert len(kept) == 3, "each was there before some of the deaths"


def test_push_interrupted_at_any_request_resumes(store: Store, other: Store, gateway: Running) -> None:
    root = filled(store)

    def push_to(name: str) -> None:
        push_remote(root, gateway.smart(name), reach=SLOWLY)

    with wire() as asked:
        push_to("first")
        questions = asked.asked
        gateway.lines.clear()
        for number in range(1, questions + 1):
            name = f"copy-{number}"
            asked.asked, asked.dies = 0, number
            with pytest.raises(Crash):
                push_to(name)
            asked.dies = None
            push_to(name)
            assert Root(other, DatasetLog(other, name)).state == root.state
            sent_once(gateway, "PUT")


def test_push_into_store_interrupted_at_any_write_resumes(
    store: Store, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = filled(store)
    places: dict[str, FaultStore] = {}
    monkeypatch.setattr("kubothek.odf.sync.urls.open_store", lambda config: places[config.url.rpartition("/")[2]])

    def push_to(name: str, fault: Fault | None = None) -> tuple[list[str], list[Progress]]:
        """Keys that were written, and what was told of it."""
        config, told = StoreConfig(f"{other.url}/{name}"), list[Progress]()
        places[name] = FaultStore(open_store(config), fault)
        try:
            push_remote(root, config.url, reach=SLOWLY, told=told.append)
        finally:
            written = [call.key for call in places[name].calls if call.name in WRITES]
        return written, told

    def directory(name: str) -> None:
        Path(f"{other.url.removeprefix('file://')}/{name}").mkdir()

    directory("first")
    keys_written, told = push_to("first")
    assert (told[-1].objects, told[-1].objects_total, told[-1].bytes) == (3, 3, told[-1].bytes_total)
    assert (told[-1].blocks, keys_written[-1]) == (root.state.length, "refs/head")
    assert push_to("first")[0] == []
    for number in range(1, len(keys_written) + 1):
        name = f"copy-{number}"
        directory(name)
        with pytest.raises(Crash):
            push_to(name, Fault(WRITES, number))
        there = {info.key for info in places[name].inner.list("")}
        assert "refs/head" not in there, "it is the last that is written"
        written, _ = push_to(name)
        assert there.isdisjoint(written)
        assert there | set(written) == set(keys_written)
        assert verify(places[name].inner, Layout()).sound


def test_long_chain_is_pulled_in_bulk_by_smart_protocol(
    store: Store, other: Store, gateway: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = filled(other)
    monkeypatch.setattr("kubothek.odf.sync.smart.pulling._FEW", 2)
    with patch.object(Conversation, "tell", autospec=True, side_effect=Conversation.tell) as told:
        pull_remote(store, DatasetLog(store, "copy"), gateway.url(), reach=SLOWLY)
    asked = [json.loads(call.args[1])["object_files"] for call in told.call_args_list]
    assert [len(objects) for objects in asked] == [3], "where they are is asked once, of all together"
    kinds = Counter(line["path"].split("/")[2] for line in gateway.lines)
    assert (kinds["blocks"], kinds["pull"]) == (1, 1)
    assert Root(store, DatasetLog(store, "copy")).state == root.state
    with pytest.raises(DatasetNotFound):
        pull_remote(store, DatasetLog(store, "none"), f"{gateway.root}/nothing", reach=SLOWLY)
