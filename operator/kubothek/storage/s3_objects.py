"""GET and PUT of one object in less than a third of the CPU time of botocore's client.

For each request, the client resolves the bucket's endpoint, the signing and the parsing anew, through models, rules and
events. Here it does so once for each bucket. Its signer then signs each request, with the current credentials.
Botocore's parser reads errors, which are raised as the client raises them. The client still handles buckets of other
regions and proxies. A PUT sends its body at once, without ``Expect: 100-continue``.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPMethod, HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from botocore.awsrequest import AWSRequest, AWSResponse, HTTPHeaders
from botocore.exceptions import ClientError, ResponseStreamingError
from botocore.parsers import create_parser
from botocore.utils import get_environ_proxies, percent_encode

from kubothek.storage.s3_wire import Wire

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_OPERATIONS: Final = {HTTPMethod.GET: "GetObject", HTTPMethod.HEAD: "HeadObject", HTTPMethod.PUT: "PutObject"}
_ASKED: Final = "HeadObject"
"""Called to learn how requests for objects are made; only :class:`ObjectRequests` calls it, and it is never sent."""
_KEY: Final = "-"
_ELSEWHERE: Final = {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect"}
"""S3's error codes for a bucket in another region."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A success, or 304. Header names are case-insensitive."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class _Route:
    """How to send requests for the objects of one bucket; keys are appended to ``url``."""

    url: str
    headers: Mapping[str, str]
    context: Mapping[str, Any]
    signer: Any
    wire: Any

    def is_as(self, other: _Route) -> bool:
        return (self.url, self.context.get("signing")) == (other.url, other.context.get("signing"))


class ObjectRequests:
    """Sender of the requests that one client would send; threads may share it."""

    def __init__(self, client: S3Client, wire: Wire) -> None:
        self._client = client
        self._wire = wire
        self._parser = create_parser("rest-xml")
        self._routes: dict[str, _Route] = {}
        client.meta.events.register(f"before-call.s3.{_ASKED}", cast("Any", _not_sent))

    def send(
        self, method: HTTPMethod, bucket: str, key: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> Answer:
        """Send one request. Raises the client's errors: ClientError for a refusal, or another of botocore's."""
        route = self._routes.get(bucket) or self._find(bucket)
        try:
            return self._send(route, method, key, headers, body)
        except ClientError as error:
            if not _is_elsewhere(error) or (found := self._find_region(bucket)).is_as(route):
                raise
        return self._send(found, method, key, headers, body)

    def presigned(self, method: HTTPMethod, bucket: str, key: str, headers: Mapping[str, str], seconds: int) -> str:
        """Return a URL that the server accepts for so long, with this method and these headers, from any holder."""
        route = self._routes.get(bucket) or self._find(bucket)
        request = {
            "url": route.url + percent_encode(key, safe="/~"),
            "headers": dict(headers),
            "method": method.value,
            "body": b"",
            "context": dict(route.context),
        }
        url: str = route.signer.generate_presigned_url(request, _OPERATIONS[method], expires_in=seconds)
        return url

    def _send(
        self, route: _Route, method: HTTPMethod, key: str, headers: Mapping[str, str], body: bytes | None
    ) -> Answer:
        operation = _OPERATIONS[method]
        url = route.url + percent_encode(key, safe="/~")
        request = AWSRequest(method.value, url, {**route.headers, **headers}, body)
        request.context.update(route.context)
        route.signer.sign(operation, request)
        response = route.wire.send(request.prepare())
        status, found = response.status_code, response.content
        if status >= HTTPStatus.MULTIPLE_CHOICES and status != HTTPStatus.NOT_MODIFIED:
            raise self._error(operation, response)
        length = response.headers.get("Content-Length", "")
        if length.isdecimal() and len(found) != int(length) and status != HTTPStatus.NOT_MODIFIED:
            raise ResponseStreamingError(error=f"{len(found)} bytes of {length} came")  # botocore does not check
        return Answer(status, response.headers, found)

    def _error(self, operation: str, response: Any) -> ClientError:
        answer = {"status_code": response.status_code, "headers": response.headers, "body": response.content}
        shape: Any = self._client.meta.service_model.operation_model(operation).output_shape
        return ClientError(self._parser.parse(answer, shape), operation)

    def _find(self, bucket: str) -> _Route:
        asked: Any = self._client.head_object(Bucket=bucket, Key=_KEY)
        request = asked["params"]
        url = request["url"].removesuffix(_KEY)
        proxied = urlsplit(url).scheme in get_environ_proxies(url)
        wire = cast("Any", self._client)._endpoint.http_session if proxied else self._wire
        route = _Route(url, request["headers"], request["context"], asked["signer"], wire)
        self._routes[bucket] = route
        return route

    def _find_region(self, bucket: str) -> _Route:
        """Return the route after the client has found the bucket's region, also from an error's body."""
        with suppress(ClientError):
            self._client.list_objects_v2(Bucket=bucket, MaxKeys=1)
        return self._find(bucket)


def _not_sent(params: Mapping[str, Any], request_signer: object, **_: object) -> tuple[AWSResponse, dict[str, object]]:
    """Answer in place of the server, as a hook of botocore."""
    return AWSResponse(params["url"], HTTPStatus.OK, HTTPHeaders(), None), {"params": params, "signer": request_signer}


def _is_elsewhere(error: ClientError) -> bool:
    moved = HTTPStatus.MOVED_PERMANENTLY, HTTPStatus.FOUND, HTTPStatus.TEMPORARY_REDIRECT
    response = error.response
    return response["Error"].get("Code") in _ELSEWHERE or response["ResponseMetadata"]["HTTPStatusCode"] in moved
