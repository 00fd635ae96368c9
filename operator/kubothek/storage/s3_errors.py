"""Translation of boto3's errors into those of :mod:`kubothek.errors`."""

from __future__ import annotations

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ProxyConnectionError,
    SSLError,
)
from botocore.parsers import ResponseParserError

from kubothek.errors import (
    AccessDenied,
    BucketNotFound,
    InvalidCredentials,
    InvalidKey,
    ObjectNotFound,
    PreconditionFailed,
    StoreError,
    StoreUnavailable,
)
from kubothek.storage.retry import RetryPolicy, Verdict

_UNKNOWN_KEY = {
    "InvalidAccessKeyId",
    "XAdminUserNotFound",  # versitygw's code, with status 404
    "SignatureDoesNotMatch",
    "InvalidToken",
    "ExpiredToken",
    "TokenRefreshRequired",
}
_TRY_AGAIN = {
    "ConditionalRequestConflict",  # 409: another conditional write of the key is in progress
    "OperationAborted",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "RequestLimitExceeded",
    "TooManyRequests",
    "RequestTimeout",  # 400: the upload stalled
    "InternalError",
    "ServiceUnavailable",
}


def passes(code: str, status: int) -> bool:
    """Return whether an S3 error code, or else the HTTP status, means a temporary state."""
    return code in _TRY_AGAIN or status == 429 or (status >= 500 and code != "NotImplemented" and status != 501)


def judge(raised: Exception, key: str, url: str, endpoint: str, patience: RetryPolicy) -> Verdict | None:
    """Return the error for the caller and how long to retry; None for exceptions of other origin."""
    if isinstance(raised, StoreError):
        return Verdict(raised, patience.troubled if raised.transient else 0)
    if isinstance(raised, ClientError):
        return _refused(raised, key, url, endpoint, patience)
    if isinstance(raised, NoCredentialsError | PartialCredentialsError | CredentialRetrievalError):
        hint = "name a Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or set them in the environment"
        return Verdict(InvalidCredentials(f"no credentials for {url}: {raised}; {hint}"), 0)
    if isinstance(raised, SSLError):
        text = f"no TLS connection to {endpoint}: {raised}; trust its certificate (AWS_CA_BUNDLE)?"
        return Verdict(StoreError(text), 0)
    if isinstance(raised, EndpointConnectionError | ConnectTimeoutError | ProxyConnectionError):
        text = f"{endpoint} of {url} cannot be reached: {raised}; is the endpoint right, and the server running?"
        return Verdict(StoreUnavailable(text), patience.unreachable)
    if isinstance(raised, HTTPClientError):
        text = f"{endpoint} of {url} broke off at {key!r}: {raised}; the server is overloaded or restarting"
        return Verdict(StoreUnavailable(text), patience.troubled)
    if isinstance(raised, ResponseParserError):
        return Verdict(StoreError(f"{endpoint} does not answer like S3 ({raised}); correct the endpoint"), 0)
    if isinstance(raised, BotoCoreError):
        return Verdict(StoreError(f"{key!r} in {url}: {raised}"), 0)
    return None


def _refused(raised: ClientError, key: str, url: str, endpoint: str, patience: RetryPolicy) -> Verdict:
    """Return the verdict on an S3 error document, or at least a status."""
    code = raised.response.get("Error", {}).get("Code", "")
    message = raised.response.get("Error", {}).get("Message", "")
    status = raised.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    said = f"{endpoint} says {status} {code}: {message}"
    if passes(code, status):
        error: StoreError = StoreUnavailable(f"{key!r} in {url}: {said}, again and again; see to the server's load")
        return Verdict(error, patience.troubled)
    if code == "NoSuchKey":
        error = ObjectNotFound(key, url)
    elif code == "NoSuchBucket":
        error = BucketNotFound(f"the bucket of {url} does not exist on {endpoint}; create it, or correct the URL")
    elif code == "PreconditionFailed" or status == 412:
        error = PreconditionFailed(f"{key!r} in {url} exists already, or changed since it was read")
    elif code in _UNKNOWN_KEY:
        error = InvalidCredentials(f"{said}; correct the access key, the secret key or the session token of {url}")
    elif code == "RequestTimeTooSkewed":
        error = InvalidCredentials(f"{said}; set this machine's clock, requests are signed with its time")
    elif code == "KeyTooLongError":
        error = InvalidKey(f"{key!r} in {url}: {said}")
    elif status in (401, 403):
        error = AccessDenied(f"{key!r} in {url}: {said}; give the access key the right to do that")
    elif status == 404:
        error = StoreError(f"{said}, with no S3 error code; is the endpoint of {url} an S3 server?")
    else:
        error = StoreError(f"{key!r} in {url}: {said}")
    return Verdict(error, 0)
