"""Bytes as text that names its own base: https://github.com/multiformats/multibase.

Every base of status *final* is read (HS-05); text is written in ``base16``, the specification's choice for output and
names (HS-06). ``did:key`` writes ``base58btc``.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Final

from kubothek.errors import FormatInvalid

_BASE58: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BASE58_VALUES: Final = {character: value for value, character in enumerate(_BASE58)}
_LONGEST: Final = 4096
"""The most characters of a text that is read: base58 takes quadratic time."""
_SHOWN: Final = 100


def encode(data: bytes) -> str:
    """Return the bytes in base16, lower case."""
    return "f" + data.hex()


def encode_base58(data: bytes) -> str:
    """Return the bytes in base58btc."""
    zeros = len(data) - len(data.lstrip(b"\0"))
    number, digits = int.from_bytes(data, "big"), ""
    while number:
        number, digit = divmod(number, 58)
        digits = _BASE58[digit] + digits
    return "z" + "1" * zeros + digits


def decode(text: str) -> bytes:
    """Return the bytes of text in any final base. Raises FormatInvalid."""
    shown = repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
    if (decoder := _DECODERS.get(text[:1])) is None:
        raise FormatInvalid(f"{shown} does not start with the letter of a multibase: one of {' '.join(_DECODERS)}")
    if len(text) > _LONGEST or not text.isascii():
        raise FormatInvalid(f"{shown} is no multibase text: it is not ASCII, or longer than {_LONGEST} characters")
    try:
        return decoder(text[1:])
    except (ValueError, KeyError):
        raise FormatInvalid(f"{shown} is not valid in the base that its first letter names") from None


def _base32(digits: str) -> bytes:
    if "=" in digits:
        raise ValueError
    return base64.b32decode(digits + "=" * (-len(digits) % 8), casefold=True)


def _base58(digits: str) -> bytes:
    number = 0
    for digit in digits:
        number = number * 58 + _BASE58_VALUES[digit]
    zeros = len(digits) - len(digits.lstrip("1"))
    return b"\0" * zeros + number.to_bytes((number.bit_length() + 7) // 8, "big")


def _base64(digits: str) -> bytes:
    if "=" in digits:
        raise ValueError
    return base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True)


def _base64url(digits: str) -> bytes:
    if "+" in digits or "/" in digits:
        raise ValueError
    return _base64(digits.translate(_URL))


def _base64urlpad(digits: str) -> bytes:
    if len(digits) % 4:
        raise ValueError
    return _base64url(digits.rstrip("="))


_URL: Final = str.maketrans("-_", "+/")
_DECODERS: Final[dict[str, Callable[[str], bytes]]] = {
    "f": binascii.unhexlify,
    "F": binascii.unhexlify,
    "b": _base32,
    "B": _base32,
    "z": _base58,
    "m": _base64,
    "u": _base64url,
    "U": _base64urlpad,
}
"""By the first letter. If a base uses one case only, the case of digits does not matter, as for the reference."""
