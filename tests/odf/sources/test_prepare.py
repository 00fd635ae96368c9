"""What is done with files before they are read (PR-01, PR-02)."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

from kubothek.errors import InputError, LakeError, SourceCorrupt, SourceFailed, SourceNotFound, SourceRefused
from kubothek.ingest import UrlPolicy
from kubothek.odf.sources.fetch import FetchContext
from kubothek.odf.sources.fetch.poll import prepare
from kubothek.odf.sources.readers import FileContent, read
from kubothek.odf.spec.sources import (
    CompressionFormat,
    PrepStep,
    PrepStepDecompress,
    PrepStepPipe,
    ReadStepEsriShapefile,
    ReadStepParquet,
)
from tests.odf.sources.conftest import context
from tests.odf.sources.test_files import parquet, shapes

GZIP = PrepStepDecompress(format=CompressionFormat.GZIP)
TEXT = b"some text\n" * 300_000


def unzip(path: str | None = None) -> PrepStepDecompress:
    return PrepStepDecompress(format=CompressionFormat.ZIP, sub_path=path)


def zipped(**files: bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "/"), content)
    return data.getvalue()


def prepared(data: bytes, *steps: PrepStep, ctx: FetchContext | None = None) -> bytes:
    """What the steps make of the data: twice the same, and the same where it can be sought in."""
    content = prepare(steps, FileContent.of_bytes(data, "in"), ctx or context(allow_commands=True))
    with content.open() as first, content.open() as second, content.file() as file:
        found = first.read()
        assert second.read() == found
        file.seek(3)
        assert file.read() == found[3:]
    with content.open() as again:
        assert again.read() == found
    return found


@pytest.mark.requirement("PR-01")
def test_gzip_source_is_decompressed() -> None:
    assert prepared(gzip.compress(TEXT), GZIP) == TEXT
    assert prepared(gzip.compress(TEXT[:5]) + gzip.compress(TEXT[5:]), GZIP) == TEXT  # as pigz and logs write it
    assert prepared(gzip.compress(gzip.compress(TEXT)), GZIP, GZIP) == TEXT
    assert prepared(b"", GZIP) == b""
    with pytest.raises(InputError, match=r"subPath is for Zip"):
        prepared(b"x", PrepStepDecompress(format=CompressionFormat.GZIP, sub_path="x"))


@pytest.mark.requirement("PR-01")
def test_zip_source_is_decompressed_by_sub_path() -> None:
    data = zipped(a=b"first", b__c=TEXT, b__d=b"third")
    assert prepared(data, unzip()) == b"first"
    assert prepared(data, unzip("b/c")) == TEXT
    assert prepared(data, unzip("**/d")) == b"third"
    assert prepared(gzip.compress(data), GZIP, unzip("*")) == b"first"
    assert prepared(b"", unzip()) == b""
    with pytest.raises(SourceCorrupt, match=r"2 files that prepare.subPath can mean: 'b/c', 'b/d'"):
        prepared(data, unzip("b/*"))
    with pytest.raises(SourceNotFound, match=r"has no file 'x'; it has 'a', 'b/c', 'b/d'; correct prepare.subPath"):
        prepared(data, unzip("x"))


@pytest.mark.requirement("PR-01")
@pytest.mark.parametrize("cut", [3, 12, 200, -4])
def test_damaged_archive_raises_source_corrupt(cut: int) -> None:
    with pytest.raises(SourceCorrupt, match=r"'in' is not a sound Gzip file"):
        prepared(gzip.compress(TEXT)[:cut], GZIP)
    with pytest.raises(SourceCorrupt, match=r"'in' is not a sound Zip file"):
        prepared(zipped(a=TEXT)[:cut], unzip())
    data = bytearray(zipped(a=TEXT))
    data[100] ^= 255
    with pytest.raises(SourceCorrupt, match=r"'in' is not a sound Zip file"):
        prepared(bytes(data), unzip())


@pytest.mark.requirement("PR-01")
@pytest.mark.parametrize(("data", "step"), [(gzip.compress(TEXT), GZIP), (zipped(a=TEXT), unzip())])
def test_archive_that_unpacks_beyond_limit_is_refused(data: bytes, step: PrepStep) -> None:
    ctx = context(policy=UrlPolicy(max_bytes=len(TEXT) - 1))
    with pytest.raises(SourceRefused, match=f"'in.*' is larger than {len(TEXT) - 1} bytes"):
        prepared(data, step, ctx=ctx)


@pytest.mark.requirement("PR-01")
def test_decompressed_parquet_and_shapefile_can_be_read() -> None:
    table = pa.table({"a": [1, 2]})
    content = prepare((GZIP,), FileContent.of_bytes(gzip.compress(parquet(table)), "in"), context())
    rows = read(ReadStepParquet(), content)
    assert rows is not None
    assert rows.read_all() == table
    content = prepare((unzip(),), FileContent.of_bytes(zipped(x=shapes(a=1)), "in"), context())
    found = read(ReadStepEsriShapefile(), content)
    assert found is not None
    assert found.read_all().num_rows == 2


@pytest.mark.requirement("PR-02")
def test_pipe_command_transforms_source(tmp_path: Path) -> None:
    assert prepared(TEXT, PrepStepPipe(command=("tr", "a-z", "A-Z"))) == TEXT.upper()
    assert prepared(gzip.compress(TEXT), PrepStepPipe(command=("gzip", "-d")), PrepStepPipe(command=("cat",))) == TEXT
    assert prepared(TEXT, PrepStepPipe(command=("head", "-c", "4"))) == b"some"  # it need not read to the end
    assert prepared(b"$HOME;id", PrepStepPipe(command=("echo", "$HOME;id"))) == b"$HOME;id\n"  # there is no shell
    assert b"PATH" in (found := prepared(b"", PrepStepPipe(command=("env",))))
    assert found.count(b"\n") == 1  # nor this process's environment


@pytest.mark.requirement("PR-02")
@pytest.mark.parametrize(
    ("command", "error", "problem"),
    [
        (("sh", "-c", "echo why >&2; exit 3"), SourceFailed, "ended with 3: why"),
        (("sh", "-c", "cat; kill -9 $$"), SourceFailed, "ended with -9: it said nothing"),
        (("/nonexistent",), SourceFailed, "'/nonexistent' cannot be run: No such file"),
        (("yes",), SourceRefused, "larger than 5000000 bytes"),
        ((), InputError, "Pipe has no command"),
    ],
)
def test_failing_pipe_command_raises_error(command: tuple[str, ...], error: type[LakeError], problem: str) -> None:
    ctx = context(policy=UrlPolicy(max_bytes=5_000_000), allow_commands=True)
    with pytest.raises(error, match=problem):
        prepared(TEXT, PrepStepPipe(command=command), ctx=ctx)


@pytest.mark.requirement("PR-02")
def test_pipe_command_is_refused_unless_allowed() -> None:
    with pytest.raises(SourceRefused, match=r"commands are not allowed here"):
        prepared(b"x", PrepStepPipe(command=("cat",)), ctx=context())
