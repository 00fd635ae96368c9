"""The work queue: dedupe, one worker a key, fairness between namespaces, backoff. Time is simulated (looptime)."""

import asyncio
import random

import pytest

from kubothek.cluster.queue import Backoff, Key, WorkQueue

pytestmark = [pytest.mark.looptime, pytest.mark.asyncio]

A = Key("Dataset", "one", "a")
B = Key("Dataset", "one", "b")
C = Key("Dataset", "two", "c")


def steady() -> WorkQueue:
    return WorkQueue(Backoff(initial=1, limit=60, jitter=0))


async def elapsed(queue: WorkQueue, key: Key) -> float:
    """Seconds until the queue hands out the key."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    assert await queue.get() == key
    return loop.time() - start


async def test_queue_key_added_many_times_is_returned_once() -> None:
    queue = steady()
    for _ in range(5):
        queue.add(A)
    assert len(queue) == 1
    assert await queue.get() == A
    queue.done(A)
    assert len(queue) == 0


async def test_queue_is_served_while_worker_waits_or_works() -> None:
    queue = steady()
    assert not queue.served
    worker = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert queue.served
    queue.add(A)
    assert await worker == A
    assert queue.served
    queue.done(A)
    assert not queue.served
    worker = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    worker.cancel()
    await asyncio.wait([worker])
    assert not queue.served


async def test_queue_key_changed_during_work_is_returned_once_more_afterwards() -> None:
    queue = steady()
    queue.add(A)
    await queue.get()
    queue.add(A)
    queue.add(A)
    assert len(queue) == 0
    queue.done(A)
    assert await elapsed(queue, A) == 0
    queue.done(A)
    assert len(queue) == 0


async def test_queue_namespaces_take_turns() -> None:
    queue = steady()
    crowd = [Key("Dataset", "crowded", str(i)) for i in range(4)]
    for key in crowd:
        queue.add(key)
    queue.add(C)
    assert [await queue.get() for _ in range(5)] == [crowd[0], C, *crowd[1:]]


async def test_queue_get_waits_until_key_is_added() -> None:
    queue = steady()
    asyncio.get_running_loop().call_later(7, queue.add, A)
    assert await elapsed(queue, A) == 7


async def test_queue_key_with_several_times_uses_earliest() -> None:
    queue = steady()
    queue.add(A, after=10)
    queue.add(A, after=3)
    queue.add(A, after=20)
    assert await elapsed(queue, A) == 3
    queue.done(A)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(100):
            await queue.get()


async def test_queue_key_due_now_overrides_later_time() -> None:
    queue = steady()
    queue.add(A, after=10)
    queue.add(A)
    assert await elapsed(queue, A) == 0


async def test_queue_failures_back_off_exponentially_up_to_limit() -> None:
    queue = steady()
    queue.add(A)
    waited = []
    for _ in range(9):
        waited.append(await elapsed(queue, A))
        queue.done(A, failed=True)
    assert waited == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    await queue.get()
    queue.done(A)
    queue.add(A)
    await queue.get()
    queue.done(A, failed=True)
    assert await elapsed(queue, A) == 1


async def test_queue_failing_key_changed_meanwhile_waits_backoff() -> None:
    queue = steady()
    queue.add(A)
    await queue.get()
    queue.add(A)
    queue.done(A, failed=True)
    assert await elapsed(queue, A) == 1


async def test_queue_change_during_backoff_is_processed_immediately() -> None:
    queue = steady()
    queue.add(A)
    await queue.get()
    queue.done(A, failed=True)
    queue.add(A)
    assert await elapsed(queue, A) == 0


async def test_queue_requeue_after_returns_key_without_change() -> None:
    queue = steady()
    queue.add(A)
    await queue.get()
    queue.done(A, after=600)
    assert await elapsed(queue, A) == 600


async def test_queue_forgotten_key_does_not_return() -> None:
    queue = steady()
    queue.add(A)
    await queue.get()
    queue.done(A, after=600)
    queue.forget(A)
    queue.add(B, after=1000)
    assert await elapsed(queue, B) == 1000


async def test_queue_workers_never_share_key_and_lose_none() -> None:
    queue = steady()
    rng = random.Random(5)
    keys = [Key("Commit", f"ns{i % 7}", str(i)) for i in range(200)]
    working: set[Key] = set()
    rounds: dict[Key, int] = {}

    async def worker() -> None:
        while True:
            key = await queue.get()
            assert key not in working
            working.add(key)
            await asyncio.sleep(rng.random())
            working.discard(key)
            rounds[key] = rounds.get(key, 0) + 1
            queue.done(key, failed=rng.random() < 0.2)

    workers = [asyncio.create_task(worker()) for _ in range(16)]
    for key in [*keys, *rng.choices(keys, k=300)]:
        queue.add(key)
        if rng.random() < 0.2:
            await asyncio.sleep(0.1)
    await asyncio.sleep(3600)
    for task in workers:
        assert not task.done()
        task.cancel()
    assert set(rounds) == set(keys)
    assert len(queue) == 0


async def test_queue_jitter_stays_within_five_percent() -> None:
    backoff, rng = Backoff(), random.Random(1)
    assert all(0.7125 <= backoff.delay(1, rng) <= 0.7875 for _ in range(100))
    assert all(855 <= backoff.delay(10_000, rng) <= 945 for _ in range(100))


async def test_queue_urgent_key_comes_first() -> None:
    queue = steady()
    others = [Key("Dataset", "one", str(i)) for i in range(3)]
    for key in [C, *others]:
        queue.add(key)
    queue.add(B, urgent=True)
    store = Key("ObjectStore", "three", "lake")
    queue.add(store)
    queue.add(others[1], urgent=True)  # as an edit of what is queued
    assert queue.oldest >= 0
    assert [await queue.get() for _ in range(6)] == [B, store, others[1], C, others[0], others[2]]


async def test_queue_many_urgent_keys_take_turns_and_starve_nothing() -> None:
    queue = steady()
    edits = [Key("Dataset", "crowded", str(i)) for i in range(9)]
    for key in edits:
        queue.add(key, urgent=True)
    for key in (A, C):
        queue.add(key)
    queue.add(B, urgent=True)
    assert [await queue.get() for _ in range(5)] == [edits[0], B, edits[1], C, edits[2]]
    assert [await queue.get() for _ in range(4)] == [edits[3], edits[4], A, edits[5]]
    assert [await queue.get() for _ in range(3)] == edits[6:]
