"""Workers under limits that the kernel keeps."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Any

import psutil
import pytest

from kubothek.errors import LakeError, ObjectNotFound, QueryInvalid
from kubothek.sandbox import limited
from kubothek.sandbox.frames import WorkerFailed
from kubothek.sandbox.limited import Cause, Work
from kubothek.sandbox.zygote import is_memory
from tests.sandbox import tasks

pytestmark = pytest.mark.slow

MEMORY = 256 << 20
LONG = 60.0


class Ended(LakeError):
    reason = "Ended"


def named(cause: Cause) -> LakeError:
    return Ended(cause.value)


def run(function: Callable[..., Iterator[bytes]], *arguments: Any, seconds: float | None = LONG, **more: Any) -> Work:
    return limited.run(function, *arguments, memory=more.pop("memory", MEMORY), seconds=seconds, named=named, **more)


def gone(pid: int) -> bool:
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def test_worker_yields_bytes_in_order() -> None:
    assert list(run(tasks.echo, b"a", b"bc", b"")) == [b"a", b"bc"]


def test_worker_splits_large_piece_into_frames() -> None:
    pieces = list(run(tasks.large, (5 << 20) + 1))
    assert max(map(len, pieces)) <= 1 << 20
    assert b"".join(pieces) == b"x" * ((5 << 20) + 1)


def test_worker_runs_one_task_and_keeps_no_state() -> None:
    first, second = (b"".join(run(tasks.pid)).split() for _ in range(2))
    assert first[0] != second[0]
    assert (first[1], second[1]) == (b"1", b"1")


def test_worker_past_its_deadline_is_killed() -> None:
    work = run(tasks.looping, seconds=0.5)
    with pytest.raises(Ended, match="time"):
        list(work)
    assert work.usage is not None
    assert work.usage.signal == signal.SIGALRM


def test_worker_without_reader_is_killed_at_deadline() -> None:
    work = run(tasks.endless, seconds=0.5)
    pid = work._process.pid
    assert gone(pid)
    with pytest.raises(Ended, match="time"):
        list(work)


@pytest.mark.parametrize("task", [tasks.hoarding, tasks.hoarding_outside])
def test_worker_beyond_memory_limit_ends_within_limit(task: Any) -> None:
    idle, work = run(tasks.echo), run(task)
    assert not list(idle)
    with pytest.raises(Ended, match=r"memory|crash"):
        list(work)
    assert idle.usage is not None  # with what other tests had this process import
    assert work.usage is not None
    assert work.usage.peak < idle.usage.peak + MEMORY + (64 << 20)


def test_worker_error_keeps_its_class() -> None:
    with pytest.raises(QueryInvalid, match="no such column"):
        list(run(tasks.failing, "lake"))
    with pytest.raises(ObjectNotFound, match="no object 'a/b' in the store") as caught:
        list(run(tasks.failing, "key"))
    assert caught.value.key == "a/b"
    with pytest.raises(WorkerFailed, match="KeyError: 'a fault'"):
        list(run(tasks.failing, "other"))


@pytest.mark.parametrize(("number", "cause"), [("SIGSEGV", "crash"), ("SIGABRT", "crash"), ("SIGKILL", "memory")])
def test_worker_killed_by_signal_reports_cause(number: str, cause: str) -> None:
    with pytest.raises(Ended, match=cause):
        list(run(tasks.failing, number))


def test_worker_question_is_answered_by_caller() -> None:
    def answer(question: Any) -> Any:
        if question == "secret":
            raise QueryInvalid("not for you")
        return {"of": question}

    pieces = list(run(tasks.asking, ["a", "secret", 3], answer=answer))
    assert pieces == [b"{'of': 'a'}", b"refused: not for you", b"{'of': 3}"]


def test_worker_closed_is_killed_with_children() -> None:
    work = run(tasks.asleep)
    pids = [int(each) for each in next(work).split()]
    work.close()
    assert all(map(gone, pids))
    assert list(work) == []


def test_worker_is_killed_when_stream_is_dropped() -> None:
    work = run(tasks.endless)
    next(work)
    pid = work._process.pid
    del work
    assert gone(pid)


def test_worker_closed_by_other_thread_ends_reader() -> None:
    work = run(tasks.asleep)
    next(work)
    closer = Thread(target=work.close)
    closer.start()
    assert list(work) == []
    closer.join()


def test_workers_serve_many_threads() -> None:
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda n: b"".join(run(tasks.echo, b"%d" % n)), range(24)))
    assert answers == [b"%d" % n for n in range(24)]


def test_zygote_that_is_killed_is_replaced() -> None:
    list(run(tasks.echo, b"a"))
    assert limited._POOL is not None
    limited._POOL._zygote.kill()
    limited._POOL._zygote.wait()
    assert list(run(tasks.echo, b"b")) == [b"b"]


_ORPHANED = """
import os, sys
from kubothek.sandbox import limited
from kubothek.sandbox.frames import WorkerFailed
from tests.sandbox import tasks
from tests.sandbox.test_limited import run
work = run(tasks.asleep)
print(limited._POOL._zygote.pid, *next(work).decode().split()[:1], flush=True)
os.kill(os.getpid(), 9)
"""


def test_workers_end_when_parent_is_killed() -> None:
    parent = subprocess.run([sys.executable, "-c", _ORPHANED], capture_output=True, text=True, check=False)
    pids = [int(each) for each in parent.stdout.split()]
    assert len(pids) == 2, parent.stderr
    assert all(map(gone, pids))


def test_forked_parent_gets_own_workers() -> None:
    list(run(tasks.echo, b"a"))
    pid = os.fork()
    if not pid:
        try:
            os._exit(0 if list(run(tasks.echo, b"b")) == [b"b"] else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert list(run(tasks.echo, b"c")) == [b"c"]


@pytest.mark.parametrize("text", ["std::bad_alloc", "Failed to launch worker thread: Resource temporarily unavailable"])
def test_library_error_without_memory_counts_as_out_of_memory(text: str) -> None:
    assert is_memory(LakeError(f"cannot read the table in file:///x: {text}"))
    assert not is_memory(LakeError("cannot read the table in file:///x: damaged"))
