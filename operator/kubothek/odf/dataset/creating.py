"""Creation of a root dataset: from a DatasetSnapshot, or from a chain that another program wrote."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from uuid import uuid4

from kubothek.errors import CubeInvalid, DatasetExists, EventInvalid, FormatInvalid, IdReused
from kubothek.odf.dataset.base import system_now
from kubothek.odf.dataset.definition import Chain
from kubothek.odf.dataset.extension import Extension
from kubothek.odf.dataset.handle import Root
from kubothek.odf.dataset.moving import ref_healed
from kubothek.odf.dataset.slicing import SLICE_BYTES, Types
from kubothek.odf.dataset.table import Table
from kubothek.odf.sources.readers.declared import require_declared
from kubothek.odf.spec.blocks import Block
from kubothek.odf.spec.events import DatasetKind, DatasetSnapshot
from kubothek.odf.spec.identity import OwnerKey
from kubothek.odf.spec.manifests import write_snapshot
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.spec.versions import NEWEST, SpecVersion
from kubothek.odf.validation.snapshots import first_blocks
from kubothek.odf.validation.state import ChainState
from kubothek.storage import Store
from kubothek.table.log import AlreadyApplied, Change, DatasetLog, Operation, Transaction
from kubothek.table.log.multi.spec import memberships

_CREATE_ID: Final = "ledger:create"
"""The id of creations whose caller gives none: of two concurrent ones, one is refused."""


_USUAL: Final = Table()


def create(
    store: Store,
    log: DatasetLog,
    snapshot: DatasetSnapshot,
    owner: OwnerKey,
    *,
    table: Table | None = _USUAL,
    types: Types = Types.KAMU,
    version: SpecVersion = NEWEST,
    metadata: Mapping[str, Any] = MappingProxyType({}),
    commit_id: str | None = None,
    by: str = "",
    slice_bytes: int = SLICE_BYTES,
) -> Root:
    """Commit the chain's first blocks: the seed, and one for each event of the snapshot (SN-01, SN-03).

    ``owner``      its public half becomes the dataset's identity; keep it
    ``version``    of the specification in which the chain is written
    ``table``      None: no table, only the chain
    ``metadata``   user metadata of the dataset
    ``commit_id``  identifies this creation permanently: repeated calls with it create one dataset

    Raises DatasetExists; EventInvalid for an event that no root dataset begins with, or for a source whose declared
    columns cannot be read.
    """
    if snapshot.kind is not DatasetKind.ROOT:
        raise EventInvalid(f"{snapshot.name}: a {snapshot.kind.value} dataset is not created by its events alone")

    for event in snapshot.metadata:
        require_declared(event)

    def first(now: Timestamp) -> list[Block]:
        return first_blocks(snapshot, owner.dataset_id, now, lambda reference: None, version)

    digest = digest_of(snapshot, table, types)
    change = Change(operation=Operation.CREATE, metadata=metadata, by=by)
    begin_chain(
        store, log, first, change, table=table, types=types, version=version, commit_id=commit_id, digest=digest
    )
    return Root(store, log, by=by, slice_bytes=slice_bytes)


def begin_chain(
    store: Store,
    log: DatasetLog,
    first: Callable[[Timestamp], list[Block]],
    change: Change,
    *,
    table: Table | None,
    types: Types,
    version: SpecVersion,
    commit_id: str | None,
    digest: str,
) -> None:
    """Commit ``change`` with the first blocks of a chain, and an empty table.

    Raises DatasetExists, and what ``first`` raises.
    """
    started = begin_new_dataset(log, commit_id, digest)
    if isinstance(started, Transaction):
        state = ChainState(version=None if version is SpecVersion.V0_34 else version)  # as in heads of former versions
        extension = Extension(Chain(types=types, table=table is not None, state=state), system_now(log))
        for block in first(extension.system_time):
            extension.take(block)
        extension.write(store, log.uuid)
        fields = {} if table is None else table.fields()
        started.commit(replace(change, ledger=extension.change, **fields))
    else:
        ref_healed(store, log, change.by)


def begin_new_dataset(log: DatasetLog, commit_id: str | None, digest: str) -> Transaction | AlreadyApplied:
    """Start the first commit of a dataset. Raises DatasetExists; CubeInvalid for a cube dataset's name."""
    if (place := next(memberships(log.uuid), None)) is not None:
        raise CubeInvalid(
            f"dataset {log.uuid!r} would be {place[1]!r} of cube {place[0]!r}, and a ledger cannot be in a cube: its "
            "rows change with its chain, not with other datasets. Choose a name without '++'"
        )
    exists = DatasetExists(f"there is a dataset {log.uuid!r} already; choose another name")
    try:
        started = log.begin(commit_id or _CREATE_ID, digest if commit_id else uuid4().hex)
    except IdReused as error:
        if commit_id:
            raise
        raise exists from error
    if isinstance(started, Transaction) and started.snapshot.exists:
        raise exists
    return started


def owner_key_file(path: Path) -> OwnerKey:
    """Return the key in this file, 64 hexadecimal digits; create a new one, for its owner only, if there is no file.

    Raises FormatInvalid if the file holds none.
    """
    with suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(OwnerKey.new().seed.hex())
            file.flush()
            os.fsync(file.fileno())
    try:
        key = OwnerKey(bytes.fromhex(path.read_text().strip()))
        _ = key.dataset_id
    except ValueError as error:
        raise FormatInvalid(f"{path} holds no ed25519 key: 64 hexadecimal digits are expected") from error
    return key


def digest_of(snapshot: DatasetSnapshot, table: Table | None, types: Types) -> str:
    """Return the digest that distinguishes this creation from another one under the same id."""
    return sha256(f"{write_snapshot(snapshot)}{types}{table!r}".encode()).hexdigest()
