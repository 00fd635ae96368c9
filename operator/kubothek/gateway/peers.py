"""Client addresses: that of the connection, or behind a trusted proxy that of ``X-Forwarded-For``."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from aiohttp import web

from kubothek.errors import InputError

_FORWARDED: Final = "X-Forwarded-For"
_HOST_BITS: Final = 64
"""Host bits of an IPv6 address: a client usually has the whole /64 network."""


class Peers:
    """Client addresses; ``X-Forwarded-For`` is trusted only from ``proxies``, addresses or networks (10.0.0.0/8)."""

    def __init__(self, proxies: Iterable[str] = ()) -> None:
        """Raises InputError."""
        try:
            self._proxies = [ip_network(each) for each in proxies]
        except ValueError as error:
            raise InputError(f"a trusted proxy is an address or a network: {error}") from None

    def of(self, request: web.Request) -> str:
        """Return the address of the client as text: the last one in the chain that is not a trusted proxy."""
        addresses = [each.strip() for line in request.headers.getall(_FORWARDED, ()) for each in line.split(",")]
        last = _address(request.remote or "")
        while addresses and last is not None and any(last in proxy for proxy in self._proxies):
            if (before := _address(addresses.pop())) is None:
                break
            last = before
        return request.remote or "" if last is None else str(last)


def client_of(peer: str) -> str:
    """Return the key of a peer for per-client limits: the address, for IPv6 its /64 network."""
    address = _address(peer)
    if isinstance(address, IPv6Address):
        return str(IPv6Address(int(address) >> _HOST_BITS << _HOST_BITS))
    return peer


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(text)
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found
