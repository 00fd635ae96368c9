"""Between the plain data of :mod:`kubothek.resources.jobs` and what :mod:`kubothek.lake` works with."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from kubothek.lake import commits
from kubothek.lake.commits import DatasetLog
from kubothek.lake.schema import parse_type
from kubothek.lake.sources import Compression, CsvOptions, Format, Source, UrlPolicy
from kubothek.lake.store import Store, StoreConfig
from kubothek.resources import jobs


def store_config(store: jobs.StoreRef) -> StoreConfig:
    """How to reach the store."""
    return StoreConfig(store.url, store.endpoint, store.region, store.credentials_dir)


def schema(columns: Sequence[jobs.Column]) -> pa.Schema | None:
    """The schema of explicit columns; None if there are none. Raises SchemaMismatch for an unknown type."""
    if not columns:
        return None
    return pa.schema([pa.field(c.name, parse_type(c.type), nullable=c.nullable) for c in columns])


def source(spec: jobs.SourceSpec, default: jobs.StoreRef) -> Source:
    """The source; its paths are in ``default`` if it names no store."""
    csv = spec.csv
    return Source(
        format=Format(spec.format),
        store=store_config(spec.store or default) if spec.paths else None,
        paths=spec.paths,
        urls=spec.urls,
        compression=Compression(spec.compression),
        csv=CsvOptions(csv.delimiter, csv.quote, csv.header, csv.null_values),
        columns=schema(spec.columns),
        policy=UrlPolicy(spec.allowed_hosts, spec.allow_local),
    )


def dataset_log(store: Store, dataset: jobs.DatasetRef, *, conditional_writes: bool) -> DatasetLog:
    """The dataset's log, for the claim that asks."""
    claim = commits.Claim(dataset.claim.owner, dataset.claim.incarnation)
    return DatasetLog(store, dataset.uuid, claim=claim, conditional_writes=conditional_writes)


def dataset_state(state: commits.DatasetState) -> jobs.DatasetState:
    """What a look at the dataset showed."""
    totals = state.totals
    return jobs.DatasetState(
        uuid=state.uuid,
        version=state.version,
        etag=state.etag,
        totals=jobs.Totals(rows=totals.rows, files=totals.files, bytes=totals.bytes, partitions=totals.partitions)
        if totals
        else jobs.Totals(),
        last_commit_time=state.time.isoformat() if state.time else None,
        owner=state.owner,
        problem=state.problem,
        deleted=state.deleted,
    )
