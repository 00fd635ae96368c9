"""ObjectStore: where data lives."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar, Literal

from pydantic import StringConstraints

from kubothek.api.meta import Attempts, Lenient, Resource, Status, Strict, Time
from kubothek.api.rules import Immutable, Rule
from kubothek.api.values import Duration, ObjectReference, parse_duration

LEAST_INTERVAL = timedelta(seconds=10)


class Volume(Strict):
    """A volume that holds a ``file://`` store."""

    claim_name: Annotated[str, StringConstraints(min_length=1, max_length=253)]
    """The PersistentVolumeClaim; jobs mount it at the path of the url."""


class ObjectStoreSpec(Strict):
    """Where data lives, and how to get there."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.url.startsWith('s3://') || (self.url.startsWith('file:///') && has(self.volume))",
            message="in a cluster a file store needs the form file:///path and spec.volume.claimName, the volume that "
            "holds its files",
            holds=lambda self: (
                self.url.startswith("s3://") or (self.url.startswith("file:///") and self.volume is not None)
            ),
            cluster_only=True,
        ),
        Rule(
            cel="!has(self.volume) || self.url.startsWith('file:')",
            message="spec.volume is for file:// stores only: remove it",
            holds=lambda self: self.volume is None or self.url.startswith("file:"),
        ),
        Rule(
            cel="self.url.startsWith('s3://') || "
            "!(has(self.endpoint) || has(self.region) || has(self.credentialsSecretRef))",
            message="endpoint, region and credentialsSecretRef are for s3:// stores only: remove them",
            holds=lambda self: (
                self.url.startswith("s3://")
                or (self.endpoint, self.region, self.credentials_secret_ref) == (None, None, None)
            ),
        ),
        Rule(
            cel="duration(self.interval) >= duration('10s')",
            message="spec.interval is shorter than 10s: an inspection starts a pod, so choose a longer one",
            holds=lambda self: parse_duration(self.interval) >= LEAST_INTERVAL,
        ),
    )

    url: Annotated[
        str,
        StringConstraints(
            max_length=1024,
            pattern=r"^(s3://[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9](/[^\s?#]*)?|file:[^\s?#]+)$",
        ),
        Immutable("spec.url cannot change, as the data would stay behind: create another ObjectStore"),
    ]
    """Immutable. `s3://bucket` or `s3://bucket/prefix`, or `file:///path`."""
    endpoint: Annotated[str, StringConstraints(max_length=1024, pattern=r"^https?://[^\s/?#]+/?$")] | None = None
    """The address of an S3 service other than AWS, such as `https://minio.example.com:9000`."""
    region: Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[a-zA-Z0-9\-]+$")] | None = None
    """The region of the bucket; most services other than AWS accept any."""
    credentials_secret_ref: ObjectReference | None = None
    """A Secret with the keys AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, if the key is temporary,
    AWS_SESSION_TOKEN. It is mounted into jobs only. Without it jobs use what their service account is granted."""
    keys_secret_ref: ObjectReference | None = None
    """A Secret with the keys that encrypt skipping metadata: by name, 16, 24 or 32 bytes each. It is mounted into jobs
    only. A job without the key of an index reads as if there were none."""
    volume: Volume | None = None
    """The volume of a `file://` store."""
    interval: Duration = "10m"
    """How often a job looks at the store and at the Datasets in it. The annotation `kubothek.io/requestedAt` with a
    new value asks for it now."""
    suspend: bool = False
    """Start no new inspections, and no jobs that write to this store. What runs goes on."""


class Capabilities(Lenient):
    """What the store can do."""

    conditional_writes: bool
    """Whether the store can replace an object only if nobody else has: without it only one writer is safe."""


class Inspection(Attempts):
    """The last look at the store. Its job is called `<name>-inspect-<attempt>`."""

    started: Time
    """When it was started."""
    previous_started: Time | None = None
    """When the inspection before it was started."""
    finished: Time | None = None
    """When its end was seen."""
    connection: str
    """A digest of how the store was reached."""
    datasets: str
    """A digest of the Datasets that the present round of inspections is about."""
    after: str = ""
    """The uuid after which this inspection began, when a round needs several."""
    reached: str | None = None
    """The uuid up to which this inspection answered, if the round goes on from there."""
    problem: str | None = None
    """Why the store cannot be used, as the last finished inspection found: `Reason: text`."""
    transient: bool = False
    """Whether the problem may pass by itself."""


class ObjectStoreStatus(Status):
    """What is known about the store."""

    capabilities: Capabilities | None = None
    """What the store can do, once it was looked at."""
    last_inspection: Inspection | None = None
    """The last look at the store."""
    last_handled_reconcile_at: str | None = None
    """The newest request (annotation `kubothek.io/requestedAt`) that was acted on."""


class ObjectStore(Resource):
    """An ObjectStore names a bucket, or a prefix in one, and the credentials that jobs use for it."""

    kind: Literal["ObjectStore"] = "ObjectStore"
    spec: ObjectStoreSpec
    status: ObjectStoreStatus = ObjectStoreStatus()
