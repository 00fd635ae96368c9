"""Our coordinator and our engine, with the contract between them: what comes of it is what comes of one process."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from kubothek.errors import FormatInvalid, TransformChanged, TransformInvalid
from kubothek.odf.derived import inputs_of
from kubothek.odf.derived.running import OURS
from kubothek.odf.problems import Severity
from kubothek.odf.spec.engine_wire import enveloped, unwrapped
from kubothek.odf.spec.events import SetTransform
from kubothek.odf.spec.sources import TransformSql
from kubothek.odf.transform import ENGINE_VERSION
from kubothek.storage import Store
from kubothek.verify import verify_dataset
from tests.odf.derived.world import (
    APPEND,
    LATE,
    PER_CARRIER,
    answer,
    derived,
    layout,
    opened,
    push,
    root,
    runs,
    sound,
    table,
    transform,
)
from tests.odf.engines.world import IMAGE, Both, declared, driven, pull

pytestmark = pytest.mark.slow

START = datetime(2026, 11, 22, tzinfo=UTC)
QUERIES = {
    "rows": (LATE, ("flights",)),
    "groups": (PER_CARRIER, ("flights",)),
    "late": (
        "SELECT /*+ LATE(IGNORE), LATENESS('1 hour') */ window.start AS event_time, carrier, count(*) AS n "
        "FROM flights GROUP BY window(event_time, '1 hour'), carrier",
        ("flights",),
    ),
    "join": (
        "SELECT f.event_time, f.id, m.delay FROM flights f JOIN more m ON f.carrier = m.carrier",
        ("flights", "more"),
    ),
}


@pytest.mark.requirement("EN-06")
@pytest.mark.parametrize("kind", QUERIES)
def test_engine_result_over_contract_matches_in_process_bytes(
    store: Store, volume: Path, address: str, kind: str
) -> None:
    query, inputs = QUERIES[kind]
    for name in inputs:
        root(store, name, APPEND)
    declared(store, query, *inputs)
    both = Both(driven(address, volume))
    ids = iter(range(100))
    for hours in (0, 9, 2):
        for name in inputs[: 1 + (hours == 0)]:  # an input with nothing new has the watermark that it had
            times = [START + timedelta(hours=hours, minutes=minutes) for minutes in (0, 40)]
            flights = {next(ids): (carrier, 20 + hours) for carrier in ("AA", "BB")}
            push(store, flights, name, event_time=pa.array(times, pa.timestamp("ms", "UTC")))
        pull(store, both)
    assert (both.runs, both.states) == (3, 0 if kind == "rows" else 3)
    assert both.files >= 2
    assert len(runs(store)) == 3
    sound(store)
    assert not [*(volume / "in").iterdir(), *(volume / "out").iterdir()], "nothing is left behind"


@pytest.mark.requirement("EN-11")
def test_chain_names_engine_image_and_verification_notes_skipped_replay(
    store: Store, volume: Path, address: str
) -> None:
    root(store)
    push(store, {1: ("AA", 20), 2: ("BB", 5)})
    declared(store, PER_CARRIER)
    pull(store, driven(address, volume))
    push(store, {1: ("AA", 30), 3: ("CC", 7)})
    pull(store, driven(address, volume))
    events = [block.content.event for block in opened(store).blocks()]
    versions = [
        event.transform.version
        for event in events
        if isinstance(event, SetTransform) and isinstance(event.transform, TransformSql)
    ]
    assert versions == [f"oci://{IMAGE}", None], "once, when the image is known"
    columns = ("carrier", "flights", "delay")
    assert table(store, columns=columns) == answer(store, PER_CARRIER, columns)
    verdict = verify_dataset(store, opened(store).log)
    assert verdict.sound
    assert verdict.chain is not None
    (note,) = [each for each in verdict.chain.problems if each.code == "NotReplayed"]
    assert note.severity is Severity.NOTE
    assert IMAGE in note.message
    assert f"is sound: 6 blocks, 2 slices, 1 file, {verdict.bytes:,} bytes; from block 4 on " in str(verdict)
    assert str(verdict).endswith(note.message), "people read it"


@pytest.mark.requirement("DAT-08")
def test_restore_of_slice_from_other_engine_is_refused(store: Store, volume: Path, address: str) -> None:
    root(store)
    push(store, {1: ("AA", 20)})
    declared(store, LATE)
    pull(store, driven(address, volume))
    (run,) = runs(store)
    assert run.new_data is not None
    store.delete([layout("late").data(run.new_data.physical_hash)])
    with pytest.raises(TransformInvalid, match=r"run by oci://ghcr\.io/acme/engine"):
        opened(store).restore(inputs_of(store))


def test_engine_change_needs_reset_of_state(store: Store, volume: Path, address: str) -> None:
    root(store, merge=APPEND)
    push(store, {1: ("AA", 20)})
    derived(store, "late", transform(PER_CARRIER))
    pull(store, OURS)
    push(store, {2: ("BB", 5)})
    with pytest.raises(TransformChanged, match=f"{ENGINE_VERSION.replace('+', '.')} left it"):
        pull(store, driven(address, volume))
    opened(store).restart()
    assert pull(store, driven(address, volume)).done.records == 2
    push(store, {3: ("CC", 5)})
    with pytest.raises(TransformChanged, match="not a state of this engine"):
        pull(store, OURS)
    opened(store).restart()
    assert pull(store, OURS).done.records == 3
    assert verify_dataset(store, opened(store).log).sound


@pytest.mark.requirement("EN-19")
def test_engine_message_is_single_bytes_field() -> None:
    assert enveloped(b"abc") == b"\x0a\x03abc"
    assert enveloped(b"x" * 300) == b"\x0a\xac\x02" + b"x" * 300
    for content in (b"", b"abc", b"x" * 300, b"y" * 70_000):
        assert unwrapped(enveloped(content)) == content
    later = b"\x10\x96\x01" + b"\x1a\x02hi" + b"\x25....\x29........"  # a number, a text, four and eight bytes
    assert unwrapped(later + enveloped(b"abc") + later) == b"abc"
    for broken in (b"\x0a\x05abc", b"\x0a", b"\x0b\x03abc", b"\xff" * 12, b"\x0a" + b"\xff" * 9 + b"\x01"):
        with pytest.raises(FormatInvalid):
            unwrapped(broken)
