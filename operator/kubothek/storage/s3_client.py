"""One client of S3 for all that a process asks of an endpoint."""

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


# Reading pages of S3's listings in a twentieth of the time that botocore takes: it runs a general parser of dates, and
# looks up the model of the answer, for each of the thousand objects of a page.
#
# Only what lies in plain ``Contents`` elements is taken out of an answer. All else, errors above all, goes botocore's
# own way; and so does an answer of which anything is not understood here.


EVENT: Final = "before-parse.*.ListObjectsV2"
"""botocore's event for :func:`read_contents`. The wildcard has it come ahead of botocore's own handler, which looks for
errors in answers of status 200 and parses them for it, so that this one has little to parse.
"""

_FIELDS: Final = ("Key", "Size", "ETag", "LastModified")
_FIELD: Final = re.compile(rf"<({'|'.join(_FIELDS)})>([^<]*)</\1>")
_REFERENCE: Final = re.compile(r"&(?:#(\d+)|#x([0-9a-fA-F]+)|(\w+));")
_NAMED: Final = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}


def read_contents(
    response_dict: MutableMapping[str, Any], customized_response_dict: MutableMapping[str, Any], **_: object
) -> None:
    """Move the objects of an answer to where botocore looks for what is parsed already, in the form of its own."""
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
        "ETag": _plain(fields["ETag"].replace("&#34;", '"').replace("&quot;", '"')),  # in every one of them
        "LastModified": modified,
    }


def _plain(text: str) -> str:
    return _REFERENCE.sub(_character, text) if "&" in text else text


def _character(reference: re.Match[str]) -> str:
    decimal, hexadecimal, name = reference.groups()
    return _NAMED[name] if name else chr(int(decimal) if decimal else int(hexadecimal, 16))
