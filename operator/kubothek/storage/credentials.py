"""S3 credentials from a mounted Secret."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from botocore.credentials import CredentialProvider, Credentials, ReadOnlyCredentials

from kubothek.errors import InvalidCredentials

_NAMES: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_YOUNG_SECONDS: Final = 2.0
"""Longer than the clock tick of any file system."""


class MountedCredentials(Credentials):
    """Credentials that are read again for each request, so a rotated Secret takes effect without a restart."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        read = self._read_all()
        self._kept: tuple[object, ReadOnlyCredentials] = None, read
        super().__init__(read.access_key or "", read.secret_key or "", read.token, method=MountedProvider.METHOD)

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        seen = self._identity()
        kept, credentials = self._kept
        if seen is None or seen != kept:
            credentials = self._read_all()
            self._kept = seen, credentials
        return credentials

    def _identity(self) -> object:
        """Return an identity of the files' version, in a tenth of the time of reading them.

        None if the files are so recent that another version could have the same identity.
        """
        found = [_stat(f"{self._directory}/{name}") for name in _NAMES]
        newest = max((stat.st_mtime for stat in found if stat), default=0)
        if time.time() - newest < _YOUNG_SECONDS:
            return None
        return [stat and (stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in found]

    def _read_all(self) -> ReadOnlyCredentials:
        # The kubelet swaps the link ..data when it updates a Secret: resolved once, all files are of one version.
        version = (self._directory / "..data").resolve()
        directory = version if version.is_dir() else self._directory
        access_key, secret_key, token = _NAMES
        return ReadOnlyCredentials(
            self._read(directory, access_key),
            self._read(directory, secret_key),
            self._read(directory, token, required=False) or None,
        )

    def _read(self, directory: Path, name: str, *, required: bool = True) -> str:
        try:
            value = (directory / name).read_text().strip()
        except FileNotFoundError:
            value = ""
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidCredentials(f"cannot read {name} in {self._directory}: {error}") from error
        if required and not value:
            raise InvalidCredentials(f"no {name} in {self._directory}; the Secret must have this key, not empty")
        return value


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116 - for each request
    except OSError:
        return None


class MountedProvider(CredentialProvider):
    """Provider that puts :class:`MountedCredentials` first in boto3's chain."""

    METHOD = "kubothek-mounted-secret"

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory

    def load(self) -> Credentials:
        """Return the credentials. Raises InvalidCredentials, so that boto3 does not use another provider's."""
        return MountedCredentials(self._directory)
