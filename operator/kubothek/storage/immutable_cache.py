"""Cache of immutable values that were read from a store or computed from it, in bounded memory."""

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
    """The most recently used values by key. Thread-safe.

    ``budget``  bytes that all may take together; the newest one stays, whatever its size
    ``cost``    bytes that they take
    """

    def __init__(self, budget: int) -> None:
        self.cost = 0
        self._budget = budget
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = Lock()

    def recall(self, key: K) -> tuple[V] | None:
        """Return the value in a tuple of one, as it may be None; None if it is not cached."""
        with self._lock:
            if (found := self._values.get(key)) is None:
                return None
            self._values.move_to_end(key)
            return found[:1]

    def keep(self, key: K, value: V, cost: int) -> None:
        """Cache a value that takes this many bytes, in place of an earlier one."""
        with self._lock:
            if (before := self._values.pop(key, None)) is not None:
                self.cost -= before[1]
            self._values[key] = value, cost
            self.cost += cost
            while self.cost > self._budget and len(self._values) > 1:
                self.cost -= self._values.popitem(last=False)[1][1]

    def get(self, key: K, make: Callable[[], V], cost_of: Callable[[V], int]) -> V:
        """Return the cached value, or make it; several threads may make it at once. Raises the errors of ``make``."""
        if (found := self.recall(key)) is not None:
            return found[0]
        made = make()
        self.keep(key, made, cost_of(made))
        return made


def by_store(make: Callable[[Store], T]) -> Callable[[Store], T]:
    """Return a function that makes one value per store and keeps it for the lifetime of the store object."""
    made: WeakKeyDictionary[Store, Any] = WeakKeyDictionary()
    lock = Lock()

    def of(store: Store) -> T:
        with lock:
            if store not in made:
                made[store] = make(store)
            found: T = made[store]
            return found

    return of
