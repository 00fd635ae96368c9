"""The fetch step for MQTT brokers (specification 0.35): one batch of messages per poll, exactly once in the chain.

A dataset has one session at its broker (MQTT 5.0, 4.1), which keeps what was not acknowledged. A batch is committed
first and acknowledged afterwards, so a crash makes the broker deliver messages again: with the flag DUP and the same
packet identifiers (4.4). The source state names the messages of the last commit, and those that the broker may not know
to be acknowledged. A redelivered message that it names is acknowledged and dropped. A broker that restores an older
state of the session delivers messages again that no flag marks.
"""

from __future__ import annotations

import json
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from tempfile import TemporaryFile
from typing import IO, Any, Final, Self

from kubothek.errors import InputError, SourceRefused, SourceUnavailable
from kubothek.odf.sources.fetch.context import FetchContext, File, UpToDate, state_of
from kubothek.odf.sources.fetch.event_times import to_milliseconds
from kubothek.odf.sources.fetch.templates import Templates
from kubothek.odf.sources.readers.content import FileContent
from kubothek.odf.spec.events import SourceState
from kubothek.odf.spec.sources import FetchStepMqtt, MqttQos

STATE: Final = "kubothek/mqtt"
BATCH: Final = 10_000
"""The receive maximum: after so many messages a batch ends. A broker that sends more makes it longer."""
_BATCH_BYTES: Final = 64 << 20
IDLE = 1.0
"""Seconds without a message after which a batch ends."""
_LONGEST: Final = 10.0
"""Seconds after which a batch ends in any case."""
_TIMEOUT: Final = 30.0
_KEEP_ALIVE: Final = 3600
"""Seconds; a commit takes less, and nothing is sent meanwhile."""
_SESSION: Final = 30 * 24 * 3600
"""Seconds for which the broker keeps a session without a connection."""
_DIGEST: Final = 4
_MARK: Final = 2 + _DIGEST
_AUTHENTICATION: Final = (134, 135)
"""Reason codes for a wrong user or password, and for one without the right (3.2.2.2)."""


@dataclass(frozen=True, slots=True)
class Window:
    """The source state: ``marks`` of committed messages that the broker may deliver again, and the session's topics."""

    batch: int = 0
    topics: tuple[str, ...] = ()
    marks: tuple[bytes, ...] = ()

    def render(self) -> str:
        """Return the text of the source state."""
        return json.dumps([self.batch, self.topics, b64encode(b"".join(self.marks)).decode()], separators=(",", ":"))

    @classmethod
    def parse(cls, state: SourceState | None) -> Self:
        """Return the window of a state; an empty one for a state of another kind or form (SS-02)."""
        if state is None or state.kind != STATE:
            return cls()
        try:
            batch, topics, marks = json.loads(state.value)
            data = b64decode(marks, validate=True)
            pieces = tuple(data[at : at + _MARK] for at in range(0, len(data), _MARK))
            return cls(int(batch), tuple(map(str, topics)), pieces)
        except (ValueError, TypeError):
            return cls()


@dataclass(slots=True)
class _Batch:
    """The messages of one connection so far. ``marks`` are those of QoS 1, also of messages that the chain has."""

    file: IO[bytes] = field(default_factory=TemporaryFile)
    marks: list[bytes] = field(default_factory=list)
    unacknowledged: list[int] = field(default_factory=list)
    count: int = 0
    size: int = 0
    last: float = field(default_factory=time.monotonic)

    def add(self, message: Any) -> None:
        """Add a message that the chain does not have."""
        if message.qos:
            self.unacknowledged.append(message.mid)
        self.count += 1
        self.size += len(message.payload)
        if message.payload:
            self.file.write(message.payload + b"\n")

    @property
    def is_full(self) -> bool:
        return self.count >= BATCH or self.size >= _BATCH_BYTES


def mark_of(packet: int, topic: str, payload: bytes) -> bytes:
    """Return what identifies a message in the state: its packet identifier, and a digest of topic and payload."""
    digest = sha256(topic.encode() + b"\0" + payload).digest()[:_DIGEST]
    return packet.to_bytes(2, "big") + digest


def fetch_messages(
    step: FetchStepMqtt, state: SourceState | None, context: FetchContext, templates: Templates
) -> File | UpToDate:
    """Return the messages that wait, one per line; ``acknowledge`` of the file is to be called after its commit.

    Messages of QoS 0 are those of the connection only: the broker does not keep them. ExactlyOnce is read with QoS 1,
    and the chain has each message once. Raises SourceRefused, SourceUnavailable, InputError (variables, topics).
    """
    if not step.topics:
        raise InputError("fetch.topics is empty: name a topic")
    if not context.session:
        raise SourceRefused("fetch from an MQTT broker needs a dataset whose session it is")
    before = Window.parse(state)
    connection = _Connection(step, context, templates, before)
    connection.open()
    connection.receive()
    batch = connection.batch
    if not batch.count:
        connection.acknowledge()
        return UpToDate()
    batch.file.flush()
    topics = tuple(topic.path for topic in step.topics)
    return File(
        content=FileContent(connection.name, batch.file),
        state=state_of(STATE, Window(before.batch + 1, topics, connection.marks()).render()),
        event_time=to_milliseconds(context.now),
        has_more=batch.is_full,
        acknowledge=connection.acknowledge,
    )


class _Connection:
    """A connection of the dataset's session. It has no thread of its own: it works while a method runs."""

    def __init__(self, step: FetchStepMqtt, context: FetchContext, templates: Templates, before: Window) -> None:
        try:
            import paho.mqtt.client as mqtt
            from paho.mqtt.enums import CallbackAPIVersion
        except ImportError:
            raise InputError("fetch: Mqtt needs the package paho-mqtt: pip install 'kubothek[mqtt]'") from None

        self.name = f"mqtt://{step.host}:{step.port}"
        self.batch = _Batch()
        self._step = step
        self._policy = context.policy
        self._before = before
        self._known: frozenset[bytes] = frozenset()
        self._redelivers = False
        self._answer: Any = None
        self._subscribed: list[Any] | None = None
        self._client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=f"kubothek-{context.session}",
            protocol=mqtt.MQTTv5,
            manual_ack=True,
            reconnect_on_failure=False,
        )
        if step.username is not None:
            password = None if step.password is None else templates.filled(step.password)
            self._client.username_pw_set(templates.filled(step.username), password)
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = self._on_message

    def open(self) -> None:
        """Connect. Raises SourceRefused, SourceUnavailable."""
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = _SESSION
        properties.ReceiveMaximum = BATCH
        problem: Exception = OSError("no address")
        for address, port in self._policy.resolve(self._policy.check(self.name, ("mqtt",))):
            try:
                self._client.connect(address, port, _KEEP_ALIVE, clean_start=False, properties=properties)
                break
            except OSError as error:
                problem = error
        else:
            raise SourceUnavailable(f"{self.name} cannot be reached: {problem}")
        self._turn_until(lambda: self._answer is not None, "the connection")
        if self._answer.value in _AUTHENTICATION:
            raise SourceRefused(f"{self.name} refuses the user: {self._answer}; correct username and password")
        if self._answer.is_failure:
            raise SourceUnavailable(f"{self.name} refuses the connection (MQTT 5): {self._answer}")

    def receive(self) -> None:
        """Fill the batch. Raises SourceRefused for a subscription, SourceUnavailable for a lost connection."""
        from paho.mqtt.subscribeoptions import SubscribeOptions

        topics = {topic.path: 0 if topic.qos in (None, MqttQos.AT_MOST_ONCE) else 1 for topic in self._step.topics}
        if gone := [path for path in self._before.topics if path not in topics]:
            self._client.unsubscribe(gone)
        retained = SubscribeOptions.RETAIN_SEND_IF_NEW_SUB
        try:
            self._client.subscribe(
                [(path, SubscribeOptions(qos, retainHandling=retained)) for path, qos in topics.items()]
            )
        except ValueError as error:
            raise InputError(f"fetch.topics has a path that MQTT does not allow: {error}") from None
        self._turn_until(lambda: self._subscribed is not None, "the subscription")
        for path, code in zip(topics, self._subscribed or (), strict=False):
            if code.is_failure:
                raise SourceRefused(f"{self.name} refuses topic {path!r}: {code}; correct fetch.topics or the rights")
        start = time.monotonic()
        self.batch.last = max(self.batch.last, start)
        while not self.batch.is_full and time.monotonic() - self.batch.last < IDLE:
            if time.monotonic() - start >= _LONGEST:
                break
            self._turn()

    def acknowledge(self) -> None:
        """Acknowledge the batch and end the connection. A lost one is no error: the messages come again, marked."""
        for packet in self.batch.unacknowledged:
            self._client.ack(packet, 1)
        self._client.disconnect()
        end = time.monotonic() + _TIMEOUT
        while self._client.want_write() and time.monotonic() < end:
            if self._client.loop(0.1):
                return

    def _turn_until(self, reached: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + _TIMEOUT
        while not reached():
            if time.monotonic() > end:
                raise SourceUnavailable(f"{self.name} does not answer {what} within {_TIMEOUT:.0f} s")
            self._turn()

    def _turn(self) -> None:
        if (code := self._client.loop(0.1)) and (self._answer is None or not self._answer.is_failure):
            raise SourceUnavailable(f"{self.name}: the connection ended: {code.name}")

    def _on_connect(self, client: Any, data: Any, flags: Any, answer: Any, properties: Any) -> None:
        self._answer = answer
        self._known = frozenset(self._before.marks if flags.session_present else ())

    def _on_subscribe(self, client: Any, data: Any, packet: int, answers: list[Any], properties: Any) -> None:
        self._subscribed = answers

    def _on_message(self, client: Any, data: Any, message: Any) -> None:
        self.batch.last = time.monotonic()
        mark = mark_of(message.mid, message.topic, message.payload)
        if message.qos:
            self.batch.marks.append(mark)
            self._redelivers = bool(message.dup)
        if message.qos and message.dup and mark in self._known:
            self._client.ack(message.mid, 1)
        else:
            self.batch.add(message)

    def marks(self) -> tuple[bytes, ...]:
        """Return the marks for the next state: of all that the broker may have in flight.

        An acknowledgement that was sent may be lost, so a message that was dropped stays marked. A broker redelivers
        before it delivers (4.6): if the last message was a redelivery, the messages of the state before may follow.
        """
        pending = self._known.difference(self.batch.marks) if self._redelivers else ()
        return (*self.batch.marks, *sorted(pending))
