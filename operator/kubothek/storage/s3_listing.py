"""Reading pages of S3's listings in a twentieth of the time that botocore takes: it runs a general parser of dates, and
looks up the model of the answer, for each of the thousand objects of a page.

Only what lies in plain ``Contents`` elements is taken out of an answer. All else, errors above all, goes botocore's own
way; and so does an answer of which anything is not understood here.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

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
