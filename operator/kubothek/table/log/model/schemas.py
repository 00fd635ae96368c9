"""Schema objects: the schema of a version, stored under the hash of its bytes. Kubothek's readers use no other.

The bytes are those of the matching ``_common_metadata``, so writing them again restores that copy.
"""

from __future__ import annotations

from hashlib import sha256

import pyarrow as pa

from kubothek.errors import ObjectNotFound, VersionIncomplete
from kubothek.storage import Store
from kubothek.table.log.model import keys
from kubothek.table.schema import parse_common_metadata, render_common_metadata


class Schemas:
    """The schema objects of one dataset, cached: they never change."""

    def __init__(self, store: Store, uuid: str) -> None:
        self._store = store
        self._uuid = uuid
        self._bytes: dict[str, bytes] = {}
        self._parsed: dict[str, pa.Schema] = {}

    def data(self, schema_hash: str) -> bytes:
        """Return the bytes of ``_common_metadata`` for this schema. Raises VersionIncomplete if the object is gone."""
        if schema_hash not in self._bytes:
            key = keys.schema(self._uuid, schema_hash)
            try:
                self._bytes[schema_hash] = self._store.get(key)
            except ObjectNotFound as error:
                raise VersionIncomplete(
                    f"{key}: the schema object no longer exists; restore it from a backup"
                ) from error
        return self._bytes[schema_hash]

    def get(self, schema_hash: str | None) -> pa.Schema | None:
        """Return the schema; None for a dataset that has none yet."""
        if schema_hash is not None and schema_hash not in self._parsed:
            self._parsed[schema_hash] = parse_common_metadata(self.data(schema_hash))
        return None if schema_hash is None else self._parsed[schema_hash]

    def put(self, schema: pa.Schema, current: str | None) -> str:
        """Store the schema and return its hash; write nothing if it is the ``current`` one."""
        if current is not None and self.get(current) == schema:
            return current
        data = render_common_metadata(schema)
        schema_hash = sha256(data).hexdigest()
        # Even if it exists: a collector may be about to delete an old object that nothing references.
        self._store.put(keys.schema(self._uuid, schema_hash), data)
        self._bytes[schema_hash] = data
        return schema_hash
