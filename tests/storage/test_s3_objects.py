"""Requests for single objects, against those that botocore's client makes for the same."""

from __future__ import annotations

import io
from http import HTTPMethod
from typing import Any, cast

import botocore.session
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse, HTTPHeaders
from botocore.config import Config
from urllib3 import HTTPResponse

from kubothek.storage.s3_objects import ObjectRequests
from kubothek.storage.s3_wire import Wire

KEY = "ware/house/part=1%2F2/é +~.parquet"
_OF_THE_CLIENT = {"authorization", "expect", "user-agent", "x-amz-date", "amz-sdk-invocation-id", "amz-sdk-request"}
"""Headers that tell of the time and the attempt, are made of others, or only ask for a pause."""

DUALSTACK = Config(s3={"use_dualstack_endpoint": True})  # type: ignore[arg-type]  # the stubs want all keys


class Sent:
    """Stands for the connections: keeps requests, and answers each with an empty success."""

    def __init__(self) -> None:
        self.sent: list[AWSPreparedRequest] = []

    def send(self, request: AWSPreparedRequest) -> AWSResponse:
        self.sent.append(request)
        headers = HTTPHeaders()
        headers["Content-Length"], headers["ETag"] = "0", '"e"'
        return AWSResponse(request.url, 200, headers, HTTPResponse(io.BytesIO(), status=200, preload_content=False))


def text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def described(request: AWSPreparedRequest) -> tuple[object, ...]:
    """All but what differs from one request to the next: of the signature, where and what for it is."""
    headers = {name.lower(): text(value) for name, value in request.headers.items()}
    scope = headers["authorization"].split(", ")[0].split("/", 2)[2]
    body = request.body.read() if isinstance(request.body, io.IOBase) else request.body
    return (
        request.method,
        request.url,
        body or b"",
        {name: value for name, value in headers.items() if name not in _OF_THE_CLIENT},
        scope,
    )


@pytest.mark.parametrize(
    ("where", "bucket"),
    [
        ({"region_name": "eu-west-1"}, "lake"),
        ({"region_name": "us-east-1"}, "lake"),
        ({"region_name": "cn-north-1"}, "lake"),
        ({"region_name": "eu-west-1"}, "with.dots"),
        ({"region_name": "us-east-1", "endpoint_url": "http://10.0.0.1:7070"}, "lake"),
        ({"region_name": "us-east-1", "endpoint_url": "https://minio.example"}, "lake"),
        ({"region_name": "eu-west-1", "config": DUALSTACK}, "lake"),
    ],
)
def test_s3_object_requests_equal_those_of_botocore(where: dict[str, Any], bucket: str) -> None:
    quiet = Config(request_checksum_calculation="when_required", response_checksum_validation="when_required")
    where = {**where, "config": quiet.merge(where.get("config", Config()))}
    session = botocore.session.Session()
    client: Any = session.create_client("s3", aws_access_key_id="key", aws_secret_access_key="secret", **where)
    wire = client._endpoint.http_session = Sent()
    objects = ObjectRequests(client, cast("Wire", wire))
    client.get_object(Bucket=bucket, Key=KEY, IfNoneMatch='"e"')
    client.put_object(Bucket=bucket, Key=KEY, Body=b"content", IfMatch='"e"')
    client.put_object(Bucket=bucket, Key=KEY, Body=b"", IfNoneMatch="*")
    objects.send(HTTPMethod.GET, bucket, KEY, {"If-None-Match": '"e"'})
    objects.send(HTTPMethod.PUT, bucket, KEY, {"If-Match": '"e"'}, b"content")
    objects.send(HTTPMethod.PUT, bucket, KEY, {"If-None-Match": "*"}, b"")
    asked = [described(request) for request in wire.sent]
    assert len(asked) == 6
    assert asked[:3] == asked[3:]
