"""A real MQTT broker, Debian's mosquitto, on a port of this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path
from signal import SIGKILL, SIGTERM, SIGUSR1, Signals
from typing import Any, Self

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from tests.testcluster.cache import locked
from tests.testcluster.debian import install_packages
from tests.testcluster.paths import cache_root

PROGRAM = "/usr/sbin/mosquitto"
USER, PASSWORD = "reader", "swordfish"
_WINDOW = 1000
"""Messages that a publisher has unacknowledged at most: the broker closes a connection with more."""
_BOUND = 60.0
"""Seconds for which anything here waits at most."""


class PublisherFailed(Exception):
    """The broker did not acknowledge every message."""


class Broker:
    """A broker that keeps its sessions in a directory; only :data:`USER` may connect."""

    def __init__(self, directory: Path) -> None:
        _install()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        words = directory / "passwords"
        words.touch(0o600)
        subprocess.run(["mosquitto_passwd", "-b", words, USER, PASSWORD], check=True, stderr=subprocess.DEVNULL)
        self._saved = directory / "mosquitto.db"
        self._log = directory / "log"
        self._config = directory / "mosquitto.conf"
        self._config.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous false\npassword_file {words}\nuser root\n"
            f"persistence true\npersistence_location {directory}/\nautosave_interval 1\n"
            f"max_queued_messages 0\nmax_inflight_messages {_WINDOW}\n"
        )
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([PROGRAM, "-c", self._config], stderr=log)
        end = time.monotonic() + _BOUND
        while time.monotonic() < end and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise AssertionError(f"mosquitto does not start on port {self.port}: {self._log.read_text()[-1000:]}")

    def stop(self, by: Signals = SIGTERM) -> None:
        """End it: by SIGTERM as an upgrade does, after it saved its sessions; by SIGKILL with what it saved before."""
        if self._process is not None:
            self._process.send_signal(by)
            try:
                self._process.wait(_BOUND)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                raise AssertionError(f"mosquitto does not end within {_BOUND:.0f} s of {by.name}") from None
            finally:
                self._process = None

    def kill(self) -> None:
        """End it at once: it keeps what it saved, and no more."""
        self.stop(SIGKILL)

    def save(self) -> None:
        """Make it save its sessions now, and wait until it has."""
        assert self._process is not None, "save needs a broker that runs"
        before = self._saved.stat().st_ino if self._saved.exists() else 0
        self._process.send_signal(SIGUSR1)
        end = time.monotonic() + _BOUND
        while not self._saved.exists() or self._saved.stat().st_ino == before:
            if time.monotonic() > end:
                raise AssertionError(f"mosquitto does not save {self._saved} within {_BOUND:.0f} s of SIGUSR1")
            time.sleep(0.01)

    def publish(self, topic: str, payloads: list[bytes], qos: int = 1) -> None:
        """Publish the messages, and wait until the broker has acknowledged each. Raises PublisherFailed."""
        client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5, reconnect_on_failure=False)
        client.username_pw_set(USER, PASSWORD)
        client.max_inflight_messages_set(_WINDOW)
        client.max_queued_messages_set(0)
        try:
            client.connect("127.0.0.1", self.port)
        except OSError as error:
            raise PublisherFailed(f"publisher: the broker cannot be reached: {error}") from None
        end = time.monotonic() + _BOUND

        def turn(what: str) -> None:
            code = client.loop(0.1)
            if code or time.monotonic() > end:
                raise PublisherFailed(f"publisher: {what} on {topic!r}: {code.name} (bound: {_BOUND:.0f} s)")

        while not client.is_connected():
            turn("no connection")
        sent: list[Any] = [client.publish(topic, payload, qos) for payload in payloads]
        for number, message in enumerate(sent):
            while not message.is_published():
                turn(f"message {number} of {len(sent)} is not acknowledged")
        client.disconnect()


def _install() -> None:
    """Install the broker unless it is there, in one process of the machine at a time."""
    if Path(PROGRAM).exists():
        return
    if os.geteuid() != 0:
        raise PermissionError("Debian's mosquitto is missing: run the tests as root once, or install it")
    with locked(cache_root() / "mosquitto"):
        install_packages(["mosquitto"])
