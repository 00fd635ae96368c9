"""S3 credentials from a mounted Secret."""

from __future__ import annotations

from pathlib import Path

from botocore.credentials import CredentialProvider, Credentials, ReadOnlyCredentials

from kubothek.lake.errors import InvalidCredentials


class MountedCredentials(Credentials):
    """Read anew for each request (50 µs), so a rotated Secret takes effect without a restart."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        access_key, secret_key, token = self._read_all()
        super().__init__(access_key, secret_key, token, method=MountedProvider.METHOD)

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        return ReadOnlyCredentials(*self._read_all())

    def _read_all(self) -> tuple[str, str, str | None]:
        # The kubelet swaps the link ..data when it updates a Secret: resolved once, all files match.
        version = (self._directory / "..data").resolve()
        directory = version if version.is_dir() else self._directory
        return (
            self._read(directory, "AWS_ACCESS_KEY_ID"),
            self._read(directory, "AWS_SECRET_ACCESS_KEY"),
            self._read(directory, "AWS_SESSION_TOKEN", required=False) or None,
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


class MountedProvider(CredentialProvider):
    """Puts :class:`MountedCredentials` at the head of boto3's chain."""

    METHOD = "kubothek-mounted-secret"

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory

    def load(self) -> Credentials:
        """The credentials; raises InvalidCredentials rather than let another provider's be used."""
        return MountedCredentials(self._directory)
