"""S3 and compatible servers.

**Retries** are made here, with botocore's own switched off: :class:`~kubothek.storage.retry.RetryPolicy` alone decides
what to retry and for how long. A conditional put whose response was lost is retried like any other request, and can
then fail because its own first attempt succeeded. After PreconditionFailed the caller reads the object and compares.

**Errors** of a HEAD carry no code (a missing bucket looks like a missing key), so the store sends no HEAD. A stat is a
GET of the first byte, and an open fetches the object's end, where readers start.

**Single objects** are read and written by :mod:`~kubothek.storage.s3_objects`; the client does everything else.

A crash during a multipart upload leaves parts that no listing shows. Garbage collection aborts the upload; a lifecycle
rule of the bucket can, too.
"""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http import HTTPMethod, HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import ClientError

from kubothek.errors import AccessDenied, ObjectNotFound, PreconditionFailed, StoreError, StoreUnavailable
from kubothek.storage.base import Capabilities, ObjectInfo, Presigned, Store, StoreConfig, probe_store
from kubothek.storage.ranges import RangeReader
from kubothek.storage.retry import RetryPolicy, with_retries
from kubothek.storage.s3_client import Connected, connected
from kubothek.storage.s3_errors import judge, passes
from kubothek.storage.s3_objects import Answer
from kubothek.storage.urls import S3Location, check_key, check_prefix

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")

_PART_BYTES = 16 << 20
_MOST_PARTS = 10_000
_PARTS_AT_ONCE = 4
_PUTS_AT_ONCE = 16
_DELETE_BATCH = 1000
_DELETES_AT_ONCE = 4
_BESIDE = 16
_TAIL_BYTES = 64 << 10
"""Fetched when an object is opened; has the footer of most Parquet files."""
_BUFFER_BYTES = 1 << 20
_NO_CONDITIONS: Mapping[str, str] = {}


class S3Store(Store):
    """Objects below a prefix of one bucket. Picklable; threads share a client, each process creates its own."""

    def __init__(self, config: StoreConfig, location: S3Location, patience: RetryPolicy | None = None) -> None:
        self.config = config
        self._bucket = location.bucket
        self._prefix = location.prefix
        self._patience = patience or RetryPolicy()
        self._access = replace(config, url="")

    def connect(self) -> None:
        connected(self._access, self._patience)

    # --- reading ---

    def get(self, key: str) -> bytes:
        return self._get(key)[0]

    def get_with_info(self, key: str) -> tuple[bytes, ObjectInfo]:
        return self._get(key)

    def get_if_changed(self, key: str, etag: str) -> tuple[bytes, ObjectInfo] | None:
        answer = self._ask(key, {"If-None-Match": _quoted(etag)})
        return None if answer.status == HTTPStatus.NOT_MODIFIED else (answer.body, _info(key, answer))

    def stat(self, key: str) -> ObjectInfo:
        return self._get(key, {"Range": "bytes=0-0"})[1]

    def open(self, key: str) -> io.BufferedIOBase:
        tail, info = self._get(key, {"Range": f"bytes=-{_TAIL_BYTES}"})

        def fetch(start: int, stop: int) -> bytes:
            try:
                data, _ = self._get(key, {"Range": f"bytes={start}-{stop - 1}", "If-Match": _quoted(info.etag)})
            except PreconditionFailed:
                raise StoreError(f"{key!r} in {self.url} was replaced while it was read; read it again") from None
            if len(data) != stop - start:
                raise StoreError(
                    f"{key!r} in {self.url}: asked for {stop - start} bytes from {start} on, the server sent "
                    f"{len(data)}; is the endpoint an S3 server?"
                )
            return data

        return io.BufferedReader(RangeReader(info.size, tail, fetch), _BUFFER_BYTES)

    def _get(self, key: str, conditions: Mapping[str, str] = _NO_CONDITIONS) -> tuple[bytes, ObjectInfo]:
        answer = self._ask(key, conditions)
        return answer.body, _info(key, answer)

    def _ask(self, key: str, conditions: Mapping[str, str]) -> Answer:
        name = self._full(key)

        def request(s3: Connected) -> Answer:
            try:
                return s3.objects.send(HTTPMethod.GET, self._bucket, name, conditions)
            except ClientError as error:
                if _code(error) != "InvalidRange":
                    raise
                return s3.objects.send(HTTPMethod.GET, self._bucket, name, {})  # an empty object has no range

        return self._call(key, request)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        return self._list(prefix, start_after)

    def _list(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        start: dict[str, Any] = {"StartAfter": self._prefix + start_after} if start_after else {}
        for response in self._pages(prefix, **start):
            for found in response.get("Contents", ()):
                key = found["Key"].removeprefix(self._prefix)
                yield ObjectInfo(key, found["Size"], _bare(found["ETag"]), found["LastModified"])

    def list_names(self, directory: str) -> Iterator[str]:
        check_prefix(directory)
        for response in self._pages(directory, Delimiter="/"):
            found = [entry["Key"] for entry in response.get("Contents", ())]
            found += [entry["Prefix"] for entry in response.get("CommonPrefixes", ())]
            # A page is a range of the key order, but lists objects and directories separately.
            yield from (key.removeprefix(self._prefix + directory) for key in sorted(found))

    def _pages(self, prefix: str, **parameters: Any) -> Iterator[Any]:
        while True:

            def request(s3: Connected, page: Mapping[str, Any] = parameters) -> Any:
                return s3.client.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix + prefix, **page)

            response = self._call(prefix, request)
            if "IsTruncated" not in response:
                raise _not_s3(prefix)  # not an empty store
            yield response
            if not response.get("IsTruncated"):
                return
            parameters = {**parameters, "ContinuationToken": response["NextContinuationToken"]}
            parameters.pop("StartAfter", None)

    # --- writing ---

    def put(self, key: str, data: bytes | memoryview) -> str:
        return self._put(key, data)

    def put_if_absent(self, key: str, data: bytes | memoryview) -> str:
        return self._put(key, data, {"If-None-Match": "*"})

    def put_if_match(self, key: str, data: bytes | memoryview, etag: str) -> str:
        try:
            return self._put(key, data, {"If-Match": _quoted(etag)})
        except ObjectNotFound:
            raise PreconditionFailed(f"{key!r} in {self.url} is gone") from None

    def _put(self, key: str, data: bytes | memoryview, conditions: Mapping[str, str] = _NO_CONDITIONS) -> str:
        name, body = self._full(key), bytes(data)
        answer = self._call(key, lambda s3: s3.objects.send(HTTPMethod.PUT, self._bucket, name, conditions, body))
        return _etag(key, answer.headers)

    def put_many(self, objects: Sequence[tuple[str, bytes | memoryview]]) -> None:
        with ThreadPoolExecutor(min(_PUTS_AT_ONCE, max(1, len(objects))), "kubothek-put") as pool:
            pending = [pool.submit(self._put, key, data) for key, data in objects]
            try:
                for future in pending:
                    future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def upload(self, key: str, source: io.BufferedIOBase) -> str:
        size = source.seek(0, io.SEEK_END)
        source.seek(0)
        if size <= _PART_BYTES:
            return self._put(key, source.read())
        part_bytes = max(_PART_BYTES, -(-size // _MOST_PARTS))
        where: Any = {"Bucket": self._bucket, "Key": self._full(key)}
        where["UploadId"] = self._call(key, lambda s3: s3.client.create_multipart_upload(**where)["UploadId"])
        try:
            parts = self._upload_parts(key, where, source, part_bytes)
            return self._complete(key, where, parts, size)
        except BaseException:
            with suppress(StoreError):
                self._call(key, lambda s3: s3.client.abort_multipart_upload(**where))
            raise

    def _upload_parts(
        self, key: str, where: Mapping[str, Any], source: io.BufferedIOBase, part_bytes: int
    ) -> Sequence[CompletedPartTypeDef]:
        """Upload the parts; at most ``_PARTS_AT_ONCE`` are in memory."""

        def upload_part(number: int, data: bytes) -> CompletedPartTypeDef:
            response = self._call(key, lambda s3: s3.client.upload_part(**where, PartNumber=number, Body=data))
            return {"PartNumber": number, "ETag": _etag(key, response)}

        parts: list[CompletedPartTypeDef] = []
        pending: deque[Future[CompletedPartTypeDef]] = deque()
        with ThreadPoolExecutor(_PARTS_AT_ONCE, "kubothek-upload") as pool:
            while data := source.read(part_bytes):
                pending.append(pool.submit(upload_part, len(parts) + len(pending) + 1, data))
                if len(pending) == _PARTS_AT_ONCE:
                    parts.append(pending.popleft().result())
            parts += [future.result() for future in pending]
        return parts

    def _complete(self, key: str, where: Any, parts: Sequence[CompletedPartTypeDef], size: int) -> str:
        def request(s3: Connected) -> str:
            try:
                done = s3.client.complete_multipart_upload(**where, MultipartUpload={"Parts": parts})
                return _etag(key, done)
            except ClientError as error:
                if _code(error) != "NoSuchUpload":
                    raise
                    # A lost response: the first attempt completed it. The object exists, the upload does not.
                found = self.stat(key)
                if found.size != size:
                    raise
                return found.etag

        return self._call(key, request)

    # --- deleting ---

    def delete(self, keys: Iterable[str]) -> int:
        asked = 0
        remaining = iter(keys)
        pending: deque[Future[None]] = deque()
        with ThreadPoolExecutor(_DELETES_AT_ONCE, "kubothek-delete") as pool:
            while batch := list(islice(remaining, _DELETE_BATCH)):
                asked += len(batch)
                pending.append(pool.submit(self._delete_batch, batch))
                if len(pending) == _DELETES_AT_ONCE:
                    pending.popleft().result()
            for future in pending:
                future.result()
        return asked

    def _delete_batch(self, keys: Sequence[str]) -> None:
        """Delete a batch. The server answers 200 with an error for each key it did not delete; those are retried."""
        remaining = [self._full(key) for key in keys]

        def request(s3: Connected) -> None:
            nonlocal remaining
            batch: Any = {"Objects": [{"Key": key} for key in remaining], "Quiet": True}
            failed = s3.client.delete_objects(Bucket=self._bucket, Delete=batch).get("Errors", ())
            errors = {error["Key"]: error for error in failed if error["Code"] != "NoSuchKey"}
            remaining = [*errors]
            if errors:
                raise self._not_deleted(list(errors.values()))

        self._call(keys[0], request)

    def _not_deleted(self, errors: Sequence[Any]) -> StoreError:
        hopeless = [error for error in errors if not passes(error["Code"], 0)]
        first = (hopeless or errors)[0]
        said = first.get("Message") or first["Code"]
        text = f"{len(errors)} objects of {self.url} are not deleted; {first['Key']!r}: {said}"
        if not hopeless:
            return StoreUnavailable(f"{text}; see to the server's load")
        if first["Code"] == "AccessDenied":
            return AccessDenied(f"{text}; give the access key the right to delete")
        return StoreError(text)

    def abort_uploads(self, prefix: str, before: datetime) -> int:
        check_prefix(prefix)
        aborted, where = 0, dict[str, Any]()

        def request(s3: Connected) -> Any:
            return s3.client.list_multipart_uploads(Bucket=self._bucket, Prefix=self._prefix + prefix, **where)

        while True:
            page = self._call(prefix, request)
            for found in page.get("Uploads", ()):
                if found["Initiated"] < before:
                    aborted += self._abort(prefix, {name: found[name] for name in ("Key", "UploadId")})
            if not page.get("IsTruncated"):
                return aborted
            where = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page.get("NextUploadIdMarker", "")}

    def _abort(self, prefix: str, upload: Mapping[str, Any]) -> int:
        def request(s3: Connected) -> int:
            try:
                s3.client.abort_multipart_upload(Bucket=self._bucket, **upload)
            except ClientError as error:
                if _code(error) != "NoSuchUpload":  # it has ended in the meantime
                    raise
                return 0
            return 1

        return self._call(prefix, request)

    def together(self, first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
        beside = _helpers(os.getpid()).submit(second)
        try:
            return first(), beside.result()
        finally:
            wait([beside])

    def presigned(
        self, method: HTTPMethod, key: str, seconds: int, headers: Mapping[str, str] = _NO_CONDITIONS
    ) -> Presigned:
        name = self._full(key)
        signed = {**headers, "If-None-Match": "*"} if method is HTTPMethod.PUT else dict(headers)
        url = self._call(key, lambda s3: s3.objects.presigned(method, self._bucket, name, signed, seconds))
        return Presigned(url, signed)

    def probe(self) -> Capabilities:
        return probe_store(self)

    # --- helpers ---

    def _full(self, key: str) -> str:
        return self._prefix + check_key(key)

    def _call(self, key: str, request: Callable[[Connected], T]) -> T:
        endpoint = self._access.endpoint or "AWS S3"
        return with_retries(
            lambda: request(connected(self._access, self._patience)),
            lambda raised: judge(raised, key, self.url, endpoint, self._patience),
            self._patience,
        )


@lru_cache(maxsize=1)
def _helpers(process: int) -> ThreadPoolExecutor:
    """Return the thread pool for parallel requests; a forked process has its own."""
    return ThreadPoolExecutor(_BESIDE, "kubothek-beside")


def _info(key: str, answer: Answer) -> ObjectInfo:
    """Return the info of the whole object, also for a ranged GET (``Content-Range: bytes 0-0/1234``)."""
    headers = answer.headers
    try:
        size = int(headers["Content-Range"].rpartition("/")[2]) if "Content-Range" in headers else len(answer.body)
        modified = parsedate_to_datetime(headers["Last-Modified"])
    except (KeyError, ValueError):
        raise _not_s3(key) from None
    return ObjectInfo(key, size, _etag(key, headers), modified)


def _etag(key: str, found: Mapping[str, Any]) -> str:
    """Return the ETag of an answer's headers, or of botocore's parsed result."""
    etag: str | None = found.get("ETag")
    if not etag:
        raise _not_s3(key)
    return _bare(etag)


def _not_s3(key: str) -> StoreError:
    """Return the error for the answer of a proxy's login page, or of a web server that says 200 to anything."""
    return StoreError(f"the answer for {key!r} is not one of S3; is the endpoint an S3 server?")


def _code(error: ClientError) -> str:
    return error.response.get("Error", {}).get("Code", "")


def _bare(etag: str) -> str:
    return etag.strip('"')


def _quoted(etag: str) -> str:
    return f'"{etag}"'
