"""Arrow in workers under limits."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kubothek.sandbox.arrow  # noqa: F401 - the zygote imports what this process has
from kubothek.sandbox import limited
from tests.sandbox import tasks
from tests.sandbox.test_limited import run

pytestmark = pytest.mark.slow


def test_arrow_reads_files_without_memory_for_threads(tmp_path: Path) -> None:
    for number in range(16):
        pq.write_table(pa.table({"a": [number]}), tmp_path / f"{number}.parquet")
    limited.stop()  # the next zygote imports kubothek.sandbox.arrow
    stack = 8 << 20
    assert list(run(tasks.rows_of_files, str(tmp_path), memory=stack - 1)) == [b"16"]
