"""Where tables are kept during a run: a directory, or a bucket of a real S3 server on this machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyarrow import fs

import kubothek
from kubothek.catalog import Lake
from tests.s3server import S3Server

_BUCKET = "bench"
_ENVIRONMENT = {"AWS_ALLOW_HTTP": "true", "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required"}
"""For the clients of others: without TLS, and without checksum trailers, which not every server understands."""


@dataclass(frozen=True)
class Root:
    """One system's own part of a place.

    ``endpoint``  of the S3 server; None for a directory
    ``scratch``   a local directory, for catalogs and the like
    ``secret``    a directory with the server's credentials: Spark's workers may be older than the environment
    ``disk``      where its objects are files, for work on more of them than there is time to ask the server for
    """

    url: str
    endpoint: str | None
    scratch: Path
    secret: Path | None
    disk: Path

    def lake(self) -> Lake:
        """The same as Kubothek's lake, opened anew."""
        return kubothek.open(
            self.url, endpoint=self.endpoint, credentials_dir=str(self.secret) if self.secret else None
        )

    def arrow(self) -> fs.FileSystem:
        """Arrow's client of the place; paths are absolute, with the bucket."""
        if self.endpoint is None:
            return fs.LocalFileSystem()
        return fs.S3FileSystem(endpoint_override=self.endpoint.removeprefix("http://"), scheme="http")


@dataclass(frozen=True)
class Place:
    """A place for the tables of one run.

    ``log``  of the S3 server, a line for each request
    """

    name: str
    scratch: Path
    endpoint: str | None = None
    secret: Path | None = None
    disk: Path | None = None
    log: Path | None = None

    def root(self, name: str) -> Root:
        """An empty part of it."""
        scratch = self.scratch / name
        scratch.mkdir()
        url = f"s3://{_BUCKET}/{name}" if self.endpoint else scratch.as_uri()
        return Root(url, self.endpoint, scratch, self.secret, self.disk / name if self.disk else scratch)


@contextmanager
def place(name: str) -> Iterator[Place]:
    """A fresh place, ``fs`` or ``s3``, with the environment that reaches it; everything is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="kubothek-bench-") as directory:
        if name == "fs":
            yield Place(name, Path(directory))
            return
        with S3Server() as s3, _environment({**s3.environment, **_ENVIRONMENT}):
            s3.create_bucket(_BUCKET)
            secret = s3.write_secret(Path(directory) / "secret")
            yield Place(name, Path(directory), s3.endpoint, secret, s3.data / _BUCKET, s3.log)


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
