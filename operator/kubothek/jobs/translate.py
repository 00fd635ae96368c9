"""Translation between the job specs of :mod:`kubothek.api.jobs` and the types of the data plane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kubothek.api import jobs
from kubothek.api.files import Csv
from kubothek.api.values import Column
from kubothek.cube.log import CubeLog
from kubothek.ingest import Compression, CsvOptions, Format, Source, UrlPolicy
from kubothek.storage import Store, StoreConfig
from kubothek.table import log
from kubothek.table.clustering import Clustering
from kubothek.table.iceberg.state import IcebergState
from kubothek.table.indexes import Dialect, IndexKind
from kubothek.table.layout import Layout
from kubothek.table.log import DatasetLog, Head
from kubothek.table.log.model.head import IcebergSetting
from kubothek.table.log.model.writers import Grant
from kubothek.table.log.multi.spec import SEPARATOR, CubeSpec
from kubothek.table.maintenance import Health
from kubothek.table.schema import parse_type
from kubothek.table.skipping.model import Encryption, IndexDefinition, SkippingState

if TYPE_CHECKING:
    from kubothek.gc import Retention

_NAMES_LIMIT: Final = 256


def store_config(store: jobs.StoreRef) -> StoreConfig:
    """Return how to reach the store."""
    return StoreConfig(store.url, store.endpoint, store.region, store.credentials_dir, store.keys_dir)


def schema(columns: Sequence[Column]) -> pa.Schema | None:
    """Return the schema of explicit columns; None if there are none. Raises SchemaMismatch for an unknown type."""
    if not columns:
        return None
    return pa.schema([pa.field(c.name, parse_type(c.type), nullable=c.nullable) for c in columns])


def layout(dataset: jobs.DatasetRef, head: Head) -> Layout:
    """Return the layout of the Dataset; if it adopts a table, partition columns default to those of the head."""
    wanted = plain_layout(dataset.table)
    return replace(wanted, partition_on=head.partition_keys) if dataset.adopt and not wanted.partition_on else wanted


def plain_layout(table: jobs.TableSpec) -> Layout:
    """Return the layout that the table's spec asks for."""
    return Layout(
        partition_on=table.partition_on,
        sort_by=table.sort_by,
        bucket_by=table.bucket_by,
        num_buckets=table.num_buckets,
        target_file_bytes=table.target_file_bytes,
        row_group_rows=table.row_group_rows,
        compression=table.compression,
        dictionary_columns=table.dictionary_columns,
    )


def clustering(found: jobs.Clustering | None) -> Clustering | None:
    """Return the order of rows; None if there is none."""
    return None if found is None else Clustering(found.by, found.curve)


def dialect(table: jobs.TableSpec) -> Dialect | None:
    """Return the index dialect of the Dataset; None keeps the table's dialect."""
    return Dialect(table.dialect) if table.dialect else None


def evolves(table: jobs.TableSpec) -> bool:
    """Return whether new rows may add columns and widen types."""
    return table.schema_evolution == "Compatible"


def indices(table: jobs.TableSpec) -> dict[str, IndexKind] | None:
    """Return the indices of the Dataset, by column; None keeps the existing ones."""
    return None if table.indices is None else {index.column: IndexKind(index.kind) for index in table.indices}


def skipping(wanted: jobs.SkippingSpec | None) -> SkippingState:
    """Return the explicit skipping indices of the Dataset, without automatic ones; no indices mean no metadata."""
    if wanted is None:
        return SkippingState()
    indices = tuple(IndexDefinition(each.type, each.columns, each.params, each.key) for each in wanted.indices)
    keyed = any(each.key is not None for each in indices) and wanted.footer_key is not None
    encryption = Encryption(wanted.footer_key, wanted.plaintext_footer) if keyed and wanted.footer_key else None
    return SkippingState(indices, (), encryption)


def skipping_index(definition: IndexDefinition) -> jobs.SkippingIndexSpec:
    """Return the spec of one skipping index."""
    return jobs.SkippingIndexSpec(
        type=definition.type, columns=definition.columns, params=dict(definition.params), key=definition.key
    )


def skipping_state(found: SkippingState, described: int) -> jobs.SkippingState | None:
    """Return the state of a table's skipping metadata; None if it has no indices."""
    if not found.indices:
        return None
    return jobs.SkippingState(
        indices=tuple(map(skipping_index, found.indices)),
        footer_key=found.encryption.footer_key if found.encryption is not None else None,
        plaintext_footer=found.encryption is not None and found.encryption.plaintext_footer,
        files=described,
        bytes=sum(part.bytes for part in found.parts),
    )


def csv_options(csv: Csv) -> CsvOptions:
    """Return how to read CSV."""
    return CsvOptions(csv.delimiter, csv.quote, csv.header, csv.null_values)


def source(spec: jobs.SourceSpec, default: jobs.StoreRef) -> Source:
    """Return the source; its paths are in the store ``default`` if it names no store."""
    return Source(
        format=Format(spec.format),
        store=store_config(spec.store or default) if spec.paths else None,
        paths=spec.paths,
        urls=spec.urls,
        compression=Compression(spec.compression),
        csv=csv_options(spec.csv),
        columns=schema(spec.columns),
        policy=UrlPolicy(spec.allowed_hosts, spec.allow_local),
    )


def retention(policy: jobs.RetentionSpec) -> Retention:
    """Return which versions a policy keeps."""
    from kubothek.gc import Retention  # it imports everything that can hold a version, such as ledgers

    return Retention(policy.versions, None if policy.seconds is None else timedelta(seconds=policy.seconds))


def claim(dataset: jobs.DatasetRef) -> log.Claim:
    """Return the claim that asks to write the dataset."""
    return log.Claim(dataset.claim.owner, dataset.claim.incarnation, adopts=dataset.adopt)


def grant(dataset: jobs.DatasetRef) -> Grant:
    """Return what the Dataset permits other writers; it may be nothing."""
    writers = ((writer.name, writer.operations) for writer in dataset.writers)
    return Grant.of(dataset.claim.owner, dataset.claim.incarnation, writers, evolves=evolves(dataset.table))


def cube_spec(cube: jobs.CubeRef) -> CubeSpec | None:
    """Return the cube's specification in the manifest; None if the manifest gives none. Raises CubeInvalid."""
    if not cube.dimension_columns:
        return None
    return CubeSpec(
        cube.prefix,
        cube.dimension_columns,
        cube.partition_columns,
        seed_dataset=cube.seed,
        index_columns=frozenset(cube.index_columns),
        suppress_index_on=frozenset(cube.suppress_index_on),
    )


def seed_uuid(cube: jobs.CubeRef) -> str:
    """Return the uuid of the seed dataset, with which job results are stored."""
    return f"{cube.prefix}{SEPARATOR}{cube.seed}"


def cube_log(store: Store, cube: jobs.CubeRef, *, by: str, conditional_writes: bool | None) -> CubeLog:
    """Return the cube's log under the claims of its members. If ``conditional_writes`` is None, probe the store."""
    if conditional_writes is None:
        conditional_writes = store.probe().conditional_writes
    claims = {member.name: claim(member.dataset) for member in cube.members}
    exports = {member.name: _iceberg_setting(member.dataset) for member in cube.members}
    return CubeLog(
        store,
        cube.prefix,
        claim_of=claims.get,
        iceberg_of=exports.get,
        by=by,
        conditional_writes=conditional_writes,
    )


def dataset_log(store: Store, dataset: jobs.DatasetRef, *, conditional_writes: bool | None) -> DatasetLog:
    """Return the dataset's log under its claim. If ``conditional_writes`` is None, probe the store."""
    if conditional_writes is None:
        conditional_writes = store.probe().conditional_writes
    return DatasetLog(
        store,
        dataset.uuid,
        claim=claim(dataset),
        conditional_writes=conditional_writes,
        iceberg=_iceberg_setting(dataset),
    )


def _iceberg_setting(dataset: jobs.DatasetRef) -> IcebergSetting | None:
    """Return what commits set the export to; None: they keep it."""
    if dataset.iceberg is None:
        return None
    return IcebergSetting(dataset.iceberg, dataset.version_hint or dataset.iceberg == "Off")


def dataset_state(state: log.DatasetState) -> jobs.DatasetState:
    """Return the observed state of the dataset, as a job result holds it."""
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
        indices=tuple(
            jobs.IndexState(column=i.column, kind=i.kind.value, state=i.health.value, rows=i.rows)
            for i in state.indices
        ),
        dialect=state.dialect.value,
        tags=dict(state.tags),
        partition_on=_columns(state.partition_on),
        writers=state.writers,
    )


def _columns(columns: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the columns; None if their names take too much room in a result."""
    return columns if columns is not None and sum(map(len, columns)) <= _NAMES_LIMIT else None


def iceberg_state(state: IcebergState | None) -> jobs.IcebergState | None:
    """Return the state of the export; None if commits do not export."""
    return None if state is None else jobs.IcebergState(**asdict(state))


def health_state(health: Health) -> jobs.HealthState:
    """Return the health of the files, without empty steps of the histogram, as a result has little room."""
    return jobs.HealthState(
        version=health.version,
        small_files=health.small.files,
        small_percent=round(100 * health.small_share),
        worst_partition_small_files=health.most_small,
        sizes=tuple(jobs.Bin(below=step.below, files=step.files) for step in health.histogram if step.files),
        versions=health.versions,
        history_files=health.history.files,
        history_bytes=health.history.bytes,
        garbage_files=health.garbage.files,
        garbage_bytes=health.garbage.bytes,
    )
