"""Kubothek keeps versioned Parquet datasets in object storage.

    import kubothek
    lake = kubothek.open("s3://lake/warehouse")

See :mod:`kubothek.lake.door` for what a lake can do. Importing this package imports nothing heavy: the
operator shares it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubothek.lake.door import Lake

__all__ = ["open"]


def open(  # noqa: A001 - the natural name of the front door
    url: str,
    *,
    endpoint: str | None = None,
    region: str | None = None,
    credentials_dir: str | None = None,
    keys_dir: str | None = None,
) -> Lake:
    """The lake at ``s3://bucket[/prefix]`` or ``file:///absolute/path``. Contacts nothing yet.

    ``endpoint``         of an S3 server other than AWS: ``http://host:port``
    ``region``           of the bucket; None = what the AWS SDK finds
    ``credentials_dir``  directory with the files AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and perhaps
                         AWS_SESSION_TOKEN; None = what the AWS SDK finds (environment, profile, web identity)
    ``keys_dir``         directory with the keys of encrypted skipping metadata, a file each

    Raises InputError if this cannot be a store.
    """
    from kubothek.lake.door import Lake
    from kubothek.lake.store import StoreConfig, open_store

    return Lake(open_store(StoreConfig(url, endpoint, region, credentials_dir, keys_dir)))
