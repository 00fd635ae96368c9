"""A directory as an object store: whole-object atomic writes, and compare-and-swap between processes.

**Writing.** Content goes to a temporary file, is synced, and enters the tree by ``rename`` (or ``link`` for
``put_if_absent``); then the directory is synced. Readers see the old object or the new one, also after a power cut.

**Swapping.** Writers take a ``flock`` on one of 256 lock files chosen by the key, which makes compare and rename one
step among them. The kernel releases the lock of a dead process. Staged objects, and those of ``put_many``, have keys
that are new or content-addressed: they are never swapped and take no lock. A foreign writer without locks (plateau,
kartothek) can write between compare and rename; a file system offers no way to exclude it (see the docs).

**ETag** = modification time (ns), inode, size, without a read of the content. It never repeats, because each write here
gives its file a later time than the replaced file has, whatever the resolution of the file system. A foreign writer
that overwrites in place gets the kernel's clock tick (1 to 10 ms). ``get_with_info`` therefore reads such a file again
once the tick has passed; any later write then has another ETag.

**Links.** No symbolic link below the root is followed, even one that leads to another object: listings omit links, and
reading, writing or deleting through one raises AccessDenied. The root itself may be a link.

Locks and temporary files are in ``.kubothek/.file/``, outside the key space: under ``<uuid>/`` the garbage collection
of other libraries would delete them.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import secrets
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from enum import Enum, auto
from functools import partial
from hashlib import blake2b
from itertools import groupby, islice
from typing import cast

from kubothek.errors import (
    AccessDenied,
    BucketNotFound,
    DiskUnavailable,
    InvalidKey,
    ObjectNotFound,
    PreconditionFailed,
    StoreError,
    StoreUnavailable,
)
from kubothek.storage.base import Capabilities, ObjectInfo, Store, StoreConfig, probe_store
from kubothek.storage.beneath import LINKED, Beneath
from kubothek.storage.file_staging import Temporary, temporary
from kubothek.storage.urls import FileLocation, check_key, check_prefix

_HIDDEN = ".kubothek/.file/"
_TEMPORARY = f"{_HIDDEN}tmp"
_LOCKS = f"{_HIDDEN}locks"
_TICK_NS = 20_000_000
"""Longer than any kernel's clock tick (10 ms at HZ=100)."""
_READ_ATTEMPTS = 50
_ENTER_ATTEMPTS = 50
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))
_PASSING = frozenset(
    (
        errno.EIO,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.ENOLCK,
        errno.EMFILE,
        errno.ENFILE,
    )
)
"""Errors that can disappear without a change of the request."""
_COPY_BYTES = 1 << 18
_PUT_BATCH = 64
"""Maximum files open at a time."""
_DELETE_BATCH = 1000
_ABANDONED_SECONDS = 86_400
"""A temporary file without writes for this long belongs to a dead process."""


class _Any(Enum):
    ETAG = auto()


_Condition = str | None | _Any
"""What a write expects to replace: an ETag, no object, or any."""


class FileStore(Store):
    """Objects are files below one directory, which must exist. See the module for its guarantees."""

    reads_at_once = 1  # a file is read before a thread has started

    def __init__(self, config: StoreConfig, location: FileLocation) -> None:
        self.config = config
        self._root = location.root
        self._beneath = Beneath(location.root)

    # --- reading ---

    def get(self, key: str) -> bytes:
        with self._errors(key), self._open_raw(key) as file:
            return file.readall()

    def get_with_info(self, key: str) -> tuple[bytes, ObjectInfo]:
        for _ in range(_READ_ATTEMPTS):
            with self._errors(key), self._open_raw(key) as file:
                before = os.fstat(file.fileno())
                data = file.readall()
                after = os.fstat(file.fileno())
            if _etag(before) == _etag(after) and not _may_change_within_its_tick(after):
                return data, _info(key, after)
            time.sleep(_TICK_NS / 1e9)
        raise StoreUnavailable(f"{key!r} in {self.url} is overwritten in place without a pause; stop that writer")

    def stat(self, key: str) -> ObjectInfo:
        with self._errors(key):
            return _info(key, self._stat(key))

    def open(self, key: str) -> io.BufferedIOBase:
        with self._errors(key):
            return io.BufferedReader(self._open_raw(key))

    def open_file(self, key: str) -> io.BufferedReader:
        return cast("io.BufferedReader", self.open(key))

    def _open_raw(self, key: str) -> io.FileIO:
        return io.FileIO(_object_key(key), opener=self._beneath.open)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        directory, slash, name = check_prefix(prefix).rpartition("/")
        if not self._root.is_dir():
            raise self._no_root()
        if prefix.startswith(_HIDDEN):
            return iter(())
        return self._walk(directory + slash, name, os.fsencode(start_after))

    def _walk(self, directory: str, name: str, start_after: bytes) -> Iterator[ObjectInfo]:
        """Walk depth first; each directory is sorted as its keys sort: a directory's name counts with its ``/``.

        Memory holds the names of one directory per level; nothing outside the prefix is read.
        """
        with (
            self._errors(directory, absent_is_fine=True, listing=True),
            self._beneath.directory(directory.removesuffix("/"), os.O_RDONLY) as place,
        ):
            names = sorted(_names(place, name), key=os.fsencode)
            for entry in names:
                key = directory + entry
                encoded = os.fsencode(key)
                if entry.endswith("/"):
                    if key != _HIDDEN and (encoded >= start_after or start_after.startswith(encoded)):
                        yield from self._walk(key, "", start_after)
                elif encoded > start_after:
                    with suppress(FileNotFoundError):
                        found = os.stat(entry, dir_fd=place, follow_symlinks=False)
                        if stat.S_ISREG(found.st_mode):
                            yield _info(key, found)

    def list_names(self, directory: str) -> Iterator[str]:
        check_prefix(directory)
        if not self._root.is_dir():
            raise self._no_root()
        if directory.startswith(_HIDDEN):
            return
        with (
            self._errors(directory, absent_is_fine=True, listing=True),
            self._beneath.directory(directory.removesuffix("/"), os.O_RDONLY) as place,
        ):
            names = _names(place, "")
            yield from sorted((name for name in names if directory + name != _HIDDEN), key=os.fsencode)

    # --- writing ---

    def put(self, key: str, data: bytes | memoryview) -> str:
        return self._write(key, data, _Any.ETAG)

    def put_if_absent(self, key: str, data: bytes | memoryview) -> str:
        return self._write(key, data, None)

    def put_if_match(self, key: str, data: bytes | memoryview, etag: str) -> str:
        return self._write(key, data, etag)

    def upload(self, key: str, source: io.BufferedIOBase) -> str:
        source.seek(0)
        with self.stage(key) as staged:
            while chunk := source.read1(_COPY_BYTES):
                staged.write(chunk)
            return self._entered(key, _Any.ETAG, staged)

    def put_many(self, objects: Sequence[tuple[str, bytes | memoryview]]) -> None:
        remaining = iter(objects)
        while batch := list(islice(remaining, _PUT_BATCH)):
            self._put_batch(batch)

    def _put_batch(self, objects: Sequence[tuple[str, bytes | memoryview]]) -> None:
        """Write a batch and sync it as one: synced one by one, each file would be a commit of the disk's journal."""
        with ExitStack() as held:
            staged = [(key, held.enter_context(self.stage(key))) for key, _ in objects]
            for (key, file), (_, data) in zip(staged, objects, strict=True):
                with self._errors(key, writing=True):
                    file.write(data)
                    file.begin_sync()
            for step in (Temporary.sync, Temporary.enter):
                for key, file in staged:
                    with self._errors(key, writing=True):
                        step(file)

    def flush(self, keys: Iterable[str]) -> None:
        for directory in {_parent(_object_key(key)) for key in keys}:
            # A directory that a concurrent delete pruned has no entry left to sync.
            with (
                self._errors(directory, absent_is_fine=True),
                self._beneath.directory(directory, os.O_RDONLY) as place,
            ):
                os.fsync(place)

    @contextmanager
    def stage(self, key: str) -> Iterator[Temporary]:
        _object_key(key)
        with (
            self._errors(key, writing=True),
            self._made_directory(_TEMPORARY) as place,
            temporary(place, secrets.token_hex(16), partial(self._entered_soon, key)) as file,
        ):
            yield file

    def _write(self, key: str, data: bytes | memoryview, condition: _Condition) -> str:
        with self.stage(key) as staged:
            staged.write(data)
            return self._entered(key, condition, staged)

    def _entered(self, key: str, condition: _Condition, file: Temporary) -> str:
        file.sync()
        with self._lock(key):
            replaced = self._stat_if_there(key)
            found = _etag(replaced) if replaced else None
            if condition is not _Any.ETAG and condition != found:
                raise PreconditionFailed(f"{key!r} in {self.url} {_is_not(condition, found)}")
            file.stamp(replaced.st_mtime_ns if replaced else 0)
            self._enter(file, key, new=condition is None)
            etag = _etag(os.fstat(file.descriptor))
        self.flush([key])
        return etag

    def _entered_soon(self, key: str, file: Temporary) -> None:
        """Enter without a lock, because such a key is never swapped: a lock file costs as much as the object."""
        file.sync()
        replaced = self._stat_if_there(key)
        file.stamp(replaced.st_mtime_ns if replaced else 0)
        self._enter(file, key, new=False)

    def _enter(self, file: Temporary, key: str, *, new: bool) -> None:
        """Move a finished file to its key; repeat if a concurrent delete prunes the directory meanwhile."""
        directory, _, name = key.rpartition("/")
        for _ in range(_ENTER_ATTEMPTS):
            try:
                with self._made_directory(directory) as place:
                    if new:
                        os.link(file.name, name, src_dir_fd=file.directory, dst_dir_fd=place, follow_symlinks=False)
                    else:
                        os.replace(file.name, name, src_dir_fd=file.directory, dst_dir_fd=place)
                        file.moved = True
            except FileNotFoundError:
                continue
            except FileExistsError:
                if self._is_directory(key):
                    raise IsADirectoryError(errno.EISDIR, "is a directory", key) from None
                raise PreconditionFailed(f"{key!r} was created by a writer that takes no lock") from None
            return
        raise StoreUnavailable(f"{key!r} cannot be created: its directory or {file.name} is removed all the time")

    @contextmanager
    def _made_directory(self, path: str) -> Iterator[int]:
        """Open a directory after ``mkdir -p`` below the root, with each new entry synced. The root is never created.

        Raises FileNotFoundError if a concurrent delete prunes it meanwhile.
        """
        try:
            descriptor = self._beneath.open_directory(path)
        except FileNotFoundError:
            self._make_directory(path)
            descriptor = self._beneath.open_directory(path)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _make_directory(self, path: str) -> None:
        if not path:
            raise self._no_root()
        parent, _, name = path.rpartition("/")
        with self._made_directory(parent), self._beneath.directory(parent, os.O_RDONLY) as place:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=place)
            os.fsync(place)

    def _is_directory(self, key: str) -> bool:
        return stat.S_ISDIR(self._beneath.stat(key).st_mode)

    @contextmanager
    def _lock(self, key: str) -> Iterator[None]:
        """Exclude all other writers of the key, in any process, until the context or this process ends."""
        descriptor = self._open_lock(blake2b(key.encode(), digest_size=1).hexdigest())
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            try:
                yield
            finally:
                # Closing is not enough: a child process forked meanwhile shares the open file.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)

    def _open_lock(self, name: str) -> int:
        with self._made_directory(_LOCKS) as place:
            return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666, dir_fd=place)

    def check_no_links(self, keys: Iterable[str]) -> None:
        for directory, group in groupby(keys, _parent):
            with self._errors(directory, absent_is_fine=True), self._beneath.directory(directory) as place:
                for key in group:
                    with self._errors(key, absent_is_fine=True):
                        found = os.stat(_object_key(key).rpartition("/")[2], dir_fd=place, follow_symlinks=False)
                        if stat.S_ISLNK(found.st_mode):
                            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), key)

    # --- deleting ---

    def delete(self, keys: Iterable[str]) -> int:
        asked = 0
        remaining = iter(keys)
        while batch := list(islice(remaining, _DELETE_BATCH)):
            asked += len(batch)
            self._delete_batch(batch)
        return asked

    def _delete_batch(self, keys: Sequence[str]) -> None:
        parents = set()
        for directory, group in groupby(map(_object_key, keys), _parent):
            names = list(group)
            with self._errors(names[0], absent_is_fine=True), self._beneath.directory(directory) as place:
                for key in names:
                    with self._errors(key, absent_is_fine=True):
                        os.unlink(key.rpartition("/")[2], dir_fd=place)
                        parents.add(directory)
        # Once per directory, not per key, and without a listing: rmdir refuses a directory with entries.
        for parent in sorted(parents, key=lambda path: path.count("/"), reverse=True):
            self._prune(parent)

    def _prune(self, directory: str) -> None:
        with suppress(OSError):
            while directory:
                with self._beneath.parent(directory) as (place, name):
                    os.rmdir(name, dir_fd=place)
                directory = _parent(directory)

    # --- maintenance ---

    def probe(self) -> Capabilities:
        capabilities = probe_store(self)
        self._sweep_temporaries()
        return capabilities

    def _sweep_temporaries(self) -> None:
        with (
            self._errors(_HIDDEN, absent_is_fine=True),
            self._beneath.directory(_TEMPORARY, os.O_RDONLY) as place,
        ):
            for name in _names(place, ""):
                with suppress(FileNotFoundError):
                    written = os.stat(name, dir_fd=place, follow_symlinks=False).st_mtime
                    if time.time() - written > _ABANDONED_SECONDS:
                        os.unlink(name, dir_fd=place)

    # --- helpers ---

    def _stat(self, key: str) -> os.stat_result:
        """Return the status. Raise FileNotFoundError also for a directory: it is not an object of the key space."""
        found = self._beneath.stat(_object_key(key))
        if stat.S_ISDIR(found.st_mode):
            raise FileNotFoundError(errno.ENOENT, "is a directory", key)
        return found

    def _stat_if_there(self, key: str) -> os.stat_result | None:
        try:
            return self._stat(key)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _no_root(self) -> BucketNotFound:
        return BucketNotFound(f"the directory of {self.url} does not exist; create it, or correct the URL")

    @contextmanager
    def _errors(
        self, key: str, *, writing: bool = False, absent_is_fine: bool = False, listing: bool = False
    ) -> Iterator[None]:
        """Translate errors of the operating system into the store's errors. For a listing, a link is absent."""
        try:
            yield
        except OSError as error:
            failure = self._translate(error, key, writing=writing)
            if absent_is_fine and (isinstance(failure, ObjectNotFound) or (listing and error.errno in LINKED)):
                return
            raise failure from error

    def _translate(self, error: OSError, key: str, *, writing: bool) -> StoreError:
        where = f"{key!r} in {self.url}: {error.strerror}"
        number = error.errno
        if number in (errno.ENOTDIR, errno.EISDIR, errno.ENOENT):
            if not self._root.is_dir():
                return self._no_root()
            if writing:
                return InvalidKey(f"{where}; in a file store a key cannot be both an object and a directory")
            return ObjectNotFound(key, self.url)
        if number in LINKED:
            return AccessDenied(
                f"{where}: it is, or lies below, a symbolic link, and a file store follows none; "
                "put the file itself there, or mount the directory"
            )
        if number == errno.ENAMETOOLONG:
            return InvalidKey(f"{where}; a file name has at most 255 bytes")
        if number in (errno.EACCES, errno.EPERM, errno.EROFS):
            right = "write" if writing else "read"
            return AccessDenied(f"{where}; grant this process's user {right} permission")
        if number in _FULL:
            return DiskUnavailable(f"{where}; disk full: free space, then retry")
        if number in _PASSING:
            return DiskUnavailable(f"{where}; retry later")
        return StoreError(where)


def _object_key(key: str) -> str:
    """Return the key if every store can hold it and it is not a lock's. Raises InvalidKey."""
    if f"{check_key(key)}/".startswith(_HIDDEN):
        raise InvalidKey(f"{key!r}: {_HIDDEN} holds the locks of a file store, not objects")
    return key


def _parent(key: str) -> str:
    return key.rpartition("/")[0]


def _names(directory: int, start: str) -> Iterator[str]:
    """Yield names of files, and of directories with a ``/``; links and special files are not objects."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if not entry.name.startswith(start):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield f"{entry.name}/"
            elif entry.is_file(follow_symlinks=False):
                yield entry.name


def _etag(found: os.stat_result) -> str:
    return f"{found.st_mtime_ns:x}-{found.st_ino:x}-{found.st_size:x}"


def _info(key: str, found: os.stat_result) -> ObjectInfo:
    seconds, rest = divmod(found.st_mtime_ns, 1_000_000_000)
    modified = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)
    return ObjectInfo(key=key, size=found.st_size, etag=_etag(found), modified=modified)


def _may_change_within_its_tick(found: os.stat_result) -> bool:
    """Return whether a write in place now could keep the ETag: the time is the kernel's, and recent."""
    return found.st_mtime_ns == found.st_ctime_ns and abs(time.time_ns() - found.st_mtime_ns) < _TICK_NS


def _is_not(expected: str | None, found: str | None) -> str:
    if expected is None:
        return "exists already"
    return f"is not {expected} any more: {'gone' if found is None else f'now {found}'}"
