"""ObjectStore: a bucket, or a prefix of one, that holds data."""

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
    """The location of the data, and the access to it."""

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
    """A Secret with the keys AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, for a temporary key, AWS_SESSION_TOKEN. It
    is mounted into jobs only. Without it jobs use the credentials of their service account."""
    keys_secret_ref: ObjectReference | None = None
    """A Secret with the keys that encrypt skipping metadata: by name, 16, 24 or 32 bytes each. It is mounted into jobs
    only. A job without the key of an index ignores the index."""
    volume: Volume | None = None
    """The volume of a `file://` store."""
    interval: Duration = "10m"
    """Time between inspections of the store and its Datasets by a job. A new value of the annotation
    `kubothek.io/requestedAt` requests one now."""
    suspend: bool = False
    """True: start no inspections, and no jobs that write to this store; running jobs continue."""


class Capabilities(Lenient):
    """The capabilities of the store."""

    conditional_writes: bool
    """Whether the store has conditional writes (compare-and-swap): without them only one writer is safe."""


class Inspection(Attempts):
    """The last inspection of the store. Its job is called `<name>-inspect-<attempt>`."""

    started: Time
    """When it was started."""
    previous_started: Time | None = None
    """When the inspection before it was started."""
    finished: Time | None = None
    """When its end was observed."""
    connection: str
    """A digest of the connection settings of the store."""
    datasets: str
    """A digest of the Datasets of the present round of inspections."""
    after: str = ""
    """The uuid after which this inspection starts, if a round needs several."""
    reached: str | None = None
    """The last uuid in the result of this inspection, if the round continues after it."""
    problem: str | None = None
    """Why the store cannot be used, as the last finished inspection found: `Reason: text`."""
    transient: bool = False
    """Whether the problem is transient."""


class ObjectStoreStatus(Status):
    """The observed state of the store."""

    capabilities: Capabilities | None = None
    """The capabilities of the store; absent before the first inspection."""
    last_inspection: Inspection | None = None
    """The last inspection of the store."""
    last_handled_reconcile_at: str | None = None
    """The newest request (annotation `kubothek.io/requestedAt`) that was handled."""


class ObjectStore(Resource):
    """An ObjectStore names a bucket, or a prefix in one, and the credentials that jobs use for it."""

    kind: Literal["ObjectStore"] = "ObjectStore"
    spec: ObjectStoreSpec
    status: ObjectStoreStatus = ObjectStoreStatus()
