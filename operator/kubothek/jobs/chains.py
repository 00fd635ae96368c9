"""Ledgers as jobs see them: how one is opened or created, and what a job tells of it."""

from __future__ import annotations

import base64
import binascii
import logging
from pathlib import Path
from typing import Final

from kubothek.jobs import translate
from kubothek.jobs.outcome import shortened
from kubothek.lake.commits import DatasetLog
from kubothek.lake.errors import InputError, LakeError
from kubothek.lake.ledger.identity import OwnerKey
from kubothek.lake.ledger.root import Root, Table
from kubothek.lake.store import Store
from kubothek.resources.jobs import DatasetRef, LedgerSource, LedgerState

_logger = logging.getLogger(__name__)

_KEY: Final = "ed25519"
_BYTES: Final = 32
_TEXT_LIMIT: Final = 200
_MOST_SOURCES: Final = 16


def opened(store: Store, log: DatasetLog, dataset: DatasetRef) -> Root:
    """The chain of a dataset. Raises NotALedger, DatasetNotFound."""
    return Root(store, log, by=dataset.claim.owner)


def table_of(dataset: DatasetRef, *, view: bool) -> Table | None:
    """How the view of a new chain lies; None: there is to be none."""
    if not view:
        return None
    spec = dataset.table
    return Table(
        layout=translate.plain_layout(spec),
        indices=translate.indices(spec) or {},
        skipping=translate.skipping(spec.skipping),
    )


def owner_key(directory: str) -> OwnerKey:
    """The private key that a Secret holds: 32 bytes, raw, in base64 or in hexadecimal digits. Raises InputError."""
    path = Path(directory) / _KEY
    try:
        found = path.read_bytes()
    except OSError as error:
        raise InputError(f"the identity's Secret has no key {_KEY!r} ({error.strerror}): add it") from None
    if len(found) == _BYTES:
        return OwnerKey(found)
    text = found.strip()
    for decode in (bytes.fromhex, _base64):
        try:
            seed = decode(text.decode())
        except ValueError:
            continue
        if len(seed) == _BYTES:
            return OwnerKey(seed)
    raise InputError(
        f"the key {_KEY!r} of the identity's Secret is no ed25519 private key: give its 32 bytes, raw or in base64"
    )


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def variables(directory: str | None) -> dict[str, str]:
    """What a Secret holds, as variables of a source's urls and headers. Raises InputError."""
    if directory is None:
        return {}
    try:
        # Kubernetes keeps earlier contents of a Secret beside it, in directories whose names begin with two dots.
        files = [path for path in Path(directory).iterdir() if not path.name.startswith("..") and path.is_file()]
        return {path.name: path.read_text().rstrip("\n") for path in files}
    except OSError as error:
        raise InputError(f"the Secret of ledger.envSecretRef cannot be read ({error.strerror}): create it") from None
    except UnicodeDecodeError:
        raise InputError("the Secret of ledger.envSecretRef has a value that is no UTF-8 text") from None


def ledger_state(store: Store, log: DatasetLog) -> LedgerState | None:
    """The chain of a dataset as it is now; None if it has none. That something of it cannot be read is no failure of a
    job that has done its work: what the head says is told all the same.
    """
    note = log.snapshot().head.chain
    if note is None:
        return None
    identity = None
    try:
        seed = Root(store, log).state.seed
        identity = str(seed.dataset_id) if seed is not None else None
    except LakeError as error:
        _logger.warning("the chain of %s was not looked into: %s", log.uuid, error)
    return LedgerState(
        id=identity,
        head=note.head,
        blocks=note.length,
        records=0 if note.offset is None else note.offset + 1,
        watermark=note.watermark,
        system_time=note.system_time,
        last_slice=note.last_slice,
        sources=tuple(
            LedgerSource(name=name, kind=kind, value=shortened(value, _TEXT_LIMIT))
            for name, (kind, value) in sorted(note.sources.items())[:_MOST_SOURCES]
        ),
    )
