"""Signatures of results: they prove that the job itself wrote the result on its pod.

The private key is in a Secret that the pod of the attempt mounts; the public key is in an immutable field of that pod's
spec. Ed25519 (RFC 8032).
"""

from __future__ import annotations

import base64

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


def new_key() -> tuple[bytes, str]:
    """Return the 32 bytes of a new private key, and its public key in base64."""
    key = Ed25519PrivateKey.generate()
    return key.private_bytes_raw(), base64.b64encode(key.public_key().public_bytes_raw()).decode()


def sign(text: str, key: bytes) -> str:
    """Return the signature and ``text``. Raises ValueError for a key that has not 32 bytes."""
    signature = Ed25519PrivateKey.from_private_bytes(key).sign(text.encode())
    return f"{base64.b64encode(signature).decode()}.{text}"


def verified(signed: str, public_key: str) -> str | None:
    """Return the text of :func:`sign`; None if the private key of ``public_key`` did not sign it."""
    signature, _, text = signed.partition(".")
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key, validate=True))
        key.verify(base64.b64decode(signature, validate=True), text.encode())
    except (InvalidSignature, ValueError):
        return None
    return text
