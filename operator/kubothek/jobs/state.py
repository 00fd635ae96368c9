"""State of a dataset or cube in a job result: its head, and the health of its files."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from kubothek.api.jobs import CubeRef, CubeState, DatasetRef, DatasetState, SkippingState
from kubothek.cube.log import CubeLog
from kubothek.errors import DatasetNotFound, LakeError
from kubothek.jobs import translate
from kubothek.jobs.outcome import shortened
from kubothek.storage import Store
from kubothek.table.iceberg.state import iceberg_state
from kubothek.table.log import DatasetLog
from kubothek.table.log.multi.spec import CubeSpec
from kubothek.table.log.update_skipping import undescribed
from kubothek.table.maintenance import ailments, health
from kubothek.table.maintenance.lost_files import sample_lost_files

_NOWHERE: Final = f"{DatasetNotFound.reason}:"
_logger = logging.getLogger(__name__)

_MOST_AILMENTS: Final = 8
_AILMENT_LIMIT: Final = 80
_COUNTED_BYTES: Final = 16 << 20


def state_of(
    store: Store, log: DatasetLog, dataset: DatasetRef, *, estimates: bool = False, keeps: bool = True
) -> DatasetState:
    """Return the dataset's state, with its health updated to the current version; ``estimates`` adds the garbage, and
    ``keeps`` stores the inventory of the health for the next call.

    Without ``estimates`` the cost depends only on what changed since the last update. If the health cannot be computed,
    it is left out: the job has done its work and must not fail.
    """
    state = translate.dataset_state(log.inspect())
    if state.version is None or state.deleted:
        return state
    if log.snapshot().head.chain is not None:
        from kubothek.jobs.chains import ledger_state  # ledgers, and what verifies them, take half a second to import

        state = state.model_copy(update={"ledger": ledger_state(store, log)})
    try:
        order = translate.clustering(dataset.clustering)
        snapshot = log.snapshot()
        found = health(store, log, snapshot, clustering=order, estimates=estimates, keeps=keeps)
        exported = translate.iceberg_state(iceberg_state(store, log, snapshot))
    except LakeError as error:
        _logger.warning("the health of %s was not worked out: %s", state.uuid, error)
        return state
    update = {"health": translate.health_state(found), "skipping": _skipping(store, log), "iceberg": exported}
    return state.model_copy(update=update)


def _skipping(store: Store, log: DatasetLog) -> SkippingState | None:
    """Return the state of the skipping metadata. If it is large, count its entries without matching them to files."""
    snapshot = log.snapshot()
    found, files = snapshot.head.skipping, len(snapshot.head.partitions)
    if sum(part.bytes for part in found.parts) > _COUNTED_BYTES:
        described = min(files, sum(part.rows for part in found.parts))
    else:
        described = files - undescribed(store, snapshot)
    return translate.skipping_state(found, described)


def examined(store: Store, log: DatasetLog, dataset: DatasetRef, *, keeps: bool = True) -> DatasetState:
    """Return :func:`state_of` with the results of cheap checks. Without ``keeps`` it writes nothing.

    They find missing derived objects, lost data files, and damage that an earlier verification found.
    """
    state = state_of(store, log, dataset, estimates=True, keeps=keeps)
    if state.version is None or state.deleted:
        return state
    from kubothek.verify import known_damage

    snapshot = log.snapshot()
    found = ailments(store, log, snapshot)
    wrong = sample_lost_files(store, log, snapshot) or known_damage(store, log.uuid, snapshot)
    return state.model_copy(
        update={
            "ailments": tuple(shortened(each, _AILMENT_LIMIT) for each in found[:_MOST_AILMENTS]),
            "corrupt": None if wrong is None else str(wrong),
        }
    )


def cube_state(log: CubeLog, cube: CubeRef) -> CubeState:
    """Return the cube's state, with a problem of the cube or a contradiction between store and Cube."""
    seen = log.inspect()
    snapshot = seen.snapshot
    if snapshot is None:
        absent = seen.problem is None or seen.problem.startswith(_NOWHERE)
        return CubeState(prefix=cube.prefix, problem=None if absent else seen.problem)
    spec = snapshot.spec
    return CubeState(
        prefix=cube.prefix,
        version=snapshot.version,
        last_commit_time=snapshot.time.isoformat() if snapshot.time else None,
        seed=spec.seed_dataset,
        dimension_columns=spec.dimension_columns,
        partition_columns=spec.partition_columns,
        index_columns=tuple(sorted(spec.index_columns)),
        members=tuple(snapshot.members),
        problem=seen.problem or _contradiction(cube, snapshot.spec),
    )


def _contradiction(cube: CubeRef, spec: CubeSpec) -> str | None:
    """Return where the Cube contradicts the store; None if they agree. Columns and seed of a cube cannot change."""
    for field, said, found in (
        ("dimensionColumns", cube.dimension_columns, spec.dimension_columns),
        ("partitionColumns", cube.partition_columns, spec.partition_columns),
        ("seedDataset", cube.seed if cube.dimension_columns else None, spec.seed_dataset),
    ):
        if said and said != found:
            values = found if isinstance(found, str) else ", ".join(found)
            return f"CubeMismatch: the cube {cube.prefix!r} in the store has {field} {values}: correct spec.{field}"
    return None


def member_states(store: Store, cube: CubeRef, names: Collection[str]) -> tuple[DatasetState, ...]:
    """Return the states of the named datasets in the order of their uuids, without health."""
    refs = sorted((member.dataset for member in cube.members if member.name in names), key=lambda ref: ref.uuid)
    logs = (DatasetLog(store, ref.uuid, claim=translate.claim(ref)) for ref in refs)
    return tuple(_member_state(store, log) for log in logs)


def _member_state(store: Store, log: DatasetLog) -> DatasetState:
    state = translate.dataset_state(log.inspect())
    if state.version is None or state.deleted:
        return state
    try:
        return state.model_copy(update={"skipping": _skipping(store, log)})
    except LakeError as error:
        _logger.warning("how %s is described was not worked out: %s", state.uuid, error)
        return state
