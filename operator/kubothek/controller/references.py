"""Resolution of references: the resource that is referred to, or the state that says what is missing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Generic, Literal, TypeVar

from kubothek.api import jobs
from kubothek.api.as_of import DEFAULT_TIME_LIMIT
from kubothek.api.conditions import State, stalled, state_of, waiting
from kubothek.api.cube import Cube
from kubothek.api.dataset import Dataset, DatasetSpec, Export
from kubothek.api.engine import DEFAULT_ENGINE, Engine, EngineSpec
from kubothek.api.files import Csv, Source
from kubothek.api.maintenance import Thresholds
from kubothek.api.meta import ObjectMeta, Resource
from kubothek.api.objectstore import ObjectStore
from kubothek.api.profiles import capped, inherited, layered, said
from kubothek.api.sizes import Sizes
from kubothek.api.skipping import DEFAULT_LENGTH, ColumnIndex, Skipping
from kubothek.api.values import Reference, parse_duration, parse_quantity
from kubothek.controller.context import Context, LaunchJob, Lookup, Settings
from kubothek.controller.pod_templates import denied

PATIENCE = timedelta(minutes=5)
"""How long a missing resource counts as "not yet created".

Flux, Argo CD and users apply manifests in any order, so a reference to a missing resource first means waiting
(Reconciling). After this time it is more likely a mistake: the state becomes Stalled, so that `kubectl wait` and Flux
end with an error. In both cases it recovers by itself when the missing resource appears."""

CREDENTIALS_ROOT = "/var/run/kubothek/credentials"
"""Directory whose subdirectory ``x`` holds the Secret of the ObjectStore ``x``, in a job's pod."""

KEYS_ROOT = "/var/run/kubothek/keys"
"""Directory whose subdirectory ``x`` holds the Secret with the keys of the ObjectStore ``x``, in a job's pod."""

K = TypeVar("K", bound=Resource)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Blocked:
    """Dependency that is missing or not ready; ``again`` is the time after which this may change by itself."""

    state: State
    again: timedelta | None = None


def missing(kind: str, name: str, asker: Resource, context: Context) -> Blocked:
    """Return the state of a resource that refers to a missing one."""
    reason = f"{kind}NotFound"
    message = (
        f"there is no valid {kind} {name!r} in namespace {asker.namespace!r}: create it, or correct it if it is Stalled"
    )
    since = asker.metadata.creation_timestamp or context.now
    left = since + PATIENCE - context.now
    if left > timedelta(0):
        return Blocked(waiting(reason, message), left + timedelta(seconds=1))
    return Blocked(stalled(reason, message))


def not_ready(other: Resource) -> Blocked:
    """Return the state of a resource that refers to one that is not ready. A change of that one wakes it."""
    state = state_of(other.status)
    why = f" ({state.reason})" if state is not None and state.ready != "True" else ""
    return Blocked(
        waiting("DependencyNotReady", f"{other.kind} {other.name!r} is not ready{why}: its status says what to do")
    )


def find_store(name: str, asker: Resource, context: Context) -> ObjectStore | Blocked:
    """Return the ObjectStore of this name, ready or not."""
    store = context.get(ObjectStore, asker.namespace, name)
    return missing("ObjectStore", name, asker, context) if store is None else store


def usable_store(name: str, asker: Resource, context: Context) -> ObjectStore | Blocked:
    """Return the ObjectStore of this name, if jobs can be started on it."""
    store = find_store(name, asker, context)
    if isinstance(store, Blocked):
        return store
    return _usable(store, suspended=store.spec.suspend, fit=store.ready)


def usable_dataset(name: str, asker: Resource, context: Context) -> Dataset | Blocked:
    """Return the Dataset of this name, if jobs can be started on it."""
    dataset = context.get(Dataset, asker.namespace, name)
    if dataset is None:
        return missing("Dataset", name, asker, context)
    return _usable(dataset, suspended=dataset.spec.suspend, fit=dataset.writable)


def usable_cube(name: str, asker: Resource, context: Context) -> Cube | Blocked:
    """Return the Cube of this name, if jobs can be started on it."""
    cube = context.get(Cube, asker.namespace, name)
    if cube is None:
        return missing("Cube", name, asker, context)
    return _usable(cube, suspended=cube.spec.suspend, fit=cube.writable)


def refuse_member(dataset: Dataset, advice: str) -> Blocked | None:
    """Return why rows of a Dataset that belongs to a Cube cannot be changed directly; None if it belongs to none."""
    if dataset.cube is None:
        return None
    message = f"Dataset {dataset.name!r} belongs to Cube {dataset.cube!r}, and is written through it only: {advice}"
    return Blocked(stalled("MemberOfCube", message))


def _usable(resource: K, *, suspended: bool, fit: bool) -> K | Blocked:
    if resource.deleting:
        message = f"{resource.kind} {resource.name!r} is being deleted: wait until that has ended, then create it again"
        return Blocked(waiting("DependencyNotReady", message))
    if suspended:
        message = f"{resource.kind} {resource.name!r} is suspended: set its spec.suspend to false"
        return Blocked(waiting("DependencyNotReady", message))
    return resource if fit else not_ready(resource)


def find_engine(references: Iterable[Reference | None], asker: Resource, context: Context) -> Engine | Blocked | None:
    """Return the Engine for the jobs of ``asker``, from layers: the operator's defaults, the Engine ``default``, the
    first named Engine, and the sizes of ``asker`` itself. Later layers override earlier ones. None: the operator's
    defaults.
    """
    named = next((reference.name for reference in references if reference is not None), None)
    chosen = context.get(Engine, asker.namespace, DEFAULT_ENGINE if named is None else named)
    if named is not None and chosen is None:
        return missing("Engine", named, asker, context)
    size: Sizes | None = getattr(asker.spec, "size", None)
    engines = [] if chosen is None else layers_of(chosen, context)
    for engine in engines:
        wrong = next(denied(engine), None)
        if wrong is not None:
            return Blocked(stalled(wrong.reason, f"Engine {engine.name!r}: {wrong}"))
    alone = size is None and not context.settings.engine_defaults and context.settings.engine_limits == Sizes()
    if alone and len(engines) < 2:
        return chosen
    spec = _profile(tuple(map(_Same, (*engines, context.settings))), _Same(size) if size else None)
    if chosen is not None:
        return chosen.model_copy(update={"spec": spec})
    return Engine(metadata=ObjectMeta(name=DEFAULT_ENGINE, namespace=asker.namespace), spec=spec)


def layers_of(engine: Engine, there: Lookup) -> list[Engine]:
    """Return the layers of an Engine: the namespace's ``default``, if there is one, then the Engine itself."""
    below = None if engine.name == DEFAULT_ENGINE else there.get(Engine, engine.namespace, DEFAULT_ENGINE)
    return [engine] if below is None else [below, engine]


@dataclass(frozen=True, slots=True, eq=False)
class _Same(Generic[T]):
    """Wrapper that compares by identity: models that contain maps are not hashable."""

    value: T

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


@lru_cache(maxsize=1024)
def _profile(sources: tuple[_Same[Engine | Settings], ...], size: _Same[Sizes] | None) -> EngineSpec:
    """Return the merged spec, cached for thousands of Datasets; the cache keeps the sources, so no id is reused."""
    settings = sources[-1].value
    assert isinstance(settings, Settings)
    engines = [source.value for source in sources if isinstance(source.value, Engine)]
    spec, _ = capped(profile(engines, size.value if size else None, settings.engine_defaults), settings.engine_limits)
    return spec


def profile(
    engines: Iterable[Engine], size: Sizes | None = None, defaults: Mapping[str, Any] = MappingProxyType({})
) -> EngineSpec:
    """Return the spec from ``defaults`` and these Engines, the most general first, before the limits are applied."""
    own = [] if size is None else [said(size)]
    layers = [said(each.spec) for each in engines]
    below = [inherited(layer) for layer in (defaults, *layers[:-1])]
    return layered([*below, *layers[-1:], *own])


def engine_digest(engine: Engine | None, settings: Settings) -> str:
    """Return a digest that changes when a job would run in another way: of the Engine and the operator's defaults."""
    passing = {"retry", "deadlines", "spark_from", "pod_retention", "suspend", "warm"}
    spec = engine.spec.model_dump_json(exclude=passing) if engine else ""
    return digest(spec, settings.default_image, settings.default_service_account)


def digest(*parts: str) -> str:
    """Return a short digest for statuses."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def store_ref(store: ObjectStore) -> jobs.StoreRef:
    """Return an ObjectStore as jobs need it.

    Capabilities hold for the connection that was inspected: while the store is not ready, jobs probe them.
    """
    spec, found = store.spec, store.status.capabilities
    return jobs.StoreRef(
        name=store.name,
        url=spec.url,
        endpoint=spec.endpoint,
        region=spec.region,
        credentials_dir=f"{CREDENTIALS_ROOT}/{store.name}" if spec.credentials_secret_ref else None,
        keys_dir=f"{KEYS_ROOT}/{store.name}" if spec.keys_secret_ref else None,
        conditional_writes=found.conditional_writes if found is not None and store.ready else None,
    )


def bears_one_writer(store: ObjectStore) -> bool:
    """Return whether the store has no conditional writes: then only one writer at a time is safe (commit-protocol)."""
    found = store.status.capabilities
    return found is not None and not found.conditional_writes


def launch_job(job: jobs.AnyJob, owner: Resource, engine: Engine | None, *stores: ObjectStore) -> LaunchJob:
    """Return the launch of a job, with the Secrets and the PersistentVolumeClaim of each store that has them."""
    secrets = {
        store.name: store.spec.credentials_secret_ref.name for store in stores if store.spec.credentials_secret_ref
    }
    keys = {store.name: store.spec.keys_secret_ref.name for store in stores if store.spec.keys_secret_ref}
    volumes = {store.name: store.spec.volume.claim_name for store in stores if store.spec.volume}
    return LaunchJob(job, owner, engine, secrets, volumes, keys)


def job_basics(
    name: str, attempt: int, owner: Resource, store: ObjectStore, dataset: Dataset, settings: Settings
) -> dict[str, Any]:
    """Return the fields that all jobs on one Dataset have."""
    return {
        "job": name,
        "uid": owner.metadata.uid,
        "attempt": attempt,
        "store": store_ref(store),
        "dataset": dataset_ref(dataset, settings),
    }


def dataset_ref(dataset: Dataset, settings: Settings) -> jobs.DatasetRef:
    """Return a Dataset as jobs need it, with the claim that it makes on its uuid."""
    table = dataset.spec.table
    return jobs.DatasetRef(
        uuid=dataset.uuid,
        claim=jobs.Claim(
            owner=f"{settings.cluster_id}/{dataset.namespace}/{dataset.name}", incarnation=dataset.metadata.uid
        ),
        table=jobs.TableSpec(
            partition_on=table.partition_on,
            target_file_bytes=parse_quantity(table.target_file_size),
            sort_by=table.sort_by,
            bucket_by=table.bucket_by,
            num_buckets=table.num_buckets or 0,
            row_group_rows=table.row_group_rows,
            compression=table.compression,
            dictionary_columns=table.dictionary_columns,
            schema_evolution=table.schema_evolution,
            columns=table.columns or (),
            indices=table.indices,
            skipping=skipping_of(table.skipping),
            dialect=table.dialect,
        ),
        adopt=dataset.spec.adopt,
        clustering=clustering_of(dataset.spec.maintenance.compaction),
        iceberg=iceberg_of(dataset.spec),
        version_hint=_version_hint_of(dataset.spec),
        writers=writers_of(dataset),
    )


def writers_of(dataset: Dataset) -> tuple[jobs.WriterRef, ...]:
    """Return the writers of a Dataset as jobs need them."""
    return tuple(
        jobs.WriterRef(name=writer.identity(dataset.namespace), operations=writer.operations)
        for writer in dataset.spec.writers
    )


def iceberg_of(spec: DatasetSpec) -> Literal["Off", "Omit", "Refuse"]:
    """Return the export of Iceberg metadata."""
    return (spec.export or Export()).iceberg.unsupported_columns if spec.exports_iceberg else "Off"


def _version_hint_of(spec: DatasetSpec) -> bool:
    """Return whether exports write a version hint; by default, unless a gateway serves the dataset."""
    wanted = (spec.export or Export()).iceberg.version_hint
    return not spec.is_exposed if wanted is None else wanted


def clustering_of(thresholds: Thresholds | None) -> jobs.Clustering | None:
    """Return the order in which a compaction writes rows; None if the manifest sets none."""
    if thresholds is None or not (thresholds.sort_by or thresholds.z_order_by):
        return None
    return jobs.Clustering(by=thresholds.sort_by or thresholds.z_order_by, curve=bool(thresholds.z_order_by))


def skipping_of(skipping: Skipping | None) -> jobs.SkippingSpec | None:
    """Return the skipping indices as jobs need them; None if the manifest does not mention them."""
    if skipping is None:
        return None
    return jobs.SkippingSpec(
        indices=tuple(map(_skipping_index, skipping.indices)),
        auto=skipping.auto,
        footer_key=skipping.footer_key,
        plaintext_footer=skipping.plaintext_footer,
    )


def _skipping_index(index: ColumnIndex) -> jobs.SkippingIndexSpec:
    given = {"ndv": index.ndv, "fpp": index.fpp}
    params = {name: str(value) for name, value in given.items() if value is not None}
    if index.type in ("Prefix", "Suffix"):
        params = {"length": str(index.length or DEFAULT_LENGTH)}
    columns = (index.column,) if index.y_column is None else (index.column, index.y_column)
    return jobs.SkippingIndexSpec(type=index.type, columns=columns, params=params, key=index.key)


def spark_settings(engine: Engine | None) -> jobs.SparkSettings:
    """Return how a job's driver sizes its session."""
    if engine is None:
        return jobs.SparkSettings()
    return jobs.SparkSettings(from_bytes=parse_quantity(engine.spec.spark_from), conf=dict(engine.spec.spark_conf))


def open_lineage(resource: Resource, settings: Settings, *, job: str | None = None) -> jobs.OpenLineage | None:
    """Return the collector of the lineage of a resource's runs, if there is one; ``job`` as in the job spec."""
    if settings.open_lineage_url is None:
        return None
    namespace = f"{settings.cluster_id}/{resource.namespace}"
    return jobs.OpenLineage(url=settings.open_lineage_url, namespace=namespace, job=job)


def source_spec(source: Source, store: ObjectStore, settings: Settings) -> jobs.SourceSpec:
    """Return a source of files as jobs need it; ``store`` holds its paths, if it has any."""
    assert source.format is not None, "a rule of the kind"
    return jobs.SourceSpec(
        store=store_ref(store) if source.paths is not None else None,
        paths=source.paths or (),
        urls=source.urls or (),
        format=source.format,
        compression=source.compression,
        csv=source.csv or Csv(),
        columns=source.columns or (),
        allowed_hosts=settings.allowed_source_hosts,
        allow_local=settings.allow_local_sources,
    )


def statement_spec(source: Source, store: ObjectStore, engine: Engine | None) -> jobs.StatementSpec | None:
    """Return the statement of a source, limited by the memory of the driver; None if it has none.

    ``store``  holds the datasets that it reads
    """
    if source.sql is None:
        return None
    spec, as_of = engine.spec if engine is not None else EngineSpec(), source.as_of
    return jobs.StatementSpec(
        store=store_ref(store),
        sql=source.sql,
        as_of_version=as_of.version if as_of else None,
        as_of_time=as_of.time if as_of else None,
        as_of_tag=as_of.tag if as_of else None,
        as_at=source.as_at,
        memory_bytes=parse_quantity(spec.driver.memory),
        time_limit_seconds=parse_duration(source.time_limit or DEFAULT_TIME_LIMIT).total_seconds(),
    )
