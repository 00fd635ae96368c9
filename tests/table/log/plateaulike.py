"""A foreign writer, step by step: reads the head, and later puts another one over whatever is there by then.

What real plateau does in one call, for tests that let others in between; test_plateau.py has the real one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.storage import Store
from tests.table.log.table import UUID, write


class ForeignWriter:
    """Appends one file and removes the given labels, blindly; ``erases`` all metadata as kartothek's index build."""

    def __init__(
        self,
        store: Store,
        label: str,
        values: Sequence[int],
        *,
        removes: Sequence[str] = (),
        erases: bool = False,
    ) -> None:
        self._store = store
        self._label = label
        self._values = values
        self._removes = removes
        self._erases = erases
        self._document: dict[str, Any] = {}

    def read(self) -> None:
        self._document = json.loads(self._store.get(f"{UUID}.by-dataset-metadata.json"))

    def write(self) -> None:
        if self._erases:
            del self._document["metadata"]
        file = write(self._store, self._label, self._values)
        partitions = self._document["partitions"]
        for label in self._removes:
            partitions.pop(label, None)
        partitions[file.label] = {"files": {"table": file.key}}
        put_foreign_schema(self._store)
        self._store.put(f"{UUID}.by-dataset-metadata.json", json.dumps(self._document).encode())


def put_foreign_schema(store: Store, uuid: str = UUID) -> None:
    """A ``_common_metadata`` as a foreign writer leaves it: not the bytes that ours would have."""
    sink = pa.BufferOutputStream()
    schema = pa.schema([("x", pa.int64())], metadata={"pandas": "{}"})
    pq.write_metadata(schema, sink)
    store.put(f"{uuid}/table/_common_metadata", sink.getvalue().to_pybytes())
