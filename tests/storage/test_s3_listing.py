"""Pages of listings are understood as botocore understands them, or left to it."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape

import botocore.session
import pytest
from botocore.parsers import RestXMLParser
from hypothesis import given
from hypothesis import strategies as st

from kubothek.storage.s3_client import read_contents

SHAPE: Any = botocore.session.Session().get_service_model("s3").operation_model("ListObjectsV2").output_shape
AWS = (
    "<Contents><Key>{key}</Key><LastModified>2026-01-02T03:04:05.678Z</LastModified><ETag>&quot;ab&quot;</ETag>"
    "<ChecksumAlgorithm>CRC32</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType><Size>12</Size>"
    "<Owner><ID>someone</ID><DisplayName>Some One</DisplayName></Owner><StorageClass>STANDARD</StorageClass></Contents>"
)


def page(*contents: str, name: str = "ListBucketResult") -> bytes:
    start = f'<?xml version="1.0" encoding="UTF-8"?>\n<{name} xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    rest = "<IsTruncated>true</IsTruncated><NextContinuationToken>a&amp;b</NextContinuationToken>"
    return f"{start}<Name>lake</Name>{''.join(contents)}{rest}</{name}>".encode()


def botocores(body: bytes, status: int = 200) -> Any:
    answer = {"status_code": status, "headers": {}, "body": body}
    return RestXMLParser().parse(answer, SHAPE)


def ours(body: bytes, status: int = 200) -> tuple[Any, bool]:
    """What comes of it, and whether it was read here."""
    answer: dict[str, Any] = {"status_code": status, "headers": {}, "body": body}
    taken: dict[str, Any] = {}
    read_contents(answer, taken, operation_model=None)
    return {**RestXMLParser().parse(answer, SHAPE), **taken}, bool(taken)


def essence(parsed: Any) -> Any:
    fields = ("Key", "Size", "ETag", "LastModified")
    contents = [{field: found[field] for field in fields} for found in parsed.get("Contents", ())]
    return {**parsed, "Contents": contents}


@pytest.mark.parametrize(
    "body",
    [
        page(AWS.format(key="a"), AWS.format(key="b/c%20d")),
        page(AWS.format(key="a"), "<CommonPrefixes><Prefix>p/</Prefix></CommonPrefixes>", AWS.format(key="z")),
        page(AWS.format(key="&lt;&#34;&#x20AC;&amp;amp;&apos;&gt;&#128;")),
        page("\n  " + AWS.replace("><", ">\n    <").format(key="a") + "\n"),
        page(AWS.format(key="a").replace("05.678Z", "05Z")),
        page(AWS.format(key="a").replace("05.678Z", "05+02:00")),
    ],
)
def test_s3_listing_page_parsed_natively_equals_botocore_result(body: bytes) -> None:
    found, here = ours(body)
    assert here
    assert essence(found) == essence(botocores(body))
    assert found["IsTruncated"] is True
    assert found["NextContinuationToken"] == "a&b"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(page(), 200, id="empty"),
        pytest.param(page(AWS.format(key="<![CDATA[a<b]]>")), 200, id="CDATA"),
        pytest.param(page(AWS.format(key="a").replace("Contents>", "Contents >")), 200, id="another spelling"),
        pytest.param(page(AWS.format(key="a").replace("05.678Z", "05")), 200, id="a time without a zone"),
        pytest.param(page(AWS.format(key="a").replace("2026-01-02T03:04:05.678Z", "1767323045")), 200, id="seconds"),
        pytest.param(page("<Contents><Key>a</Key></Contents>"), 200, id="fields are missing"),
        pytest.param(page(AWS.format(key="a"), name="Error"), 403, id="an error"),
    ],
)
def test_s3_listing_page_of_unknown_form_is_parsed_by_botocore(body: bytes, status: int) -> None:
    assert ours(body, status) == (botocores(body, status), False)


@pytest.mark.parametrize("cut", [50, 120, 300, 520, 700])
def test_s3_truncated_listing_page_raises_error(cut: int) -> None:
    body = page(AWS.format(key="a"), AWS.format(key="b"))
    with pytest.raises(Exception, match="Unable to parse"):
        botocores(body[:cut])
    with pytest.raises(Exception, match="Unable to parse"):
        ours(body[:cut])


@given(st.lists(st.text(st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="￾￿"), min_size=1)))
def test_s3_listing_page_with_random_keys_equals_botocore_result(keys: list[str]) -> None:
    body = page(*(AWS.replace("{key}", escape(key)) for key in keys))
    found, _ = ours(body)
    assert [entry["Key"] for entry in found.get("Contents", ())] == keys
    assert essence(found) == essence(botocores(body))
