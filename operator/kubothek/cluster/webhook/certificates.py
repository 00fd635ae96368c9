"""The webhook's own certificate, for clusters without cert-manager.

Each certificate has an authority of its own, whose key is discarded after signing: the stored keys can impersonate this
webhook and nothing else. On a renewal the API server trusts both authorities, so that replicas with the old certificate
stay trusted.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubothek.cluster.api import CONFLICT, Api, ApiError, Object
from kubothek.cluster.config import WebhookConfig

VALIDITY: Final = timedelta(days=90)
RENEWAL: Final = timedelta(days=30)
"""How long before its end a certificate is replaced."""
_SKEW: Final = timedelta(hours=1)
"""Tolerated lag of the clocks of API servers."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate, its private key, and the authorities to trust, newest first; all in PEM."""

    certificate: str
    key: str
    authorities: str


def make(hosts: Sequence[str], now: datetime, before: Certificate | None = None) -> Certificate:
    """Return a new certificate for these names; earlier authorities stay trusted until they expire."""
    key, authority_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = _name(f"webhook of {hosts[0]}")
    authority = (
        _builder(issuer, issuer, authority_key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        _builder(_name(hosts[0]), issuer, key.public_key(), now)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(_usage(signs=False), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    older = [each for each in _certificates(before.authorities) if _ends(each) > now] if before is not None else []
    return Certificate(
        certificate=_pem(certificate),
        key=key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
        authorities="".join(map(_pem, [authority, *older])),
    )


def is_due(current: Certificate, hosts: Sequence[str], now: datetime) -> bool:
    """Return whether the certificate must be replaced: it expires soon, is for other names, or is invalid."""
    try:
        (found, *_) = _certificates(current.certificate)
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        key = serialization.load_pem_private_key(current.key.encode(), None)
    except (ValueError, TypeError, x509.ExtensionNotFound):
        return True
    other = key.public_key() != found.public_key() or set(names.get_values_for_type(x509.DNSName)) != set(hosts)
    return other or _ends(found) - now < RENEWAL or not _certificates(current.authorities)


def _certificates(pem: str) -> list[x509.Certificate]:
    """Return the certificates in the text; none if it is invalid, as a Secret may hold anything."""
    try:
        return x509.load_pem_x509_certificates(pem.encode())
    except ValueError:
        return []


def _ends(certificate: x509.Certificate) -> datetime:
    return certificate.not_valid_after_utc


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + VALIDITY)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


# The storage of the webhook's own certificate in a Secret that all replicas share, and the trust in it.


_FIELDS: Final = {"tls.crt": "certificate", "tls.key": "key", "ca.crt": "authorities"}
_CONFIGURATION: Final = "ValidatingWebhookConfiguration"


class Keeper:
    """Issue and renewal of one certificate. Methods raise ApiError and ApiUnavailable."""

    def __init__(self, api: Api, config: WebhookConfig, clock: Callable[[], datetime] = lambda: datetime.now(UTC)):
        self._api = api
        self._config = config
        self._clock = clock

    async def certificate(self) -> Certificate:
        """Return the current certificate; issue or renew it if due. The first replica's write counts for all."""
        hosts, name, namespace = self._config.hosts, self._config.secret, self._config.namespace
        while True:
            there, now = await self._api.get("Secret", namespace, name), self._clock()
            present = _read(there) if there is not None else None
            if present is not None and not is_due(present, hosts, now):
                return present
            wanted = make(hosts, now, present)
            try:
                if there is None:
                    await self._api.create("Secret", namespace, _secret(namespace, name, wanted))
                else:
                    await self._api.json_patch("Secret", namespace, name, _replacement(there, wanted))
            except ApiError as error:
                if error.status not in (404, CONFLICT, 422):
                    raise
            else:
                return wanted

    async def trust(self, certificate: Certificate) -> None:
        """Let the API server trust the certificate's authorities. Write only if the bundle differs."""
        there = await self._api.get(_CONFIGURATION, None, self._config.configuration)
        if there is None:
            raise ApiError(404, "NotFound", f"there is no {_CONFIGURATION} {self._config.configuration!r}", "trust")
        bundle = _encoded(certificate.authorities)
        changes: list[Object] = [
            {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}
            for index, hook in enumerate(there.get("webhooks") or ())
            if hook["clientConfig"].get("caBundle") != bundle
        ]
        if changes:
            guard = {"op": "test", "path": "/metadata/resourceVersion", "value": there["metadata"]["resourceVersion"]}
            await self._api.json_patch(_CONFIGURATION, None, self._config.configuration, [guard, *changes])


def _read(secret: Object) -> Certificate:
    data = secret.get("data") or {}
    fields = {field: base64.b64decode(data.get(key) or "").decode(errors="replace") for key, field in _FIELDS.items()}
    return Certificate(**fields)


def _data(certificate: Certificate) -> dict[str, str]:
    return {key: _encoded(getattr(certificate, field)) for key, field in _FIELDS.items()}


def _secret(namespace: str, name: str, certificate: Certificate) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": namespace},
        "data": _data(certificate),
    }


def _replacement(there: Object, certificate: Certificate) -> list[Object]:
    guard = {"op": "test", "path": "/metadata/resourceVersion", "value": there["metadata"]["resourceVersion"]}
    return [guard, {"op": "add", "path": "/data", "value": _data(certificate)}]


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
