"""From an error to the lines that a person reads: what is wrong, and what to do about it."""

from __future__ import annotations

import sys

_HINTS = {
    "InvalidCredentials": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, for this store",
    "AccessDenied": "grant these credentials read permission on this store, and write permission for changes",
    "BucketNotFound": "check the URL; `kubothek put` and `kubothek run` create the directory of a file store",
    "StoreUnavailable": "check that the endpoint is right and reachable from here; --endpoint names another",
    "DatasetNotFound": "`kubothek get` lists the datasets of the store",
    "VersionNotFound": "`kubothek log DATASET` lists the versions that can be read",
    "NotALedger": "ledgers are made by `kubothek import` or spec.ledger; `kubothek log` and `query` are for tables too",
    "TooManyDeletes": "`kubothek gc DATASET` lists the objects; --max-deletes raises the limit",
    "QueryInvalid": "`kubothek get` lists the datasets, `kubothek describe DATASET` the columns of one",
}


def explain(error: Exception) -> list[str] | None:
    """The lines for an error that has nothing to do with a bug; None for any other."""
    # Without an import: a module that was not loaded did not raise.
    lake = sys.modules.get("kubothek.errors")
    local = sys.modules.get("kubothek.local.errors")
    if lake is not None and isinstance(error, lake.LakeError):
        # The error of a disk has its own remedy, and there is no endpoint.
        hint = None if isinstance(error, lake.DiskUnavailable) else _HINTS.get(error.reason)
        return [f"error: {error.reason}: {error}", *([f"hint: {hint}"] if hint else [])]
    if local is not None and isinstance(error, local.LocalError):
        return [f"error: {line}" for line in str(error).splitlines()]
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename is not None else ""
        return [f"error: {where}{error.strerror or error}"]
    return None
