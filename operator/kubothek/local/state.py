"""State of the local runtime between runs, one directory per store.

For a store in a directory that is ``.kubothek-state/`` in that directory: it moves with the data, and no dataset can
have such a name. For a bucket it is a directory of the user. It holds each resource as an API server would have it
(uid, generation, creation time, spec, status), and the attempts of its jobs. If it is lost, work is only repeated: uids
are derived from names, and commits are found by their ids.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kubothek.api.kinds import check_edit, manifest_of
from kubothek.api.meta import Resource
from kubothek.api.rules import Problem
from kubothek.local.errors import LocalError
from kubothek.local.files import write_atomically
from kubothek.local.manifests import Key, key_of
from kubothek.urls import absolute_url

_UIDS = uuid.UUID("5a0c1b52-3c1e-5c53-9d4f-7b1f0e1c8a11")
"""Namespace of the uids: a name has the same uid in every run, also after the state was lost."""


class LockedError(LocalError):
    """Another run works on the same store."""


@dataclass(frozen=True, slots=True)
class State:
    """State directory of one store."""

    root: Path

    @classmethod
    def of(cls, url: str, endpoint: str | None, base: Path, environ: Mapping[str, str] = os.environ) -> State:
        """Return the state of the store at a URL and endpoint; relative file URLs are resolved against ``base``."""
        url = absolute_url(url, base)
        if url.startswith("file:"):
            return cls(Path(unquote(urlsplit(url).path)) / ".kubothek-state")
        home = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
        digest = hashlib.sha256(f"{endpoint or ''} {url}".encode()).hexdigest()[:12]
        readable = re.sub(r"[^A-Za-z0-9]+", "-", url.removeprefix("s3://")).strip("-")[:60]
        return cls(Path(home) / "kubothek" / f"{readable}-{digest}")

    def identity(self, key: Key, environ: Mapping[str, str] = os.environ) -> Path:
        """Return the directory of a dataset's private key: never in the store's directory, which users may share."""
        home = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
        digest = hashlib.sha256(str(self.root).encode()).hexdigest()[:12]
        return Path(home) / "kubothek" / "identities" / digest / key.namespace / key.name

    @property
    def jobs(self) -> Path:
        """Directory of the attempts."""
        return self.root / "jobs"

    def load(self, model: type[Resource], key: Key) -> Resource | None:
        """Return the resource as last saved; None if it is new, or not valid in this release."""
        try:
            data = self._path(key).read_bytes()
        except FileNotFoundError:
            return None
        try:
            return model.model_validate_json(data)
        except ValueError:
            return None

    def save(self, resource: Resource) -> None:
        """Write the resource atomically."""
        path = self._path(key_of(resource))
        path.parent.mkdir(parents=True, exist_ok=True)
        data = manifest_of(resource) | {"status": resource.status.model_dump(mode="json", by_alias=True)}
        write_atomically(path, json.dumps(data).encode())

    def known(self) -> Iterator[Key]:
        """Yield all resources that were ever saved."""
        for path in (self.root / "resources").glob("*/*/*.json"):
            yield Key(path.parent.parent.name, path.parent.name, path.stem)

    def is_running(self) -> bool:
        """Return whether a run works on the store at this moment."""
        try:
            with (self.root / "lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def _path(self, key: Key) -> Path:
        return self.root / "resources" / key.kind / key.namespace / f"{key.name}.json"


def admit(new: Resource, old: Resource | None, now: datetime) -> tuple[Resource, Sequence[Problem]]:
    """Admit a manifest as an API server does: refuse a forbidden edit, or give the resource its identity.

    A changed spec is a new generation; the status stays.
    """
    key = key_of(new)
    identity = {"uid": str(uuid.uuid5(_UIDS, "/".join(key))), "resource_version": ""}
    if old is None:
        metadata = new.metadata.model_copy(
            update=identity | {"generation": 1, "creation_timestamp": now.replace(microsecond=0)}
        )
        return new.model_copy(update={"metadata": metadata, "status": _fresh_status(new)}), ()
    problems = check_edit(old, new)
    edited = old.spec != new.spec
    metadata = new.metadata.model_copy(
        update=identity
        | {
            "generation": old.metadata.generation + edited,
            "creation_timestamp": old.metadata.creation_timestamp,
            "finalizers": old.metadata.finalizers,
        }
    )
    return new.model_copy(update={"metadata": metadata, "status": old.status}), problems


def _fresh_status(resource: Resource) -> object:
    """Return the default status: one in a manifest was exported from elsewhere, and does not apply to this store."""
    return type(resource).model_fields["status"].get_default()


@contextmanager
def locked(states: Sequence[State]) -> Iterator[None]:
    """Lock every state for one run; the kernel releases the locks when the process dies. Raises LockedError."""
    with ExitStack() as held:
        for root in sorted({state.root for state in states}):
            try:
                root.mkdir(parents=True, exist_ok=True)
                lock = held.enter_context((root / "lock").open("a+"))
            except OSError as error:
                raise LocalError(f"cannot keep the state of this run in {root}: {error.strerror}") from None
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                holder = lock.read().strip() or "another process"
                raise LockedError(
                    f"{holder} is running on this store (it holds {root / 'lock'}): wait for it, or stop it"
                ) from None
            lock.truncate(0)
            lock.write(f"kubothek (pid {os.getpid()})")
            lock.flush()
        yield
