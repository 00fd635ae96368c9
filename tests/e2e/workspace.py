"""A namespace with a store of its own, and the eyes of a test on what is in the bucket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import boto3
from minimalkv._hstores import HBoto3Store

import kubothek
from kubothek.catalog import Lake
from tests.e2e import manifests
from tests.e2e.kubectl import Kubectl
from tests.faultproxy import FaultProxy
from tests.testcluster import Cluster

BUCKET = "lake"


@dataclass(frozen=True)
class Workspace:
    """One namespace whose ObjectStore ``lake`` is ``s3://lake/<prefix>``."""

    cluster: Cluster
    kubectl: Kubectl
    prefix: str
    credentials_dir: Path
    """The S3 keys as files, like a mounted Secret."""

    @property
    def url(self) -> str:
        """The root of the store."""
        return f"s3://{BUCKET}/{self.prefix}"

    def prepare(self, endpoint: str | None = None) -> None:
        """Apply the Secret, the ObjectStore and the Engine, and wait for the store to be Ready."""
        self.kubectl.apply(
            manifests.secret(self.cluster.s3_access_key, self.cluster.s3_secret_key),
            manifests.object_store(self.url, endpoint or self.cluster.s3_endpoint),
            manifests.engine(),
        )
        self.kubectl.wait_for("Ready", "kos/lake", "keng/default")

    @contextmanager
    def spoiled(self) -> Iterator[FaultProxy]:
        """As prepared, with a proxy on the way to the store; then as usual, so that no job looks for what is gone."""
        with FaultProxy(self.cluster.s3_host_endpoint, host=self.cluster.node_ip) as proxy:
            self.prepare(endpoint=proxy.endpoint)
            try:
                yield proxy
            finally:
                self.kubectl.apply(manifests.object_store(self.url, self.cluster.s3_endpoint))

    def put(self, key: str, data: bytes) -> None:
        """Lay a source file into the store, as ``kubothek put`` does."""
        self.bucket.put_object(Key=f"{self.prefix}/{key}", Body=data)

    def put_rows(self, key: str, first: int, count: int = 10) -> None:
        """A CSV of ``count`` rows: x counts up from ``first``, p is x modulo 2."""
        rows = "".join(f"{x},{x % 2},row {x}\n" for x in range(first, first + count))
        self.put(key, f"x,p,text\n{rows}".encode())

    def read(self, key: str) -> bytes:
        """An object's bytes, straight from S3."""
        return bytes(self.bucket.Object(f"{self.prefix}/{key}").get()["Body"].read())

    def keys(self, prefix: str = "") -> list[str]:
        """All keys of the store under a prefix."""
        start = f"{self.prefix}/"
        return [found.key.removeprefix(start) for found in self.bucket.objects.filter(Prefix=start + prefix)]

    def head(self, uuid: str) -> bytes | None:
        """The bytes of a dataset's head, None if there is none."""
        key = f"{uuid}.by-dataset-metadata.json"
        return self.read(key) if key in self.keys(key) else None

    def column(self, uuid: str, name: str = "x") -> list[int]:
        """All values of a column, sorted, read by Kubothek's own reader."""
        return sorted(self.lake.dataset(uuid).scan(columns=[name]).read_pandas()[name])

    def commit_ids(self, uuid: str) -> list[str]:
        """The ids in the dataset's history, oldest first."""
        return [record.id for record in self.lake.dataset(uuid).history()][::-1]

    @property
    def lake(self) -> Lake:
        """The same store, seen from the host."""
        return kubothek.open(
            self.url,
            endpoint=self.cluster.s3_host_endpoint,
            region="us-east-1",
            credentials_dir=str(self.credentials_dir),
        )

    @property
    def plateau_store(self) -> HBoto3Store:
        """The same store, as plateau wants it."""
        return HBoto3Store(self.bucket, object_prefix=f"{self.prefix}/")

    @property
    def bucket(self):  # type: ignore[no-untyped-def]  # boto3 makes its resource classes at run time
        """The bucket, through plain boto3."""
        return boto3.resource(
            "s3",
            endpoint_url=self.cluster.s3_host_endpoint,
            aws_access_key_id=self.cluster.s3_access_key,
            aws_secret_access_key=self.cluster.s3_secret_key,
            region_name="us-east-1",
        ).Bucket(BUCKET)
