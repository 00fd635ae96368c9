"""Explores every interleaving of a few programs over one shared store: breadth first, each state once.

A program is a generator that yields operations on the store and receives their results; between two yields it touches
nothing shared, so one operation is one atomic step. A generator cannot be copied, so the state of a program is what it
was started with and the results it received, and it is run again from there, once for each distinct state. A program
that returns :class:`Task` goes on as that, and forgets its results: paths that differ only in the past meet again.

A crash is a program that is never scheduled again. Every state is checked, so every crash at every step is covered.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

Store = Mapping[Hashable, Any]
Outcome = tuple[Any, Store]
Program = Generator["Op", Any, "Task | None"]

CLOCK = "clock"

State = tuple[int, ...]
"""The number of a store, then those of the programs' tasks."""
_ENDED = -1
_CRASHED = -2


class Violation(Exception):
    """The protocol did what it must never do; ``trace`` is a shortest way there."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.trace: list[str] = []

    def __str__(self) -> str:
        return "\n  ".join([self.what, *self.trace])


class Op(NamedTuple):
    """One request. ``act(store)`` gives each possible outcome: its result and the store after it.

    ``until``   the clock stops at this time while the request is under way; its program may crash instead
    """

    text: str
    act: Callable[[Store], Iterator[Outcome]]
    until: int | None = None


class Step(NamedTuple):
    """One step of a trace; put into words only when somebody reads it."""

    who: str
    what: str
    result: Any = ""

    def __str__(self) -> str:
        outcome = "" if self.result == "" else f" -> {self.result}"
        return f"{self.who}: {self.what}{outcome}"


class Task(NamedTuple):
    """The state of a program."""

    program: Callable[..., Program]
    arguments: tuple[Any, ...]
    results: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Explored:
    """How much was looked at; ``ends`` are states in which all programs have ended by themselves."""

    states: int
    ends: int


class Explorer:
    """``programs`` by name; ``ticks`` bounds the clock.

    ``check`` raises Violation for a store that must not be, ``check_end`` for one that must not be the end of all.
    """

    def __init__(
        self,
        store: Store,
        programs: Mapping[str, Task],
        check: Callable[[Store], None],
        *,
        check_end: Callable[[Store], None] = lambda _store: None,
        ticks: int = 0,
    ) -> None:
        self._names = [*programs]
        self._check = check
        self._check_end = check_end
        self._last_tick = ticks
        self._stores: list[Store] = []
        self._store_ids: dict[frozenset[tuple[Hashable, Any]], int] = {}
        self._tasks: list[Task] = []
        self._ops: list[Op] = []
        self._task_ids: dict[Task, int] = {}
        self._effects: dict[tuple[int, int], list[tuple[Step, int, int]]] = {}
        self._start = (self._store_id(store), *(self._task_id(task) for task in programs.values()))

    def run(self, limit: int = 400_000) -> Explored:
        """Visit every state. Raises Violation with its trace; RuntimeError if there are more than ``limit``."""
        came_from: dict[State, tuple[State, Step] | None] = {self._start: None}
        frontier = [self._start]
        ends = 0
        while frontier:
            following = []
            for state in frontier:
                try:
                    successors = self._successors(state)
                    if set(state[1:]) == {_ENDED}:
                        ends += 1
                        self._check_end(self._stores[state[0]])
                except _StepError as failed:
                    failed.violation.trace = [*_path(came_from, state), str(failed.step)]
                    raise failed.violation from None
                except Violation as violation:
                    violation.trace = [*_path(came_from, state), "all have ended"]
                    raise
                for step, successor in successors:
                    if successor not in came_from:
                        came_from[successor] = (state, step)
                        following.append(successor)
            if len(came_from) > limit:
                raise RuntimeError(f"more than {limit} states: make the scenario smaller")
            frontier = following
        return Explored(len(came_from), ends)

    def _successors(self, state: State) -> list[tuple[Step, State]]:
        found = []
        store_id = state[0]
        now = self._stores[store_id].get(CLOCK, 0)
        overdue = False
        for place, task_id in enumerate(state[1:], 1):
            if task_id in (_ENDED, _CRASHED):
                continue
            for step, next_store, next_task in self._effects_of(store_id, task_id, self._names[place - 1]):
                found.append((step, (next_store, *state[1:place], next_task, *state[place + 1 :])))
            until = self._ops[task_id].until
            if until is not None and until <= now:
                overdue = True
                crashed = (store_id, *state[1:place], _CRASHED, *state[place + 1 :])
                found.append((Step(self._names[place - 1], "crashes"), crashed))
        if now < self._last_tick and not overdue:
            later = self._store_id({**self._stores[store_id], CLOCK: now + 1})
            found.append((Step("the clock", str(now + 1)), (later, *state[1:])))
        return found

    def _effects_of(self, store_id: int, task_id: int, name: str) -> list[tuple[Step, int, int]]:
        """What one step of a task can do: the text of the step, the store and the task after it."""
        known = self._effects.get((store_id, task_id))
        if known is not None:
            return known
        task, op = self._tasks[task_id], self._ops[task_id]
        effects = []
        try:
            for result, store in op.act(self._stores[store_id]):
                following = self._task_id(Task(task.program, task.arguments, (*task.results, result)))
                effects.append((Step(name, op.text, result), self._store_id(store), following))
        except Violation as violation:
            raise _StepError(Step(name, op.text), violation) from None
        self._effects[store_id, task_id] = effects
        return effects

    def _store_id(self, store: Store) -> int:
        key = frozenset(store.items())
        found = self._store_ids.get(key)
        if found is None:
            self._check(store)
            found = self._store_ids[key] = len(self._stores)
            self._stores.append(store)
        return found

    def _task_id(self, task: Task) -> int:
        """The number of a task, after what it became; ``_ENDED`` for a program that has ended."""
        found = self._task_ids.get(task)
        if found is None:
            following = _advance(task)
            if isinstance(following, Op):
                found = len(self._tasks)
                self._tasks.append(task)
                self._ops.append(following)
            else:
                found = _ENDED if following is None else self._task_id(following)
            self._task_ids[task] = found
        return found


class _StepError(Exception):
    def __init__(self, step: Step, violation: Violation) -> None:
        self.step = step
        self.violation = violation


def _advance(task: Task) -> Op | Task | None:
    """What a task does next: an operation, becoming another task, or nothing."""
    running = task.program(*task.arguments)
    try:
        op = next(running)
        for result in task.results:
            op = running.send(result)
    except StopIteration as end:
        following: Task | None = end.value
        return following
    return op


def _path(came_from: Mapping[State, Any], state: State) -> Sequence[str]:
    steps = []
    while (step := came_from[state]) is not None:
        state, taken = step
        steps.append(str(taken))
    return steps[::-1]
