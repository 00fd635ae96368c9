"""One client of S3 for all that a process asks of an endpoint."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

import boto3
import botocore.session
from botocore.config import Config
from botocore.httpsession import get_cert_path

from kubothek.storage.base import StoreConfig
from kubothek.storage.credentials import MountedProvider
from kubothek.storage.retry import RetryPolicy
from kubothek.storage.s3_listing import EVENT, read_contents
from kubothek.storage.s3_objects import ObjectRequests
from kubothek.storage.s3_wire import Wire

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_CONNECTIONS: Final = 64


@dataclass(frozen=True, slots=True)
class Connected:
    """A client, and the requests for single objects that need not go through all of it."""

    client: S3Client
    objects: ObjectRequests


def connected(access: StoreConfig, patience: RetryPolicy) -> Connected:
    """A client costs 100 ms and 10 MB, and has the connections: threads that come at once wait for the first one's.

    A forked process makes its own; ``access`` has no URL.
    """
    process = os.getpid()
    with _making(process):
        return _made(process, access, patience)


@lru_cache(maxsize=1)
def _making(process: int) -> Lock:
    return Lock()


@lru_cache(maxsize=32)
def _made(process: int, access: StoreConfig, patience: RetryPolicy) -> Connected:
    session = botocore.session.Session()
    if access.credentials_dir:
        provider = MountedProvider(Path(access.credentials_dir))
        session.get_component("credential_provider").providers.insert(0, provider)
    config = Config(  # type: ignore[call-arg]  # the stubs do not know the last one
        user_agent_extra="kubothek",
        connect_timeout=patience.connect,
        read_timeout=patience.silence,
        max_pool_connections=_CONNECTIONS,
        retries={"mode": "standard", "total_max_attempts": 1},
        signature_version="s3v4",  # presigned URLs would be of version 2
        s3={"addressing_style": "path" if access.endpoint else "auto"},
        # Checksum trailers that are not required break many servers that speak S3.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        # An endpoint in AWS's configuration files is one that Arrow and Spark would not use (``open_store``).
        ignore_configured_endpoint_urls=True,
    )
    client: S3Client = boto3.Session(botocore_session=session).client(
        "s3",
        endpoint_url=access.endpoint,
        # A signature needs a region; S3 corrects a wrong one, and other servers mostly take any.
        region_name=access.region or session.get_config_variable("region") or "us-east-1",
        config=config,
    )
    client.meta.events.register(EVENT, read_contents)
    # As the client itself finds them.
    authorities = session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
    wire = Wire(authorities or str(get_cert_path(verify=True)), patience.connect, patience.silence)
    return Connected(client, ObjectRequests(client, wire))
