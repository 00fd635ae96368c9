"""Repository: a source and target of pulls and pushes of Open Data Fabric datasets."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import StringConstraints

from kubothek.api.meta import Resource, Status, Strict
from kubothek.api.rules import Rule
from kubothek.api.values import ObjectReference

TOKEN_KEY = "token"  # noqa: S105 - the name of a key of a Secret
"""The key of a Secret that holds a bearer token."""

_S3 = ("s3://", "s3+http://", "s3+https://")
_SIMPLE = ("http://", "https://")
_HOSTED = r"(odf\+)?https?://[^\s/?#@]+(/[^\s?#]*)?"
_BUCKET = r"s3://[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9](/[^\s?#]*)?"
_BUCKET_AT = r"s3\+https?://[^\s/?#@]+/[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9](/[^\s?#]*)?"


def _starts(prefixes: tuple[str, ...]) -> str:
    return " || ".join(f"self.url.startsWith('{prefix}')" for prefix in prefixes)


class RepositorySpec(Strict):
    """The location of the repository, and the access to it."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!self.url.startsWith('file:')",
            message="a file: repository is for one's own machine; in a cluster name a bucket or a server",
            holds=lambda self: not self.url.startswith("file:"),
            cluster_only=True,
        ),
        Rule(
            cel="!self.url.contains('/../') && !self.url.endsWith('/..')",
            message="the url has a '..': write where it leads to",
            holds=lambda self: "/../" not in self.url and not self.url.endswith("/.."),
        ),
        Rule(
            cel=f"!self.push || !({_starts(_SIMPLE)})",
            message="http:// and https:// are read only: a gateway takes a push at odf+https://",
            holds=lambda self: not (self.push and self.url.startswith(_SIMPLE)),
        ),
        Rule(
            cel=f"{_starts(_S3)} || !has(self.region)",
            message="region is for buckets only: remove it",
            holds=lambda self: self.url.startswith(_S3) or self.region is None,
        ),
        Rule(
            cel="self.url.startsWith('s3://') || !has(self.endpoint)",
            message="endpoint is for s3:// only: remove it",
            holds=lambda self: self.url.startswith("s3://") or self.endpoint is None,
        ),
        Rule(
            cel="!has(self.caBundle) || self.url.startsWith('https://') || self.url.startsWith('odf+https://')",
            message="caBundle is for https:// and odf+https:// only: remove it",
            holds=lambda self: self.ca_bundle is None or self.url.startswith(("https://", "odf+https://")),
        ),
    )

    url: Annotated[
        str, StringConstraints(max_length=1024, pattern=rf"^({_HOSTED}|{_BUCKET}|{_BUCKET_AT}|file:[^\s?#]+)$")
    ]
    """Takes effect at the next sync. The root of the datasets, which are below it by name. `https://host/path`: any web
    server, by the simple protocol, read only. `odf+https://host`: a gateway, by the smart protocol.
    `s3://bucket/prefix` and `s3+https://host/bucket/prefix`: the layout of the simple protocol in a bucket. Hosts must
    be on the operator's list of source hosts."""
    endpoint: Annotated[str, StringConstraints(max_length=1024, pattern=r"^https?://[^\s/?#@]+/?$")] | None = None
    """Takes effect at the next sync. The address of an S3 service other than AWS."""
    region: Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[a-zA-Z0-9\-]+$")] | None = None
    """Takes effect at the next sync. The region of the bucket."""
    credentials_secret_ref: ObjectReference | None = None
    """Takes effect at the next sync. A Secret with the key `token`, a bearer token; for a bucket with
    AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, for a temporary key, AWS_SESSION_TOKEN. It is mounted into jobs only.
    Without it requests to a server are anonymous, and those to a bucket use the jobs' service account."""
    ca_bundle: (
        Annotated[str, StringConstraints(max_length=65536, pattern=r"^\s*-----BEGIN CERTIFICATE-----[\s\S]+$")] | None
    ) = None
    """Takes effect at the next sync. Trusted certificates in PEM, instead of the system's."""
    push: bool = False
    """Takes effect at the next sync. Whether Syncs may push here."""


class RepositoryStatus(Status):
    """The observed state of the repository."""


class Repository(Resource):
    """A Repository is a server or bucket, of another party or one's own, that holds datasets of Open Data Fabric."""

    kind: Literal["Repository"] = "Repository"
    spec: RepositorySpec
    status: RepositoryStatus = RepositoryStatus()
