"""Names of the objects of a store in Iceberg metadata; importable without pyiceberg."""

from __future__ import annotations

from kubothek.storage import Store
from kubothek.storage.urls import FileLocation, parse_url
from kubothek.table.log.model import keys


class Locations:
    """The absolute locations of a store's objects, as Iceberg metadata names files."""

    def __init__(self, store: Store, uuid: str) -> None:
        place = parse_url(store.config.url)
        # Readers take the path of a file:// location as it is: they decode no percent signs.
        root = f"file://{place.root}/" if isinstance(place, FileLocation) else f"s3://{place.bucket}/{place.prefix}"
        self._root = root
        self.table = f"{root}{keys.iceberg(uuid)}".rstrip("/")

    def of(self, key: str) -> str:
        """Return the location of an object."""
        return f"{self._root}{key}"

    def key(self, location: str) -> str:
        """Return the key of the object at a location of this store."""
        return location.removeprefix(self._root)
