"""Engines read tables through the REST catalogue, of a directory and of a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from kubothek import Lake
from kubothek.gateway.access import Tokens
from kubothek.gateway.limits import Limits
from kubothek.storage import Store, StoreConfig, open_store
from tests.engines.engine import Engine
from tests.engines.histories import Sample, random_history
from tests.engines.reads import Bucket, Catalog, Read
from tests.engines.test_files import BY_TAG
from tests.gateway.running import READER, running
from tests.s3server import S3Server
from tests.sampling import SOAK
from tests.table.iceberg.test_export import multiset

pytestmark = pytest.mark.slow

FILES_ONLY = ("rust",)
"""Engines whose Python package has no catalogues."""
SIGNED = ("spark",)
"""Engines that have their requests signed; others have the credentials of the bucket."""


@pytest.fixture(scope="session")
def local(samples: list[Sample]) -> Iterator[Catalog]:
    """The catalogue of the random histories."""
    with catalogue_of(samples[0].lake.store) as uri:
        yield Catalog(uri, READER)


@pytest.fixture(scope="session")
def stored(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sample, Catalog]]:
    """A random history in a bucket, and its catalogue."""
    place = f"s3://{s3.create_bucket('engines')}/lake"
    secret = s3.write_secret(tmp_path_factory.mktemp("secret"))
    store = open_store(StoreConfig(place, endpoint=s3.endpoint, credentials_dir=str(secret)))
    sample = random_history(Lake(store), 0)
    with catalogue_of(store) as uri:
        yield sample, Catalog(uri, READER, Bucket(s3.endpoint, s3.region, s3.access_key, s3.secret_key))


@contextmanager
def catalogue_of(store: Store) -> Iterator[str]:
    access = Tokens([{"name": "engine", "token": READER, "pull": ["*"]}])
    with running(store, access=access, limits=Limits(burst=10**6)) as gateway:
        yield f"{gateway.root}/iceberg"


def check(engine: Engine, sample: Sample, catalog: Catalog) -> None:
    """Compare some versions, tags and filters with Kubothek's own scans; all of them are read from files."""
    current = Read(sample.dataset.name, "", catalog=catalog)
    for version, rows in list(sample.versions.items())[1::3]:
        assert multiset(engine.read(replace(current, version=version))) == multiset(rows), (current, version)
    for filter_, count in sample.filters.items():
        assert engine.count(replace(current, where=filter_, count=True)) == count, (current, filter_)
    if engine.name in BY_TAG:
        for tag, version in sample.tags.items():
            assert multiset(engine.read(replace(current, tag=tag))) == multiset(sample.versions[version]), (
                current,
                tag,
            )


def test_catalogue_of_directory_gives_the_rows_of_kubothek(
    engine: Engine, samples: list[Sample], local: Catalog
) -> None:
    if engine.name in FILES_ONLY:
        pytest.skip("reads no catalogue")
    for sample in samples[:-1] if SOAK else samples[3:5]:
        check(engine, sample, local)


@pytest.mark.s3
def test_catalogue_of_bucket_gives_the_rows_of_kubothek(engine: Engine, stored: tuple[Sample, Catalog]) -> None:
    if engine.name in FILES_ONLY:
        pytest.skip("reads no catalogue")
    sample, catalog = stored
    check(engine, sample, catalog._replace(bucket=None) if engine.name in SIGNED else catalog)
