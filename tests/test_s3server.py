"""The S3 server of tests that need no cluster."""

import pytest
from botocore.exceptions import ClientError

from tests.s3server import S3Server

pytestmark = pytest.mark.s3


def test_s3_server_keeps_data_across_outage() -> None:
    with S3Server() as s3:
        bucket = s3.create_bucket("lake")
        s3.client().put_object(Bucket=bucket, Key="a/b", Body=b"kept")
        s3.stop()
        s3.start()
        assert s3.client().get_object(Bucket=bucket, Key="a/b")["Body"].read() == b"kept"


def test_s3_server_conditional_put_has_one_winner() -> None:
    with S3Server() as s3:
        bucket, client = s3.create_bucket("lake"), s3.client()
        client.put_object(Bucket=bucket, Key="head", Body=b"1", IfNoneMatch="*")
        with pytest.raises(ClientError, match="PreconditionFailed"):
            client.put_object(Bucket=bucket, Key="head", Body=b"2", IfNoneMatch="*")


def test_s3_servers_are_isolated() -> None:
    with S3Server() as first, S3Server() as second:
        first.create_bucket("lake")
        assert second.client().list_buckets()["Buckets"] == []
