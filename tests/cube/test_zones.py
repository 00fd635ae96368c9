"""Time zones of a cube's columns: each dataset remembers its own, a query gives them back, kinds do not mix."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import kubothek
from kubothek.catalog import Lake
from kubothek.cube.handle import Cube
from kubothek.errors import CubeInvalid, SchemaMismatch
from kubothek.table.time_zones import zones_of

pytestmark = pytest.mark.slow

NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)
BERLIN = pa.timestamp("us", "Europe/Berlin")
UTC_TYPE, PLAIN = pa.timestamp("us", "UTC"), pa.timestamp("us")


def lake(directory: Path) -> Lake:
    return kubothek.open(directory.as_uri())


@pytest.fixture
def cube(tmp_path: Path) -> Cube:
    """One that is not built yet, with a time as dimension."""
    return lake(tmp_path).create_cube("geo", dimension_columns=["t"], partition_columns=["p"])


def rows(
    payload: str, dimension: pa.DataType = UTC_TYPE, kind: pa.DataType = PLAIN, hours: Sequence[int] = (0, 1)
) -> pa.Table:
    times = [NOON.replace(hour=12 + hour) for hour in hours]
    return pa.table({"p": [1] * len(times), "t": pa.array(times, dimension), payload: pa.array(times, kind)})


def test_cube_query_returns_each_column_in_its_zone(cube: Cube) -> None:
    cube.build({"seed": rows("made"), "extra": rows("seen", kind=BERLIN)})
    cube.append({"seed": rows("made", BERLIN, hours=(2,))})
    found = cube.query()
    table = found.to_arrow()
    assert {name: table.schema.field(name).type for name in ("made", "seen", "t")} == {
        "made": PLAIN,
        "seen": BERLIN,
        "t": UTC_TYPE,
    }
    assert table["t"].to_pylist() == [NOON, NOON.replace(hour=13), NOON.replace(hour=14)]
    assert table["seen"].to_pylist() == [NOON, NOON.replace(hour=13), None]
    assert found.reader().read_all() == table
    assert found.schema == table.schema
    assert str(found.to_pandas()["t"].dtype) == "datetime64[us, UTC]"
    assert [piece.schema.field("t").type for piece in found.pieces(range(1))] == [PLAIN], "as executors read it"
    assert [group.key["t"] for group in cube.query(partition_by=["t"]).groups()] == table["t"].to_pylist()
    assert cube.query("t = TIMESTAMP '2025-01-01 13:00:00Z'").to_arrow().num_rows == 1


def test_cube_dataset_keeps_zone_alone_and_in_copy(cube: Cube, tmp_path: Path) -> None:
    cube.build({"seed": rows("made", kind=BERLIN)})
    cube.copy(lake(tmp_path).store, prefix="copy")
    for name in ("geo++seed", "copy++seed"):
        assert lake(tmp_path).dataset(name).schema.field("made").type == BERLIN


@pytest.mark.parametrize(("first", "second"), [(UTC_TYPE, PLAIN), (PLAIN, UTC_TYPE)])
def test_cube_refuses_times_of_another_kind(cube: Cube, first: pa.DataType, second: pa.DataType) -> None:
    with pytest.raises(CubeInvalid, match="'t' is in the time zone"):
        cube.build({"seed": rows("made", first), "extra": rows("seen", second)})
    cube.build({"seed": rows("made", first)})
    with pytest.raises(CubeInvalid, match="'t' is in the time zone"):
        cube.extend({"extra": rows("seen", second)})
    with pytest.raises(SchemaMismatch, match="column 't'"):
        cube.append({"seed": rows("made", second)})
    cube.build({"seed": rows("made", second)}, overwrite=True)
    assert cube.query().schema.field("t").type == second


def test_cube_of_older_release_stays_naive(cube: Cube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("kubothek.table.log.prepare.draft._zones", lambda *_: {})
        cube.build({"seed": rows("made")})
    cube.append({"seed": rows("made", PLAIN, hours=(2,))})
    cube.extend({"extra": rows("seen", kind=BERLIN)})
    assert zones_of(cube.snapshot().member("seed").snapshot.head.metadata) == {}
    other = lake(tmp_path).create_cube("new", dimension_columns=["t"], partition_columns=["p"])
    other.build({"seed": rows("made")})
    cube.copy(lake(tmp_path).store, prefix="new", datasets=["seed"], overwrite=True)
    assert other.query().schema.field("t").type == PLAIN, "what the copy was written over is forgotten"
    assert [cube.query().schema.field(name).type for name in ("t", "seen")] == [PLAIN, BERLIN]
