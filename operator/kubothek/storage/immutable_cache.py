"""What was read of a store, or worked out of it, and never changes: kept for the next time in bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from kubothek.storage.base import Store

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")


class Kept(Generic[K, V]):
    """Values by key, those that were used last. Safe to use from several threads.

    ``budget``  bytes that all may take together; the newest one stays, whatever it takes
    ``cost``    bytes that they take
    """

    def __init__(self, budget: int) -> None:
        self.cost = 0
        self._budget = budget
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = Lock()

    def recall(self, key: K) -> tuple[V] | None:
        """Return the value alone in a tuple, as it may be None; None if it is not kept."""
        with self._lock:
            if (found := self._values.get(key)) is None:
                return None
            self._values.move_to_end(key)
            return found[:1]

    def keep(self, key: K, value: V, cost: int) -> None:
        """Keep a value that takes so many bytes, in place of an earlier one."""
        with self._lock:
            if (before := self._values.pop(key, None)) is not None:
                self.cost -= before[1]
            self._values[key] = value, cost
            self.cost += cost
            while self.cost > self._budget and len(self._values) > 1:
                self.cost -= self._values.popitem(last=False)[1][1]

    def get(self, key: K, make: Callable[[], V], cost_of: Callable[[V], int]) -> V:
        """The value, made if it is not kept; several threads may make it at once. Raises what making it raises."""
        if (found := self.recall(key)) is not None:
            return found[0]
        made = make()
        self.keep(key, made, cost_of(made))
        return made


def by_store(make: Callable[[Store], T]) -> Callable[[Store], T]:
    """Return one of a kind for each store, as long as the store is."""
    made: WeakKeyDictionary[Store, Any] = WeakKeyDictionary()
    lock = Lock()

    def of(store: Store) -> T:
        with lock:
            if store not in made:
                made[store] = make(store)
            found: T = made[store]
            return found

    return of
