"""Job slots: which jobs hold one under the operator's concurrency limits, and which resources wait for one.

A job holds its slot (:class:`~kubothek.controller.context.JobSlot`) from the decision to launch it, so that no two
workers assign the same slot, until its pod ends. After a restart slots are counted again from the pods, and resources
that wait request theirs again.

A resource is woken when :func:`kubothek.controller.scheduling.concurrency.admitted` admits one of its jobs, by the same
rules as its reconciler. A count of free slots would not suffice: with limits per namespace, the end of a job frees no
slot for other namespaces. A launch may also change which resource is next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, zip_longest
from typing import Any, TypeVar

from kubothek.cluster import names
from kubothek.cluster.queue import Key
from kubothek.controller.context import ENDED, Action, AwaitSlot, JobSlot, LaunchJob, Limits, Load
from kubothek.controller.scheduling.concurrency import admitted, job_slot_of, spare

_AT_ONCE = 4
"""Resources woken together, if there are as many free slots. Their decisions show whether to wake more."""

T = TypeVar("T")


class JobSlots:
    """The slots that are held and waited for. Belongs to one event loop."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held: dict[tuple[str, str], JobSlot] = {}
        """Held slots by namespace and job."""
        self._pods: set[tuple[str, str]] = set()
        """Keys of ``_held`` whose pod was observed."""
        self._waiting: dict[str, dict[Key, tuple[JobSlot, ...]]] = {}
        """Waiting resources in order of arrival, by namespace; first the namespace that got a slot longest ago."""
        self._held_count: Counter[JobSlot] = Counter()
        self._wanted: Counter[JobSlot] = Counter()
        self._held_by: Counter[str] = Counter()
        """Number of held slots by namespace."""
        self._open = False
        """Whether a resource that was not woken may be able to proceed."""
        self._asked: set[Key] = set()
        """Resources woken since the held or wanted slots last changed."""
        self._deciding: set[Key] = set()
        """Members of ``_asked`` whose reconciliation has not ended."""

    @property
    def load(self) -> Load:
        """The slots that are held and waited for, as a live view."""
        return Load(self._held_count, self._wanted)

    def follow(self, pod: dict[str, Any]) -> None:
        """Update the slots from a state of a driver pod."""
        meta = pod["metadata"]
        labels, job = meta.get("labels") or {}, (meta["namespace"], names.job_of(pod))
        slot = job_slot_of(labels.get(names.VERB, ""), meta["namespace"], labels.get(names.STORE, ""))
        if slot is None or (pod.get("status") or {}).get("phase") in ENDED:
            self.release(*job)
            return
        self._pods.add(job)
        self._hold(job, slot)

    def release(self, namespace: str, job: str) -> None:
        """Release the slot of a job that has ended, or whose pod is gone."""
        self._pods.discard((namespace, job))
        slot = self._held.pop((namespace, job), None)
        if slot is not None:
            _subtract(self._held_count, slot)
            _subtract(self._held_by, slot.namespace)
            self._ask_again()

    @contextmanager
    def decided(self, key: Key, actions: Sequence[Action]) -> Iterator[None]:
        """Hold the slots of the jobs to launch; on exit release those of jobs that got no pod."""
        launched: list[tuple[str, str]] = []
        for action in actions:
            if not isinstance(action, LaunchJob):
                continue
            job, slot = action.job, job_slot_of(action.job.verb, key.namespace, action.job.store.name)
            if slot is not None and (key.namespace, job.job) not in self._held:
                launched.append((key.namespace, job.job))
                self._hold(launched[-1], slot)
        awaited = tuple(action.slot for action in actions if isinstance(action, AwaitSlot))
        self._wait(key, awaited)
        try:
            yield
        finally:
            for lost in launched:
                if lost not in self._pods:
                    self.release(*lost)

    def withdraw(self, key: Key) -> None:
        """Drop the requests of a resource that is gone, or whose reconciliation failed: it may never use a slot."""
        self._wait(key, ())

    def answered(self, key: Key) -> None:
        """Note that a reconciliation of the resource ended, perhaps without a decision."""
        self._deciding.discard(key)

    def woken(self) -> Iterator[Key]:
        """Yield the next few resources that may proceed; nothing until those of the last call have decided.

        They alternate by namespace. A namespace that holds fewer slots comes first, among equals the one that got a
        slot longest ago. If slots remain free, the next call yields others.
        """
        if not self._open or self._deciding:
            return
        free = spare(self._limits, self.load)
        following = list(islice(self._following(), _AT_ONCE if free is None else min(free, _AT_ONCE)))
        self._open = bool(following)
        self._asked.update(following)
        self._deciding.update(following)
        yield from following

    def _following(self) -> Iterator[Key]:
        slots = admitted(self._limits, self.load)
        admissible = {slot.namespace for slot in slots}
        waiting = (namespace for namespace in self._waiting if namespace in admissible)
        order = sorted(waiting, key=lambda namespace: self._held_by[namespace])
        heads = [list(islice(self._in(namespace, slots), _AT_ONCE)) for namespace in order]
        for turn in zip_longest(*heads):
            yield from (key for key in turn if key is not None)

    def _in(self, namespace: str, slots: set[JobSlot]) -> Iterator[Key]:
        for key, wanted in self._waiting[namespace].items():
            if key not in self._asked and not slots.isdisjoint(wanted):
                yield key

    def _ask_again(self) -> None:
        """Note that held or wanted slots changed: a resource that could not proceed may now."""
        self._open = True
        self._asked &= self._deciding

    def _hold(self, job: tuple[str, str], slot: JobSlot) -> None:
        if job not in self._held:
            self._held[job] = slot
            self._held_count[slot] += 1
            self._held_by[slot.namespace] += 1
            if waiting := self._waiting.pop(slot.namespace, None):
                self._waiting[slot.namespace] = waiting
            self._ask_again()

    def _wait(self, key: Key, slots: tuple[JobSlot, ...]) -> None:
        self._deciding.discard(key)
        waiting = self._waiting.get(key.namespace, {})
        before = waiting.get(key, ())
        if slots == before:
            return
        for slot in before:
            _subtract(self._wanted, slot)
        self._wanted.update(slots)
        if slots:
            self._waiting.setdefault(key.namespace, waiting)[key] = slots
        else:
            del waiting[key]
            if not waiting:
                del self._waiting[key.namespace]
        if before:  # the dropped request may have held others back
            self._ask_again()


def _subtract(counter: Counter[T], what: T) -> None:
    counter[what] -= 1
    if not counter[what]:
        del counter[what]
