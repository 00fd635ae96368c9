"""The webhook's own certificate, for clusters without cert-manager.

Each certificate has an authority of its own, whose key is discarded after signing: the stored keys can impersonate this
webhook and nothing else. On a renewal the API server trusts both authorities, so that replicas with the old certificate
stay trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

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
