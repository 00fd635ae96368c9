"""A real S3 server for one test session: versitygw on a loopback port, with its data in a temporary directory.

    with S3Server() as s3:
        s3.create_bucket("lake")
        kubothek.open("s3://lake/warehouse", **s3.options)

`stop()` and `start()` make the endpoint go away and come back, on the same port and with the same data.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import boto3
from botocore.config import Config

from tests.testcluster.gotools import VERSITYGW

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

START_TIMEOUT = 90.0
STOP_TIMEOUT = 10.0


class S3Server:
    """One versitygw process; a context manager."""

    access_key = "local-access-key"
    secret_key = "local-secret-key"
    region = "us-east-1"

    def __init__(self, *, port: int | None = None) -> None:
        self.port = port or _free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._root = Path(tempfile.mkdtemp(prefix="kubothek-s3-"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def options(self) -> dict[str, str]:
        """What an S3 client needs to know."""
        return {
            "endpoint": self.endpoint,
            "access_key": self.access_key,
            "secret_key": self.secret_key,
            "region": self.region,
        }

    @property
    def environment(self) -> dict[str, str]:
        """The same as the environment variables that every AWS SDK reads."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
        }

    @property
    def data(self) -> Path:
        """Where the objects of a bucket are files, by key: below the bucket's name."""
        return self._root / "data"

    @property
    def log(self) -> Path:
        """What the server printed, one line a request."""
        return self._root / "versitygw.log"

    def start(self) -> None:
        """Start the server, or start it again; return when it accepts connections."""
        if self._process is not None:
            raise RuntimeError("the S3 server runs already")
        self.data.mkdir(exist_ok=True)
        program, address = VERSITYGW.ensure() / "versitygw", f"127.0.0.1:{self.port}"
        credentials = {"ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                # Without keep-alive each request is a TCP connection of its own, and tests would measure that.
                [program, "--keep-alive", "--port", address, "posix", self.data],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **credentials},
            )
        self._await_port(self._process)

    def stop(self) -> None:
        """Stop the server; its data stays until the context ends."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def client(self) -> "S3Client":
        """A boto3 client of this server."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=self.region,
            config=Config(s3={"addressing_style": "path"}),
        )

    def write_secret(self, directory: Path) -> Path:
        """Write the credentials there, as a mounted Secret has them; return the directory."""
        directory.mkdir(exist_ok=True)
        (directory / "AWS_ACCESS_KEY_ID").write_text(self.access_key)
        (directory / "AWS_SECRET_ACCESS_KEY").write_text(self.secret_key)
        return directory

    def create_bucket(self, name: str) -> str:
        """Create an empty bucket and return its name."""
        self.client().create_bucket(Bucket=name)
        return name

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self._root, ignore_errors=True)

    def _await_port(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline and process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.02)
        output = self.log.read_text(errors="replace")[-2000:]
        self.stop()
        raise RuntimeError(f"versitygw does not answer on {self.endpoint}:\n{output}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
