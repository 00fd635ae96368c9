"""Long-running processes that outlive the program that started them."""

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.testcluster.components import Component
from tests.testcluster.layout import Layout

STOP_TIMEOUT = 20.0


@dataclass(frozen=True)
class Daemon:
    """One component as a process of this machine, found again by its pid file."""

    component: Component
    layout: Layout

    @property
    def log(self) -> Path:
        return self.layout.log / f"{self.component.name}.log"

    @property
    def _pid_file(self) -> Path:
        return self.layout.pid / self.component.name

    def running_pid(self) -> int | None:
        """The process's number, or None if it has ended."""
        try:
            pid, started = (int(word) for word in self._pid_file.read_text().split())
        except (FileNotFoundError, ValueError):
            return None
        # The start time tells our process from a later one that was given the same number.
        return pid if start_time(pid) == started else None

    def start(self, environment: dict[str, str] | None = None) -> None:
        """Start the process unless it runs."""
        if self.running_pid() is not None:
            return
        for directory in (self.layout.log, self.layout.pid):
            directory.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            child = subprocess.Popen(
                self.component.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.layout.run,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        self._pid_file.write_text(f"{child.pid} {start_time(child.pid)}")

    def stop(self, *, kill: bool = False) -> None:
        """Stop the process and wait until it is gone; `kill` gives it no chance to say goodbye."""
        if (pid := self.running_pid()) is not None:
            os.kill(pid, signal.SIGKILL if kill else signal.SIGTERM)
            if not self._ended():
                os.kill(pid, signal.SIGKILL)
                self._ended()
        self._pid_file.unlink(missing_ok=True)

    def _ended(self) -> bool:
        """Wait for the end. A zombie has ended: whose child it is now may take its time to bury it."""
        deadline = time.monotonic() + STOP_TIMEOUT
        while self.running_pid() is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of what the process printed."""
        if not self.log.exists():
            return "(no log)"
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def start_time(pid: int) -> int | None:
    """When a process started, in the kernel's ticks since boot; None if it has ended.

    Not as a time of day: that is reckoned from the time of boot, which moves when the clock is set.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in parentheses, and may hold anything.
    fields = stat.rpartition(")")[2].split()
    state, ticks = fields[0], fields[19]
    return None if state == "Z" else int(ticks)
