"""Chains in jobs: opening and creating one, and its state in a job result."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from kubothek.api.jobs import DatasetRef, InputRef, LedgerInput, LedgerSource, LedgerState
from kubothek.errors import InputError, LakeError
from kubothek.jobs import translate
from kubothek.jobs.outcome import shortened
from kubothek.odf.dataset import Ledger, Root, Table
from kubothek.odf.derived import Inputs, inputs_of
from kubothek.odf.spec.identity import DatasetId, OwnerKey
from kubothek.odf.validation.state import ChainState, Consumed
from kubothek.storage import Store
from kubothek.table.log import DatasetLog

_logger = logging.getLogger(__name__)

_KEY: Final = "ed25519"
_BYTES: Final = 32
_TEXT_LIMIT: Final = 200
_MOST_SOURCES: Final = 16
_MOST_INPUTS: Final = 8
"""The most inputs that fit in a result."""


def opened(store: Store, log: DatasetLog, dataset: DatasetRef) -> Root:
    """Return the chain of a root dataset. Raises NotALedger, DatasetNotFound, InputError for a derivative."""
    return Root(store, log, by=dataset.claim.owner)


def inputs_among(store: Store, inputs: Sequence[InputRef]) -> Inputs:
    """Return where the inputs of a derivative are."""
    return inputs_of(store, {each.reference: each.uuid for each in inputs})


def table_of(dataset: DatasetRef, *, view: bool) -> Table | None:
    """Return the layout, indices and skipping metadata of a new chain's view; None if it gets no view."""
    if not view:
        return None
    spec = dataset.table
    return Table(
        layout=translate.plain_layout(spec),
        indices=translate.indices(spec) or {},
        skipping=translate.skipping(spec.skipping),
    )


def owner_key(directory: str) -> OwnerKey:
    """Read the private key in a Secret: 32 bytes, raw, in base64 or in hexadecimal digits. Raises InputError."""
    path = Path(directory) / _KEY
    try:
        found = path.read_bytes()
    except OSError as error:
        raise InputError(f"the identity's Secret has no key {_KEY!r} ({error.strerror}): add it") from None
    if len(found) == _BYTES:
        return OwnerKey(found)
    text = found.strip()
    for decode in (bytes.fromhex, partial(base64.b64decode, validate=True)):
        try:
            seed = decode(text.decode())
        except ValueError:
            continue
        if len(seed) == _BYTES:
            return OwnerKey(seed)
    raise InputError(
        f"the key {_KEY!r} of the identity's Secret is no ed25519 private key: give its 32 bytes, raw or in base64"
    )


def variables(directory: str | None) -> dict[str, str]:
    """Read a Secret as variables for the URLs and headers of a source. Raises InputError."""
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
    """Return the current state of a dataset's chain; None if it has no chain.

    If the chain cannot be read, the state holds only what the head says: the job has done its work and must not fail.
    """
    note = log.snapshot().head.chain
    if note is None:
        return None
    identity = None
    inputs: tuple[LedgerInput, ...] = ()
    try:
        chain = Ledger(store, log).state
        identity = str(chain.seed.dataset_id) if chain.seed is not None else None
        inputs = tuple(_read_inputs(chain))
    except LakeError as error:
        _logger.warning("the chain of %s was not inspected: %s", log.uuid, error)
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
        inputs=inputs[:_MOST_INPUTS],
    )


def _read_inputs(chain: ChainState) -> Iterator[LedgerInput]:
    """Yield how far each input was read, in the order of the transformation."""
    for each in chain.transform.inputs if chain.transform is not None else ():
        read = chain.consumed.get(DatasetId.parse(each.dataset_ref), Consumed())
        yield LedgerInput(
            id=each.dataset_ref,
            alias=shortened(each.alias or each.dataset_ref, _TEXT_LIMIT),
            block=None if read.block is None else str(read.block),
            offset=read.offset,
        )
