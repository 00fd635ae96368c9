"""Synchronisation of a dataset with a Repository: pull or push.

Both can be interrupted at any moment and can run concurrently. Objects that arrived are found by their hashes, and one
commit (pull) or one replacement of the remote head (push) makes all of them visible.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from kubothek.api.jobs import JobResult, RemoteRef, SyncJob, SyncOutcome
from kubothek.api.repository import TOKEN_KEY
from kubothek.errors import DatasetExists, IdReused, InputError
from kubothek.ingest import UrlPolicy
from kubothek.jobs import translate
from kubothek.jobs.chains import opened, table_of
from kubothek.jobs.progress import Reporter
from kubothek.jobs.state import state_of
from kubothek.odf.named import KEPT, fetched_text, missing_text
from kubothek.storage import Store
from kubothek.table.log import DatasetLog
from kubothek.words import count

if TYPE_CHECKING:
    from kubothek.odf.sync import Progress, Pulled, Reach, Told


def run(job: SyncJob, store: Store, reporter: Reporter) -> JobResult:
    """Compare both sides, transfer missing objects, commit.

    Raises LakeError: StoreUnavailable if a retry can help; Diverged, ChainCorrupt, InvalidCredentials, AccessDenied,
    SourceRefused, DatasetNotFound if a user must act.
    """
    reporter.report("Comparing")
    log = translate.dataset_log(store, job.dataset, conditional_writes=job.store.conditional_writes)
    with _reach(job.remote) as reach:
        done = (_pull if job.direction == "Pull" else _push)(job, store, log, reach, _report(reporter))
    state = state_of(store, log, job.dataset) if job.direction == "Pull" else None
    return JobResult(outcome="Succeeded", reason="Succeeded", message=described(job, done), sync=done, dataset=state)


def _pull(job: SyncJob, store: Store, log: DatasetLog, reach: Reach, report: Told) -> SyncOutcome:
    # aiohttp takes a while to import, and no other job needs it.
    from kubothek.odf.sync import pull_remote

    def pull() -> Pulled:
        return pull_remote(
            store,
            log,
            job.remote.url,
            reach=reach,
            table=table_of(job.dataset, view=job.view),
            force=job.force,
            rows=job.rows,
            by=job.dataset.claim.owner,
            told=report,
        )

    try:
        done = pull()
    except (DatasetExists, IdReused):  # another attempt has created it meanwhile: continue from there
        done = pull()
    brought = done.brought
    return SyncOutcome(
        relation=done.relation.value,
        head=str(done.head),
        version=done.version,
        blocks=done.blocks,
        objects=brought.fetched_objects,
        bytes=brought.fetched_bytes,
        missing=tuple(map(str, brought.missing[:KEPT])),
    )


def _push(job: SyncJob, store: Store, log: DatasetLog, reach: Reach, report: Told) -> SyncOutcome:
    from kubothek.odf.sync import push_remote

    root = opened(store, log, job.dataset)
    done = push_remote(root, job.remote.url, reach=reach, force=job.force, told=report)
    return SyncOutcome(
        relation=done.relation.value,
        head=str(done.head),
        blocks=done.blocks,
        objects=done.objects,
        bytes=done.bytes,
        missing=tuple(map(str, done.missing[:KEPT])),
    )


def described(job: SyncJob, done: SyncOutcome) -> str:
    """Return a message about the result of a sync."""
    if not done.blocks:
        lacked = fetched_text(done.objects, "fetched" if job.direction == "Pull" else "sent")
        return f"nothing new: both end with {done.head}{lacked}{missing_text(done.missing)}"
    verb = "pulled" if job.direction == "Pull" else "pushed"
    moved = f"{count(done.blocks, 'block')} and {count(done.objects, 'object')} {verb}, up to {done.head}"
    moved += missing_text(done.missing)
    return moved if done.version is None else f"version {done.version}: {moved}"


def _report(reporter: Reporter) -> Told:
    def report(progress: Progress) -> None:
        if progress.objects < progress.objects_total:
            stage = "Transferring"
        else:
            stage = "Committing" if progress.objects_total else "Comparing"
        reporter.report(
            stage,
            progress.objects,
            progress.objects_total,
            blocks=progress.blocks,
            bytes=progress.bytes,
            bytes_total=progress.bytes_total,
        )

    return report


# --- connection ------------------------------------------------------------------------------------------------------


@contextmanager
def _reach(remote: RemoteRef) -> Iterator[Reach]:
    """Yield how to reach the Repository. Raises InputError, SourceRefused."""
    from kubothek.odf.sync import Reach

    policy = UrlPolicy(remote.allowed_hosts, remote.allow_local, named_private=True)
    parts = urlsplit(remote.url)
    if parts.scheme in ("s3", "s3+http", "s3+https"):
        service = remote.endpoint or (remote.url.removeprefix("s3+") if "+" in parts.scheme else None)
        if service is not None:
            asked = policy.check(service)
            _ = policy.resolve(asked)
        yield Reach(endpoint=remote.endpoint, region=remote.region, credentials_dir=remote.secret_dir)
        return
    asked = policy.check(remote.url.removeprefix("odf+"))
    if asked.scheme == "file":
        Path(unquote(asked.path)).mkdir(parents=True, exist_ok=True)
    token = None if remote.secret_dir is None else _token(remote.secret_dir)
    with _certificates(remote.ca_bundle) as file:
        # On a user's own machine its proxies are used, as with `kubothek pull`.
        yield Reach(token=token, ca_file=file, policy=None if remote.allow_local else policy)


def _token(directory: str) -> str:
    """Read the token in the Secret. Raises InputError."""
    try:
        token = (Path(directory) / TOKEN_KEY).read_text(encoding="ascii").strip()
    except OSError as error:
        raise InputError(f"the Repository's Secret has no key {TOKEN_KEY!r} ({error.strerror}): add it") from None
    except UnicodeDecodeError:
        token = ""
    if not token or not token.isprintable() or " " in token:
        raise InputError(f"the key {TOKEN_KEY!r} of the Repository's Secret is no token: one word of ASCII characters")
    return token


@contextmanager
def _certificates(bundle: str | None) -> Iterator[str | None]:
    """Yield the name of a file with the certificates. Raises InputError."""
    if bundle is None:
        yield None
        return
    try:
        ssl.create_default_context(cadata=bundle)
    except ssl.SSLError as error:
        raise InputError(f"caBundle of the Repository holds no certificates in PEM: {error}") from None
    with NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(bundle)
        file.flush()
        yield file.name
