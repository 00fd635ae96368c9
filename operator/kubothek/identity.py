"""The name under which a client of the library writes to datasets of manifests (docs/writers.md)."""

from __future__ import annotations

import os
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from contextlib import suppress
from json import loads
from pathlib import Path
from typing import Final

VARIABLE: Final = "KUBOTHEK_WRITER"
_TOKEN: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


def default_writer(environ: Mapping[str, str] = os.environ, token: Path = _TOKEN) -> str | None:
    """Return the name of this process as a writer: of KUBOTHEK_WRITER, else of the service account of its pod.

    A service account has the name ``system:serviceaccount:NAMESPACE:NAME``. Its token is not verified, because the name
    is no proof of identity. None outside a pod, or if the file is not a service account's token.
    """
    if name := environ.get(VARIABLE, "").strip():
        return name
    with suppress(OSError, ValueError, IndexError, KeyError, TypeError):
        payload = token.read_text().split(".")[1]
        subject = loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["sub"]
        return subject if isinstance(subject, str) and subject else None
    return None
