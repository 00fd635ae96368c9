"""Cube: its datasets as Datasets, and whether it can be changed.

A Cube starts no job itself: inspections of its store report its state, Commits change it, and its Datasets maintain
their files. Each dataset in the manifest becomes a Dataset that the Cube owns; with ``adopt``, so does each dataset
found in the store. In a cluster, deleting the Cube deletes its Datasets, and their data stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kubothek.api.conditions import State, problem_state, progressing, ready, stalled, state_of
from kubothek.api.cube import Cube, CubeStatus, MemberState
from kubothek.api.dataset import Dataset
from kubothek.api.meta import NAME_LIMIT
from kubothek.api.values import render_bytes
from kubothek.controller.context import Context, Outcome, PutDataset
from kubothek.controller.kinds.members import Member, is_as_wanted, members_of, refusal_key, wanted
from kubothek.controller.outcome import conclude, unchanged
from kubothek.controller.references import Blocked, find_engine, find_store, usable_store
from kubothek.controller.status_merge import project_cube

_INSPECTING = progressing("Progressing", "an inspection of the store searches for the cube")


def reconcile(cube: Cube, context: Context) -> Outcome:
    """Reconcile a Cube."""
    if cube.deleting or cube.frozen:
        return unchanged(cube)
    store = find_store(cube.spec.store_ref.name, cube, context)
    if isinstance(store, Blocked):
        return conclude(cube, context, store.state, again=store.again)
    status = project_cube(cube, store, context)
    members = members_of(cube, status)
    wrong = _misnamed(members) or _conflict(cube, members, context)
    if wrong is not None:
        return conclude(cube, context, wrong, status)
    status = _with_members(cube, status, members, context)
    engine = find_engine((cube.spec.engine_ref,), cube, context)
    if isinstance(engine, Blocked):
        return conclude(cube, context, engine.state, status, again=engine.again)
    actions = tuple(_puts(cube, members, context))
    return conclude(cube, context, _state(cube, status, members, context), status, actions=actions)


def _misnamed(members: Sequence[Member]) -> State | None:
    """Return the state if a member has no valid or no unique Dataset name, otherwise None."""
    names: dict[str, str] = {}
    for member in members:
        if len(member.dataset) > NAME_LIMIT:
            message = (
                f"the Dataset of {member.name!r} would be called {member.dataset!r}, which is longer than {NAME_LIMIT} "
                "characters: give the Cube a shorter name, with the same spec.uuidPrefix"
            )
            return stalled("NameTooLong", message)
        other = names.setdefault(member.dataset, member.name)
        if other != member.name:
            return stalled("NameCollision", f"{other!r} and {member.name!r} would both be Dataset {member.dataset!r}")
    return None


def _conflict(cube: Cube, members: Sequence[Member], context: Context) -> State | None:
    """Return the state if a member's Dataset name belongs to a Dataset that this Cube does not own, otherwise None."""
    for member in members:
        there = context.get(Dataset, cube.namespace, member.dataset)
        owner = there.controller if there is not None else None
        unreadable = member.dataset in context.invalid(Dataset, cube.namespace)
        if unreadable or (there is not None and (owner is None or owner.uid != cube.metadata.uid)):
            message = (
                f"there is a Dataset {member.dataset!r} that is not of this Cube, and its dataset {member.name!r} "
                "needs the name: delete that one (its data stays), or give the Cube another name, with the same "
                "spec.uuidPrefix"
            )
            return stalled("NameCollision", message)
    return None


def _puts(cube: Cube, members: Sequence[Member], context: Context) -> Iterator[PutDataset]:
    for member in members:
        dataset, there = wanted(cube, member), context.get(Dataset, cube.namespace, member.dataset)
        if there is None or (not there.deleting and not is_as_wanted(there, dataset)):
            yield PutDataset(dataset)


def _with_members(cube: Cube, status: CubeStatus, members: Sequence[Member], context: Context) -> CubeStatus:
    states = [_member_state(cube, member, context) for member in members]
    size = sum(state.bytes for state in states)
    seed = status.shape.seed if status.shape is not None else cube.spec.seed_dataset
    rows = next((state.rows for state in states if state.name == seed), 0)
    return status.model_copy(update={"members": tuple(states), "rows": rows, "bytes": size, "size": render_bytes(size)})


def _member_state(cube: Cube, member: Member, context: Context) -> MemberState:
    dataset = context.get(Dataset, cube.namespace, member.dataset)
    if dataset is None:
        return MemberState(name=member.name, dataset=member.dataset)
    table = dataset.status
    return MemberState(
        name=member.name,
        dataset=member.dataset,
        version=None if table.deleted else table.version,
        rows=table.rows,
        files=table.files,
        bytes=table.bytes,
    )


def _state(cube: Cube, status: CubeStatus, members: Sequence[Member], context: Context) -> State:
    if status.problem is not None:
        return problem_state(status.problem)
    if status.inspected_time is None and status.version is None:
        store = usable_store(cube.spec.store_ref.name, cube, context)
        return store.state if isinstance(store, Blocked) else _INSPECTING
    if cube.spec.suspend:
        return ready("Suspended", "no new jobs while spec.suspend is true")
    if cube.spec.adopt and status.shape is None and not members:
        message = f"there is no cube {cube.prefix!r} in the store: correct spec.uuidPrefix, or list its datasets"
        return stalled("CubeNotFound", message)
    waiting = next((state for member in members if (state := _hindrance(cube, member, context)) is not None), None)
    if waiting is not None:
        return waiting
    trouble = next((state for member in members if (state := _trouble(cube, member, context)) is not None), None)
    if trouble is not None:
        return trouble
    return ready("Succeeded", "ready for commits" if status.version is None else "ready for commits and queries")


def _hindrance(cube: Cube, member: Member, context: Context) -> State | None:
    """Return why a dataset of the cube cannot be written, or None."""
    dataset = context.get(Dataset, cube.namespace, member.dataset)
    refusal = context.launch_refusal(cube.namespace, refusal_key(member.dataset))
    if refusal is not None:
        message = f"Dataset {member.dataset!r} cannot be what the Cube says: {refusal[0]}: {refusal[1]}"
        return stalled("DatasetRefused", message)
    if dataset is None:
        return progressing("Progressing", f"Dataset {member.dataset!r} is made")
    if dataset.writable:
        return None
    state = state_of(dataset.status)
    if state is None or state.abnormal != "Stalled":
        return progressing("DatasetNotReady", f"Dataset {dataset.name!r} is not ready yet")
    return stalled("DatasetNotReady", f"Dataset {dataset.name!r}: {state.reason}: {state.message}")


def _trouble(cube: Cube, member: Member, context: Context) -> State | None:
    """Return what is wrong with a writable dataset of the cube, or None."""
    dataset = context.get(Dataset, cube.namespace, member.dataset)
    state = state_of(dataset.status) if dataset is not None else None
    if dataset is None or state is None or state.ready == "True":
        return None
    return stalled("DatasetTrouble", f"Dataset {dataset.name!r}: {state.reason}: {state.message}")
