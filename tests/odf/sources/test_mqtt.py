"""MQTT: every message of a real broker once in the chain, whatever ends before, between or after."""

from __future__ import annotations

import multiprocessing
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kubothek.errors import SourceRefused, SourceUnavailable
from kubothek.ingest import UrlPolicy
from kubothek.odf.dataset import Root, create
from kubothek.odf.ingest import Polled, poll_source, polling
from kubothek.odf.sources.fetch import FetchContext, mqtt
from kubothek.odf.sources.fetch.mqtt import STATE, Window, mark_of
from kubothek.odf.sources.fetch.templates import Templates
from kubothek.odf.spec.events import SetPollingSource, SourceState
from kubothek.odf.spec.sources import (
    FetchStep,
    FetchStepMqtt,
    MergeStrategy,
    MergeStrategyAppend,
    MergeStrategyLedger,
    MqttQos,
    MqttTopicSubscription,
    ReadStepNdJson,
)
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log import DatasetLog
from kubothek.table.scan.read import scan
from tests.mosquitto import PASSWORD, USER, Broker, PublisherFailed
from tests.odf.dataset.planes import OWNER, UUID, begun, log_of, sound
from tests.sampling import SOAK

pytestmark = pytest.mark.slow

CONTEXT = FetchContext(
    policy=UrlPolicy(("127.0.0.1",), allow_local=True),
    now=Timestamp.parse("2026-11-27T12:00:00Z"),
    env={"WORD": PASSWORD},
)
APPEND, LEDGER = MergeStrategyAppend(), MergeStrategyLedger(primary_key=("id",))
KILLS = 20 if SOAK else 2


class Died(BaseException):
    """The driver ends here."""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "store").mkdir()
    return open_store(StoreConfig((tmp_path / "store").as_uri()))


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    monkeypatch.setattr(mqtt, "IDLE", 0.3)
    (tmp_path / "broker").mkdir()
    with Broker(tmp_path / "broker") as running:
        yield running


def step(port: int, **options: Any) -> FetchStepMqtt:
    topics = (MqttTopicSubscription(path="a/#", qos=MqttQos.EXACTLY_ONCE),)
    given = {"username": USER, "password": "${{ env.WORD }}", "topics": topics}
    return FetchStepMqtt(host="127.0.0.1", port=port, **{**given, **options})


def made(store: Store, fetch: FetchStep, merge: MergeStrategy = APPEND) -> Root:
    source = SetPollingSource(fetch=fetch, read=ReadStepNdJson(ddl_schema=("id INT",)), merge=merge)
    return create(store, log_of(store), begun(source), OWNER)


def polled(store: Store) -> Polled:
    """A poll by a driver of its own."""
    return poll_source(Root(store, DatasetLog(store, UUID)), CONTEXT)


def messages(*numbers: int) -> list[bytes]:
    return [b'{"id": %d}' % number for number in numbers]


def ids(store: Store) -> list[int]:
    rows = scan(store, DatasetLog(store, UUID).snapshot(), ["id"], None).read_all()
    found: list[Any] = rows["id"].to_pylist()
    return sorted(found)


def test_messages_between_polls_are_ingested_in_one_commit(broker: Broker, store: Store) -> None:
    made(store, step(broker.port))
    assert polled(store).commits == 0
    broker.publish("a/1", messages(*range(500)), qos=2)
    broker.publish("b", messages(900))
    done = polled(store)
    assert (done.commits, done.records, done.has_more) == (1, 500, False)
    assert polled(store).commits == 0
    broker.publish("a/2", messages(500))
    assert polled(store).records == 1
    assert ids(store) == list(range(501))
    sound(store)


def test_full_batch_is_followed_by_another(broker: Broker, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt, "BATCH", 100)
    made(store, step(broker.port))
    polled(store)
    broker.publish("a", messages(*range(250)))
    done = polled(store)
    assert done.commits > 1  # mosquitto 2.0.11 sends more than the receive maximum after a reconnection
    assert done.records == 250
    assert ids(store) == list(range(250))


def test_stream_without_end_is_left_for_another_poll(
    broker: Broker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt, "BATCH", 100)
    monkeypatch.setattr(polling, "STREAM_SECONDS", 0)
    made(store, step(broker.port))
    polled(store)
    broker.publish("a", messages(*range(150)))
    done = polled(store)
    assert (done.commits, done.has_more) == (1, True)
    assert drained(store) == list(range(150))


@pytest.mark.parametrize("acknowledged", [0, 7])
def test_driver_that_dies_after_its_commit_adds_nothing_twice(
    broker: Broker, store: Store, monkeypatch: pytest.MonkeyPatch, acknowledged: int
) -> None:
    made(store, step(broker.port))
    polled(store)
    broker.publish("a", messages(*range(20)))

    def die(connection: Any) -> None:
        for packet in connection.batch.unacknowledged[:acknowledged]:
            connection._client.ack(packet, 1)
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(mqtt._Connection, "acknowledge", die)
        with pytest.raises(Died):
            polled(store)
    assert ids(store) == list(range(20))
    broker.publish("a", messages(20, 21))
    broker.stop()
    broker.start()
    assert polled(store).records == 2
    assert ids(store) == list(range(22))


def test_acknowledgements_that_are_lost_twice_add_nothing_twice(
    broker: Broker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(store, step(broker.port))
    polled(store)
    with monkeypatch.context() as patched:
        patched.setattr("paho.mqtt.client.Client.ack", lambda client, packet, qos: None)
        for number in range(3):
            broker.publish("a", messages(number))
            assert polled(store).records == 1
    assert polled(store).records == 0
    assert ids(store) == [0, 1, 2]


def test_driver_that_dies_before_its_commit_loses_nothing(
    broker: Broker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(store, step(broker.port))
    polled(store)
    broker.publish("a", messages(*range(20)))

    def die(*_: Any, **__: Any) -> None:
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(Root, "add_polled", die)
        with pytest.raises(Died):
            polled(store)
    assert polled(store).records == 20
    assert ids(store) == list(range(20))


def test_concurrent_drivers_commit_a_message_once(
    broker: Broker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(store, step(broker.port))
    polled(store)
    broker.publish("a", messages(*range(20)))
    add = Root.add_polled

    def late(root: Root, *args: Any, **options: Any) -> Any:
        monkeypatch.setattr(Root, "add_polled", add)
        broker.publish("a", messages(20))
        assert polled(store).records == 21
        return add(root, *args, **options)

    monkeypatch.setattr(Root, "add_polled", late)
    assert polled(store).records == 0
    assert polled(store).records == 0
    assert ids(store) == list(range(21))


def test_topic_that_the_source_drops_is_unsubscribed(broker: Broker, store: Store) -> None:
    root = made(store, step(broker.port))
    polled(store)
    broker.publish("a", messages(1))
    polled(store)
    topics = (MqttTopicSubscription(path="b", qos=MqttQos.AT_LEAST_ONCE),)
    source = root.state.polling_source
    assert source is not None
    root.refresh()
    root.append_events([replace(source, fetch=step(broker.port, topics=topics))])
    polled(store)
    broker.publish("a", messages(2))
    broker.publish("b", messages(3))
    polled(store)
    assert ids(store) == [1, 3]


def test_wrong_password_and_absent_broker_are_told(broker: Broker, store: Store) -> None:
    made(store, step(broker.port, password="${{ env.WORD }}x"))
    with pytest.raises(SourceRefused, match="refuses the user") as refused:
        polled(store)
    assert PASSWORD not in str(refused.value)
    broker.stop()
    with pytest.raises(SourceUnavailable, match="cannot be reached"):
        polled(store)


@pytest.mark.parametrize(
    ("hosts", "port", "reason"),
    [
        (("example.org",), 1883, "host '127.0.0.1' is not on the operator's list"),
        (("127.0.0.1",), 8883, "port 8883 is not on the operator's list of source hosts; add '127.0.0.1:8883'"),
        (("*",), 1883, "resolves to 127.0.0.1, which is not a public address"),
        (("127.0.0.1:8883",), 8883, "resolves to 127.0.0.1, which is not a public address"),
    ],
)
def test_broker_that_the_url_policy_forbids_is_refused(
    store: Store, hosts: tuple[str, ...], port: int, reason: str
) -> None:
    root = made(store, step(port))
    with pytest.raises(SourceRefused, match=reason):
        poll_source(root, replace(CONTEXT, policy=UrlPolicy(hosts)))


def test_window_comes_back_from_its_state() -> None:
    window = Window(3, ("a/#",), (mark_of(1, "a", b"x"), mark_of(65535, "b", b"")))
    state = SourceState(source_name="default", kind=STATE, value=window.render())
    assert Window.parse(state) == window
    for value in ("", "[]", "7", '["x",[],""]', '[1,[],"?"]', "[1,2,3]"):
        assert Window.parse(replace(state, value=value)) == Window()
    assert Window.parse(replace(state, kind="odf/etag")) == Window()


@pytest.mark.parametrize(("dup", "kept"), [(True, True), (False, False)])
def test_marks_are_kept_while_redeliveries_may_follow(dup: bool, kept: bool) -> None:
    first, second = mark_of(1, "a", b"x"), mark_of(2, "b", b"y")
    connection = mqtt._Connection(step(1883), CONTEXT, Templates(CONTEXT.env), Window(1, (), (first, second)))
    connection._on_connect(None, None, SimpleNamespace(session_present=True), None, None)
    for packet, topic, payload, again in ((1, "a", b"x", True), (3, "a", b"z", dup)):
        message = SimpleNamespace(mid=packet, topic=topic, payload=payload, qos=1, dup=again)
        connection._on_message(None, None, message)
    assert connection.batch.count == 1
    assert connection.marks() == (first, mark_of(3, "a", b"z"), *([second] if kept else []))


def drive(url: str) -> None:
    """A driver: polls until it is killed."""
    mqtt.IDLE = 0.1
    while True:
        try:
            polled(open_store(StoreConfig(url)))
        except SourceUnavailable:
            time.sleep(0.05)


@contextmanager
def driver(store: Store) -> Iterator[None]:
    """A process that polls, killed at the end of the block."""
    process = multiprocessing.get_context("spawn").Process(target=drive, args=(store.config.url,), daemon=True)
    process.start()
    yield
    process.kill()
    process.join(60)
    assert not process.is_alive(), "the driver does not end within 60 s of SIGKILL"


def drained(store: Store) -> list[int]:
    """What the chain has after polls until nothing is new."""
    for _ in range(100):
        if not polled(store).commits:
            sound(store)
            return ids(store)
    raise AssertionError("100 polls find new messages, and nothing publishes any")


def test_killed_drivers_and_stopped_brokers_leave_each_message_once(broker: Broker, store: Store) -> None:
    made(store, step(broker.port))
    polled(store)
    chance = random.Random(7)
    for kill in range(KILLS):
        with driver(store):
            broker.publish("a", messages(*range(500 * kill, 500 * (kill + 1))))
            time.sleep(chance.uniform(0.5, 2.5))
            if kill % 2:
                broker.stop()
                broker.start()
                time.sleep(chance.uniform(0, 0.5))
    broker.publish("a", messages(*range(500 * KILLS, 500 * (KILLS + 1))))
    assert drained(store) == list(range(500 * (KILLS + 1)))


def test_killed_brokers_leave_each_saved_or_resent_message_once(broker: Broker, store: Store) -> None:
    """Of a killed broker, messages are lost that it had not saved: their publisher sends them again. Others come twice,
    unmarked, as it also forgot that they were acknowledged: Ledger has each once.
    """
    made(store, step(broker.port), LEDGER)
    polled(store)
    broker.save()
    chance = random.Random(8)
    for kill in range(KILLS):
        first = 500 * kill
        with driver(store):
            broker.publish("a", messages(*range(first, first + 250)))
            broker.save()
            time.sleep(chance.uniform(0, 2.5))
            killer = threading.Timer(chance.uniform(0, 0.1), broker.kill)
            killer.start()
            with suppress(PublisherFailed):
                broker.publish("a", messages(*range(first + 250, first + 500)))
            killer.join()
            broker.start()
            broker.publish("a", messages(*range(first + 250, first + 500)))
            time.sleep(chance.uniform(0, 0.5))
    assert drained(store) == list(range(500 * KILLS))


@pytest.mark.skipif(not SOAK, reason="measures, on a quiet machine")
def test_messages_per_second_are_measured(broker: Broker, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    """``KUBOTHEK_SOAK=1 pytest -n0 -k messages_per_second tests/odf/sources/test_mqtt.py``; figures: decision 0059."""
    made(store, step(broker.port))
    polled(store)
    count, records = 50_000, 0
    for first in range(0, count, 10_000):
        broker.publish("a", messages(*range(first, first + 10_000)))
    start, busy = time.monotonic(), time.process_time()
    while records < count:
        records += polled(store).records
    wall, busy = time.monotonic() - start, time.process_time() - busy
    with capsys.disabled():
        print(f"{count / wall:.0f} messages/s into the chain, {count / busy:.0f} per second of CPU time")
    assert drained(store) == list(range(count))
