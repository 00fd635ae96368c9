"""The certificates of the native node: one authority, and a key pair for each component under its customary name."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALIDITY = datetime.timedelta(days=3650)


@dataclass(frozen=True)
class KeyPair:
    """A private key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def key_pem(self) -> str:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def write(self, directory: Path, name: str) -> None:
        """Write NAME.crt and NAME.key."""
        (directory / f"{name}.crt").write_text(self.certificate_pem)
        key = directory / f"{name}.key"
        key.touch(mode=0o600)
        key.write_text(self.key_pem)


class Authority:
    """The certificate authority of one cluster."""

    def __init__(self, name: str) -> None:
        subject = _name(name)
        key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = (
            _builder(subject, subject, key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
        )
        self.pair = KeyPair(key, builder.sign(key, hashes.SHA256()))

    def issue(self, name: str, organization: str | None = None, hosts: tuple[str, ...] = ()) -> KeyPair:
        """A certificate for a client, and with `hosts` (names and addresses) for a server too."""
        key = ec.generate_private_key(ec.SECP256R1())
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        builder = _builder(_name(name, organization), self.pair.certificate.subject, key).add_extension(
            x509.ExtendedKeyUsage(purposes), critical=False
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False
            )
        return KeyPair(key, builder.sign(self.pair.key, hashes.SHA256()))


def kubeconfig(server: str, authority: Path, certificate: Path, key: Path) -> str:
    """A kubeconfig for one user of one cluster, as YAML."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "kubothek", "cluster": {"server": server, "certificate-authority": str(authority)}}],
        "users": [{"name": "user", "user": {"client-certificate": str(certificate), "client-key": str(key)}}],
        "contexts": [{"name": "kubothek", "context": {"cluster": "kubothek", "user": "user"}}],
        "current-context": "kubothek",
    }
    return yaml.safe_dump(document, sort_keys=False)


def _name(common_name: str, organization: str | None = None) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization is not None:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(attributes)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # A machine whose clock is a little behind must accept it too.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + VALIDITY)
    )
