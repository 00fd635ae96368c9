"""What records say of the files' bytes."""

from __future__ import annotations

from hashlib import sha3_256

from kubothek.table.log import DatasetLog


def require_hashes(log: DatasetLog) -> None:
    """Each file that a commit added has the hash that its record tells."""
    files = [file for record in log.history() for file in record.delta.added]
    assert files
    for file in files:
        assert file.sha3 == sha3_256(log.journal.store.get(file.key)).hexdigest()
