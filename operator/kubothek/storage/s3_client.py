"""One S3 client per process and endpoint."""

from __future__ import annotations

import os
import re
from collections.abc import MutableMapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import boto3
import botocore.session
from botocore.config import Config
from botocore.httpsession import get_cert_path

from kubothek.storage.base import StoreConfig
from kubothek.storage.credentials import MountedProvider
from kubothek.storage.retry import RetryPolicy
from kubothek.storage.s3_objects import ObjectRequests
from kubothek.storage.s3_wire import Wire

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_CONNECTIONS: Final = 64


@dataclass(frozen=True, slots=True)
class Connected:
    """A client, and cheaper requests for single objects that bypass most of it."""

    client: S3Client
    objects: ObjectRequests


def connected(access: StoreConfig, patience: RetryPolicy) -> Connected:
    """Return the shared client: one costs 100 ms and 10 MB. Concurrent threads wait for the first to create it.

    A forked process creates its own; ``access`` has no URL.
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
        signature_version="s3v4",  # presigned URLs would default to version 2
        s3={"addressing_style": "path" if access.endpoint else "auto"},
        # Optional checksum trailers break many S3-compatible servers.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        # Arrow and Spark would not use an endpoint of AWS's configuration files (``open_store``).
        ignore_configured_endpoint_urls=True,
    )
    client: S3Client = boto3.Session(botocore_session=session).client(
        "s3",
        endpoint_url=access.endpoint,
        # A signature needs a region; S3 corrects a wrong one, and most other servers accept any.
        region_name=access.region or session.get_config_variable("region") or "us-east-1",
        config=config,
    )
    client.meta.events.register(EVENT, read_contents)
    # The same authorities as the client's.
    authorities = session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
    wire = Wire(authorities or str(get_cert_path(verify=True)), patience.connect, patience.silence)
    return Connected(client, ObjectRequests(client, wire))


# Parse pages of S3's listings in a twentieth of botocore's time: botocore runs a general date parser and looks up the
# model of the answer for each of a page's thousand objects.
#
# Only objects in plain ``Contents`` elements are parsed here. Botocore parses the rest, above all errors, and every
# answer that is not understood here.


EVENT: Final = "before-parse.*.ListObjectsV2"
"""botocore's event for :func:`read_contents`. The wildcard puts it before botocore's own handler, which parses answers
of status 200 to look for errors."""

_FIELDS: Final = ("Key", "Size", "ETag", "LastModified")
_FIELD: Final = re.compile(rf"<({'|'.join(_FIELDS)})>([^<]*)</\1>")
_REFERENCE: Final = re.compile(r"&(?:#(\d+)|#x([0-9a-fA-F]+)|(\w+));")
_NAMED: Final = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}


def read_contents(
    response_dict: MutableMapping[str, Any], customized_response_dict: MutableMapping[str, Any], **_: object
) -> None:
    """Move the objects of an answer to botocore's place for parsed results, in botocore's form."""
    if response_dict["status_code"] != HTTPStatus.OK:
        return
    try:
        head, *elements = response_dict["body"].decode().split("<Contents>")
        pairs = [element.split("</Contents>") for element in elements]
        objects = [_object(content) for content, _ in pairs]
    except (KeyError, ValueError):
        return
    if objects:
        customized_response_dict["Contents"] = objects
        response_dict["body"] = "".join([head, *(rest for _, rest in pairs)]).encode()


def _object(content: str) -> dict[str, Any]:
    found = _FIELD.findall(content)
    if len(found) != len(_FIELDS):
        raise ValueError("not the fields of one object")
    fields: dict[str, str] = dict(found)
    modified = datetime.fromisoformat(fields["LastModified"])
    if modified.tzinfo is None:
        raise ValueError("a time without a zone")
    return {
        "Key": _plain(fields["Key"]),
        "Size": int(fields["Size"]),
        "ETag": _plain(fields["ETag"].replace("&#34;", '"').replace("&quot;", '"')),  # every ETag has quotes
        "LastModified": modified,
    }


def _plain(text: str) -> str:
    return _REFERENCE.sub(_character, text) if "&" in text else text


def _character(reference: re.Match[str]) -> str:
    decimal, hexadecimal, name = reference.groups()
    return _NAMED[name] if name else chr(int(decimal) if decimal else int(hexadecimal, 16))
