"""URLs of datasets (GR-08).

``https://host/flights``          the simple protocol: any web server over the layout, read only
``odf+https://host/flights``      the smart protocol: a gateway, read and write
``file:///data/flights``, ``s3://bucket/flights``, ``s3+https://host/bucket/flights``    the layout in a store
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from kubothek.errors import InputError
from kubothek.odf.sync.repository import Reach, Repository
from kubothek.odf.sync.stores import StoreRepository
from kubothek.odf.sync.web import Web, WebRepository
from kubothek.storage import Store, StoreConfig, open_store

_SMART: Final = "odf+"
_SIMPLE: Final = ("http", "https")
_USUAL: Final = Reach()
_FORMS: Final = "write https://…, odf+https://…, s3://bucket/…, s3+https://host/bucket/… or file:///…"


@dataclass(frozen=True, slots=True)
class Place:
    """Target of a URL: a web server, which may speak the smart protocol, or a store."""

    url: str
    smart: bool = False
    store: Store | None = None


def parse(url: str, reach: Reach) -> Place:
    """Parse a URL, without contacting it. Raises InputError for anything but the URL of a dataset."""
    smart = url.startswith(_SMART)
    plain = url.removeprefix(_SMART)
    try:
        parts = urlsplit(plain)
        _ = parts.port
    except ValueError as error:
        raise InputError(f"{url!r} is no URL: {error}; {_FORMS}") from None
    if parts.scheme in _SIMPLE:
        if not parts.hostname or parts.username is not None or parts.query or parts.fragment:
            raise InputError(f"{url!r}: the URL of a dataset has a host, and no user, query or fragment; {_FORMS}")
        return Place(plain.rstrip("/"), smart)
    if smart:
        raise InputError(f"{url!r}: the smart protocol goes over http and https; {_FORMS}")
    if parts.scheme.startswith("s3+") and parts.scheme[3:] in _SIMPLE:
        config = StoreConfig(
            f"s3:/{parts.path.rstrip('/')}",
            f"{parts.scheme[3:]}://{parts.netloc}",
            reach.region,
            reach.credentials_dir,
        )
    elif parts.scheme == "s3":
        config = StoreConfig(plain.rstrip("/"), reach.endpoint, reach.region, reach.credentials_dir)
    elif parts.scheme == "file":
        config = StoreConfig(plain.rstrip("/"))
    else:
        raise InputError(f"{url!r} is no URL of a dataset; {_FORMS}")
    return Place(plain, store=open_store(config))


def open_repository(url: str, reach: Reach = _USUAL) -> Repository:
    """Return the repository, by the simple protocol, which gateways also speak. Contacts nothing. Raises InputError."""
    place = parse(url, reach)
    if place.store is not None:
        return StoreRepository(place.store)
    return WebRepository(Web(place.url, reach))
