"""Files from FTP servers, in the clear or over TLS, under the policy of all URLs (FE-04).

The control and the data connection go to the address that was checked: the address that the server reports for the
data connection is ignored.
"""

from __future__ import annotations

import ftplib
import socket
import ssl
from contextlib import closing
from tempfile import TemporaryFile
from typing import IO, Any, Final
from urllib.parse import SplitResult, unquote

from kubothek.errors import SourceNotFound, SourceRefused, SourceUnavailable
from kubothek.ingest.fetch.policy import UrlPolicy
from kubothek.odf.sources.readers.content import FileContent, too_large

_TIMEOUT: Final = 30.0
_PIECE: Final = 1 << 20
_SCHEMES: Final = ("ftp", "ftps")


def fetch_ftp(url: str, name: str, policy: UrlPolicy) -> FileContent:
    """Return the file at the URL, as an anonymous user. ``name`` is for messages.

    Raises SourceRefused, SourceNotFound, SourceUnavailable.
    """
    parts = policy.check(url, _SCHEMES)
    problem: Exception = OSError("no address")
    for address, port in policy.resolve(parts):
        client = _Checked(parts, address)
        try:
            with closing(client):
                client.connect(address, port, timeout=_TIMEOUT)
                return _retrieved(client, parts, name, policy)
        except ftplib.error_perm as error:
            raise SourceNotFound(f"{name!r}: the server answers {error}; correct the URL") from None
        except (OSError, EOFError, ftplib.Error) as error:
            problem = error
    raise SourceUnavailable(f"{name!r} cannot be reached: {problem}")


def _retrieved(client: _Checked, parts: SplitResult, name: str, policy: UrlPolicy) -> FileContent:
    client.login()
    if parts.scheme == "ftps":
        client.prot_p()
    path = unquote(parts.path).lstrip("/")
    if not path or any(sign < " " for sign in path):
        raise SourceRefused(f"{name!r} names no file")
    file: IO[bytes] = TemporaryFile()  # noqa: SIM115 - the content owns it
    size = 0

    def keep(piece: bytes) -> None:
        nonlocal size
        size += len(piece)
        if size > policy.max_bytes:
            raise too_large(name, policy.max_bytes)
        file.write(piece)

    client.retrbinary(f"RETR {path}", keep, _PIECE)
    file.flush()
    return FileContent(name, file)


class _Checked(ftplib.FTP_TLS):
    """A client for a resolved address that uses TLS from the first byte (``ftps``) or not at all."""

    def __init__(self, parts: SplitResult, address: str) -> None:
        super().__init__(context=ssl.create_default_context())
        self._secure = parts.scheme == "ftps"
        self._name = parts.hostname or ""
        self.host = address

    def connect(self, *args: Any, **options: Any) -> str:
        if not self._secure:
            return super().connect(*args, **options)
        host, port = args
        self.timeout = options["timeout"]
        self.sock = self._wrapped(socket.create_connection((host, port), self.timeout))
        self.af = self.sock.family
        self.file = self.sock.makefile("r", encoding=self.encoding)
        self.welcome = self.getresp()
        return self.welcome

    def login(self, *args: Any, **options: Any) -> str:
        # FTP_TLS would send AUTH TLS first
        return ftplib.FTP.login(self, *args, **options)  # noqa: S321 - the manifest asks for it

    def ntransfercmd(self, cmd: str, rest: Any = None) -> tuple[socket.socket, int | None]:
        connection, size = ftplib.FTP.ntransfercmd(self, cmd, rest)  # noqa: S321 - the manifest asks for it
        return (self._wrapped(connection) if self._secure else connection), size

    def _wrapped(self, link: socket.socket) -> ssl.SSLSocket:
        return self.context.wrap_socket(link, server_hostname=self._name)
