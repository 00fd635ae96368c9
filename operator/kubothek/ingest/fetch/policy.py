"""The URLs that may be read: hosts by an allow-list, addresses by their kind.

A manifest is hostile input, and a job can reach what its author cannot: metadata services, the API server, other
tenants' pods. The policy therefore checks every address that a name resolves to, and the target of each redirect
(design, "Rules that keep data safe").
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from kubothek.errors import SourceRefused, SourceUnavailable

_PORTS = {"http": 80, "https": 443, "ftp": 21, "ftps": 990, "mqtt": 1883}
_WEB = ("http", "https")
_NAME = re.compile(r"[a-zA-Z0-9_-]+(\.[a-zA-Z0-9_-]+)*\.?")


@dataclass(frozen=True, slots=True)
class UrlPolicy:
    """The URLs that a source may name.

    ``allowed_hosts`` are exact names, ``*.suffix``, or ``*`` for any, each with ``:port`` for one that is not the
    scheme's own. ``allow_local`` permits ``file:`` URLs, any port, and addresses outside the public internet: for a
    user's own machine, never in a cluster. ``max_bytes`` limits one download. With ``named_private``, a host that the
    list names in full may have a private address, like gateways of other namespaces; never a loopback or link-local
    address, where metadata services are.
    """

    allowed_hosts: tuple[str, ...] = ()
    allow_local: bool = False
    max_bytes: int = 64 << 30
    named_private: bool = False

    def check(self, url: str, schemes: Collection[str] = _WEB) -> SplitResult:
        """Return the parts of a permitted URL, before its name is resolved; ``schemes`` in addition to file.

        Raises SourceRefused.
        """
        if any(character <= " " or character == "\x7f" for character in url):
            raise SourceRefused(f"{url!r} has white space or control characters: write them as %20 and the like")
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError as error:
            raise SourceRefused(f"{url!r} is no URL: {error}") from None
        if parts.scheme == "file":
            if not self.allow_local:
                raise SourceRefused(
                    f"{url!r}: file: URLs are read outside a cluster only; put the file into an ObjectStore"
                )
            if host not in ("", "localhost"):
                raise SourceRefused(f"{url!r}: a file: URL has no host; write file:///absolute/path")
            return parts
        if parts.scheme not in schemes or not host:
            raise SourceRefused(f"{url!r}: sources are {':// or '.join(schemes)}:// URLs")
        if parts.username is not None or parts.password is not None:
            raise SourceRefused(f"the URL of host {host!r} carries a user or password, which a manifest must not")
        if not _is_host(host):
            raise SourceRefused(f"{url!r}: {host!r} is no host name; write an international one in its xn-- form")
        if not url.isascii():
            raise SourceRefused(f"{url!r} has letters that no URL has: write them percent-encoded")
        if not self.allows_host(host):
            listed = ", ".join(self.allowed_hosts) or "none"
            raise SourceRefused(
                f"{url!r}: host {host!r} is not on the operator's list of source hosts (allowed: {listed})"
            )
        if port not in (None, _PORTS[parts.scheme]) and not self.allow_local and not self.allows_host(host, port):
            raise SourceRefused(
                f"{url!r}: port {port} is not on the operator's list of source hosts; add '{host}:{port}'"
            )
        return parts

    def allows_host(self, host: str, port: int | None = None) -> bool:
        """Return whether the allow-list has this name: in any rule, or in one with this port."""
        name = host.lower().rstrip(".")
        rules = (rule.lower().partition(":") for rule in self.allowed_hosts)
        return any(
            (pattern == "*" or name == pattern or (pattern.startswith("*.") and name.endswith(pattern[1:])))
            and (port is None or number == str(port))
            for pattern, _, number in rules
        )

    def resolve(self, parts: SplitResult) -> list[tuple[str, int]]:
        """Return addresses and port to connect to, all of them permitted.

        One refused address refuses the name: otherwise a name with two addresses would bypass the policy. Raises
        SourceRefused, or SourceUnavailable if the name does not resolve.
        """
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise SourceUnavailable(f"host {host!r} of {parts.geturl()!r} does not resolve: {error}") from None
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        for address in addresses:
            private = self.named_private and self._names(host) and is_private(address)
            if not (self.allow_local or private or is_public(address)):
                raise SourceRefused(
                    f"{parts.geturl()!r}: {host!r} resolves to {address}, which is not a public address; "
                    "sources in a cluster must be on the public internet, or in an ObjectStore"
                )
        return [(address, port) for address in addresses]

    def _names(self, host: str) -> bool:
        """Return whether the list has this name itself, and not only a pattern for it."""
        return host.lower().rstrip(".") in {rule.lower().partition(":")[0] for rule in self.allowed_hosts}


def _is_host(host: str) -> bool:
    """Return whether this is a DNS name or an address, and no other text that a resolver or parser may accept."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return _NAME.fullmatch(host) is not None
    return "%" not in host  # an IPv6 zone names an interface of this machine


def is_public(address: str) -> bool:
    """Return whether the address is globally routable unicast, also when it is wrapped in an IPv6 form.

    IPv6 addresses are public in 2000::/3 only, all that IANA assigns for global unicast (RFC 4291, 2.4). Ranges that a
    network's gateway translates, such as 64:ff9b:1::/48 (RFC 8215) or ::ffff:0:0:0/96 (RFC 2765), are not public.
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        if any(ip in network for network in _TRANSLATED):
            return is_public(str(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)))
        wrapped = ip.ipv4_mapped or ip.sixtofour or (ip.teredo and ip.teredo[1])
        if wrapped:
            return is_public(str(wrapped))
        if ip not in _GLOBAL_UNICAST:
            return False
    return ip.is_global and not ip.is_multicast and not any(ip in network for network in _SPECIAL)


def is_private(address: str) -> bool:
    """Return whether the address is in a private network (RFC 1918, 4193, 6598): neither loopback nor link-local."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    wrapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return any((wrapped or ip) in network for network in _PRIVATE)


_PRIVATE = tuple(
    map(ipaddress.ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"))
)
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_SPECIAL = (ipaddress.IPv4Network("192.88.99.0/24"), ipaddress.IPv6Network("3fff::/20"))
"""Relays of 6to4 (RFC 7526) and documentation (RFC 9637), which :mod:`ipaddress` considers global."""
_TRANSLATED = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96"))
"""NAT64, and the IPv4-compatible addresses of RFC 4291: a gateway may forward them to the IPv4 address inside."""
