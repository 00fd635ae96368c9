"""Plain files in a bucket, with their metadata in another: names as Hadoop has them, versions by time and ETag."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kubothek.errors import SkippingUnreadable
from kubothek.external.files import PlainFiles
from kubothek.external.location import PlainLocation, open_location
from kubothek.external.metadata import location
from kubothek.external.refresh import Place, describe_here, refresh
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.expressions import parse
from kubothek.table.skipping.files.reading import load_location
from tests.external.conftest import DEFINITIONS
from tests.s3server import S3Server

pytestmark = pytest.mark.s3


@pytest.fixture
def stores(s3: S3Server, secret: Path, bucket: str) -> tuple[Store, Store]:
    """That of the files, and that of the metadata."""
    files, metadata = (f"s3://{bucket}/{prefix}" for prefix in ("ware/house", "side"))
    return tuple(open_store(StoreConfig(url, s3.endpoint, None, str(secret))) for url in (files, metadata))  # type: ignore[return-value]


def put(store: Store, number: int, name: str) -> None:
    sink = pa.BufferOutputStream()
    table = pa.table({"id": list(range(10 * number, 10 * number + 10)), "city": [f"ü {number}"] * 10})
    pq.write_table(table, sink)
    store.put(f"landing/trips/day=2026-11-0{number}/{name}", sink.getvalue().to_pybytes())


def opened(place: PlainLocation, where: str) -> tuple[int, int]:
    """How many files a filter leaves, and how many rows it finds in them."""
    plan = place.plan(parse(where))
    table = place.dataset(plan).to_table()
    return len(plan.keys), table.filter(parse(where).bind(place.schema).expression()).num_rows


def test_s3_files_and_metadata_may_use_different_buckets(stores: tuple[Store, Store]) -> None:
    files, metadata = stores
    for number in range(1, 4):
        put(files, number, f"a b ü {number}.parquet")
    place = Place(files, metadata, "team.trips")
    done = refresh(place, PlainFiles("landing/trips"), DEFINITIONS, build=lambda _bytes: describe_here(place))
    assert (done.index.described, done.index.table.partitions) == (3, ("day",))
    found = open_location(metadata, "trips", files)
    assert opened(found, "id = 23") == (1, 1)
    assert opened(found, "day = '2026-11-03' AND city = 'ü 3'") == (1, 10)
    with pytest.raises(SkippingUnreadable, match="are in s3://"):
        open_location(metadata, "trips")

    prefix = files.url.partition("://")[2].partition("/")[2]
    for_xskipper = load_location(metadata, location("team.trips"))
    names = for_xskipper.rows.column("path").to_pylist()
    assert sorted(map(str, names))[0] == f"/{prefix}/landing/trips/day=2026-11-01/a b ü 1.parquet"
    assert for_xskipper.identifier == f"/{prefix}/landing/trips"

    put(files, 2, "a b ü 2.parquet")  # the same bytes: whether it is another version, the time says
    put(files, 3, "late.parquet")
    late = open_location(metadata, "trips", files)
    assert opened(late, "id = 33") == (2, 2) or opened(late, "id = 33") == (3, 2)
    assert (
        refresh(place, PlainFiles("landing/trips"), DEFINITIONS, build=lambda _bytes: describe_here(place)).added >= 1
    )
    assert opened(open_location(metadata, "trips", files), "id = 33") == (2, 2)
