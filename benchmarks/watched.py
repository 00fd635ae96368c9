"""When each Commit of a namespace came how far, by watches of the Commits and of their drivers' pods."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from tests.e2e.kubectl import PATIENCE, Kubectl

_COMMIT: Final = '{.metadata.name}|{.status.attempt}|{.status.conditions[?(@.type=="Complete")].status}{"\\n"}'
_POD: Final = (
    "{.metadata.labels.kubothek\\.io/name}|{.metadata.labels.app\\.kubernetes\\.io/component}|{.status.phase}|"
    '{.spec.nodeName}|{.status.containerStatuses[?(@.name=="driver")].state.running.startedAt}|'
    '{.metadata.annotations.kubothek\\.io/progress}|{.metadata.annotations.kubothek\\.io/result}{"\\n"}'
)
_PAUSE_SECONDS: Final = 0.2


class Watched:
    """Moments are those at which this process hears of it, so each is as late as a user would see it."""

    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl = kubectl
        self._changed = threading.Condition()
        self._over = threading.Event()
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self.moments: dict[str, dict[str, float]] = {}

    def __enter__(self) -> Watched:
        for kind, columns, take in (("kcm", _COMMIT, self._commit), ("pods", _POD, self._pod)):
            threading.Thread(target=self._follow, args=(kind, columns, take), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        with self._changed:
            for process in self._processes.values():
                process.terminate()

    def until(self, name: str, moment: str) -> dict[str, float]:
        """Wait until it has come so far; its moments."""
        with self._changed:
            came = self._changed.wait_for(lambda: moment in self.moments.get(name, {}), timeout=PATIENCE)
            found = dict(self.moments.get(name, {}))
        assert came, f"{name} was not {moment} in {PATIENCE} s, only {found}\n{self._kubectl.situation()}"
        return found

    def _follow(self, kind: str, columns: str, take: Callable[[Sequence[str]], None]) -> None:
        """A watch ends with its API server: another one begins with what there is."""
        binary: list[str] = [str(self._kubectl.binary), "--kubeconfig", str(self._kubectl.kubeconfig)]
        command = [*binary, "--namespace", self._kubectl.namespace, "get", kind, "--watch", "-o", f"jsonpath={columns}"]
        while not self._over.is_set():
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as watch:  # noqa: S603 - our own words
                with self._changed:
                    self._processes[kind] = watch
                    if self._over.is_set():
                        watch.terminate()
                assert watch.stdout is not None
                for line in watch.stdout:
                    with self._changed:
                        take(line.rstrip("\n").split("|", columns.count("|")))
                        self._changed.notify_all()
            self._over.wait(_PAUSE_SECONDS)

    def _commit(self, columns: Sequence[str]) -> None:
        name, attempt, complete = columns
        self._note(name, decided=attempt not in ("", "0"), Ready=complete == "True")

    def _pod(self, columns: Sequence[str]) -> None:
        name, component, phase, node, running, progress, result = columns
        if name and component == "driver":  # executors have the name of their Commit too
            self._note(
                name,
                pod=True,
                scheduled=bool(node),
                started=bool(running),
                imported=bool(progress),
                committed=bool(result),
                ended=phase in ("Succeeded", "Failed"),
            )

    def _note(self, name: str, **came: bool) -> None:
        for moment, so in came.items():
            if so:
                self.moments.setdefault(name, {}).setdefault(moment, time.monotonic())
