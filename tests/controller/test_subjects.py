"""The index of runs by what they change agrees with looking through all of them, whatever happens to them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from kubothek.controller.run_index import Change, RunIndex

START = datetime(2026, 11, 22, tzinfo=UTC)
SUBJECTS = [("Dataset", "a"), ("Dataset", "b"), ("Cube", "a")]
NAMES = ["x", "y", "z", "w"]

Step = tuple[str, str, Change | None]

moments = st.integers(0, 3).map(lambda hours: START + timedelta(hours=hours))
changes = (
    st.builds(Change, st.sampled_from(SUBJECTS), st.none() | moments, st.booleans(), st.none() | moments) | st.none()
)
steps = st.lists(st.tuples(st.sampled_from(["Commit", "Query"]), st.sampled_from(NAMES), changes), max_size=25)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(steps, st.none() | moments)
def test_run_index_matches_full_search(happened: list[tuple[str, str, Change | None]], since: datetime | None) -> None:
    index, there = RunIndex(), dict[tuple[str, str], Change]()
    for kind, name, change in happened:
        index.put(kind, "ns", name, change)
        there.pop((kind, name), None)
        if change is not None:
            there[kind, name] = change
    never = datetime.max.replace(tzinfo=UTC)
    for kind in ("Commit", "Query"):
        for subject in SUBJECTS:
            found = {name: each for (of, name), each in there.items() if of == kind and each.subject == subject}
            waiting = [(each.created or never, name) for name, each in found.items() if not each.finished]
            assert list(index.unfinished(kind, "ns", subject)) == [name for _, name in sorted(waiting)]
            ended = [(each.completed, name) for name, each in found.items() if each.finished and each.completed]
            expected = [name for when, name in sorted(ended, reverse=True) if since is None or when >= since]
            assert list(index.completed(kind, "ns", subject, since)) == expected
    for kind, name in list(there):
        index.put(kind, "ns", name, None)
    assert all(not list(index.unfinished(kind, "ns", each)) for kind in ("Commit", "Query") for each in SUBJECTS)
